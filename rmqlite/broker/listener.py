"""Who is told what a call has changed, so that those who wait are woken."""

from __future__ import annotations

from typing import Protocol


class Listener(Protocol):
    """Who is told what a call has changed."""

    def appended(self, topic: str, queue_id: int) -> None:
        """A queue has a new message; it may be read when the log is durable up to its end."""
        ...

    def due_sooner(self) -> None:
        """The earliest message of a level is due earlier than it was."""
        ...
