"""The interface by which the broker reports changes, so that waiting calls are woken."""

from __future__ import annotations

from typing import Protocol


class Listener(Protocol):
    """Receives the changes of each call."""

    def appended(self, topic: str, queue_id: int) -> None:
        """A queue has a new message; consumers may read it when the log is durable to its end."""
        ...

    def due_sooner(self, wait_queue: int) -> None:
        """The earliest message of a wait queue is due earlier than it was, or is its first."""
        ...
