"""What a subscription takes: "*" or "TagA || TagB", as RocketMQ writes it, and SQL92.

The broker compares hashes of tags, and two tags can share one; so the consumer compares
the tags themselves once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import StoredMessage

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


def given_sql(sql: str | None) -> str:
    """What a request says for it: "" for none.  Raises InvalidValue for an empty expression.

    It would take every message, and comes from a condition that was never filled in.
    """
    if sql is not None and not sql.strip():
        raise InvalidValue("sql", sql, "an SQL92 expression; None for none")
    return sql or ""
