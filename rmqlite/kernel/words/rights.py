"""What a caller may do, and what a request needs."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple

from rmqlite.kernel.words.visible import shortened


class Right(StrEnum):
    """What an account may do.  Only PUB and SUB are given by name of a topic or a group."""

    PUB = "PUB"
    """Send to a topic."""
    SUB = "SUB"
    """Consume from a topic, or in the name of a group."""
    VIEW = "VIEW"
    """Ours: look at state, messages and figures without consuming."""
    ADMIN = "ADMIN"
    """Change topics, groups, messages that wait, jobs or settings."""


class Need(NamedTuple):
    """One right that a request needs.

    Without a kind it is a right on the broker itself, and name says in RocketMQ's words what is
    asked, such as "request code=17".  asked: what the caller has named instead of a topic: then a
    refusal does not tell it which topic that is.
    """

    right: Right
    kind: Literal["topic", "group", ""] = ""
    name: str = ""
    asked: str = ""

    @property
    def subject(self) -> str:
        if self.asked:
            return shortened(self.asked)
        return shortened(f"{self.kind}:{self.name}" if self.kind else self.name or "the broker")
