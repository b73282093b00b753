"""Which tags a subscription takes: "*" or "TagA || TagB", as RocketMQ writes it.

The broker compares hashes of tags, and two tags can share one; so the consumer compares
the tags themselves once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmqlite.message import StoredMessage

EVERYTHING: Final = "*"


@dataclass(frozen=True, slots=True)
class TagExpression:
    """tags: None takes every message, the untagged included."""

    tags: frozenset[str] | None

    def takes(self, message: StoredMessage) -> bool:
        return self.tags is None or message.tags in self.tags


def parse_tags(expression: str) -> TagExpression:
    """Read an expression; an empty one means "*", blanks round a tag are ignored."""
    if expression.strip() in ("", EVERYTHING):
        return TagExpression(None)
    tags = (tag.strip() for tag in expression.split("||"))
    return TagExpression(frozenset(tag for tag in tags if tag))
