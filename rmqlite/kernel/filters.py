"""The filters of consumers: tags, and expressions over properties that a feature compiles.

A tag expression is "*", or "TagA || TagB" (reference §9.5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

from rmqlite.kernel import Steps
from rmqlite.kernel.records.record import tags_hash
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.words.errors import ExpressionInvalid, InvalidValue
from rmqlite.kernel.words.limits import EXPRESSION_BYTES_MAX, check_length

STEP_WORK: Final = 10_000
"""The work() of a step of 3 ms; then other calls may run."""
_SHORT_CHARS_MAX: Final = 256


class PropertyFilter(Protocol):
    """One expression over properties."""

    def work(self, properties: bytes) -> int:
        """The work of matches(), at most; see STEP_WORK."""
        ...

    def matches(self, properties: bytes) -> bool:
        """Does a message with this property string match?"""
        ...


def _no_sql(text: str) -> PropertyFilter:
    raise InvalidValue("sql", text, "empty: this broker has no SQL92 filters")


def _all(_group: str, found: Sequence[Record]) -> Steps[Sequence[Record]]:
    yield from ()
    return found


@dataclass(slots=True)
class Filters:
    """sql: makes a filter of an SQL92 expression; raises ExpressionInvalid, InvalidValue.  left:
    the records that a group may still be handed, in steps; raises StoreUnavailable."""

    sql: Callable[[str], PropertyFilter] = _no_sql
    left: Callable[[str, Sequence[Record]], Steps[Sequence[Record]]] = _all


def parse_tags(expression: str) -> frozenset[str] | None:
    """The tags that an expression matches; None matches all messages.

    Raises ExpressionInvalid, or InvalidValue for a text that is too long.
    """
    # Long expressions are not cached, to save memory.
    return _known_tags(expression) if len(expression) <= _SHORT_CHARS_MAX else _tags(expression)


def _tags(expression: str) -> frozenset[str] | None:
    check_length("expression", expression, EXPRESSION_BYTES_MAX)
    text = expression.strip()
    if text in ("", "*"):
        return None
    tags, at = set(), 0
    for part in expression.split("||"):
        tag = part.strip()
        if tag in ("", "*"):
            rule = 'expected "*" alone, or tags joined by "||"'
            raise ExpressionInvalid("expression", expression, rule, at=at)
        tags.add(tag)
        at += len(part) + len("||")
    return frozenset(tags)


_known_tags = lru_cache(maxsize=1024)(_tags)


def tags_codes(tags: frozenset[str]) -> frozenset[int]:
    """The tags codes of queue entries with these tags; other tags may have the same codes."""
    return frozenset(tags_hash(tag) for tag in tags)
