"""Tag expressions: "*", or "TagA || TagB" (reference §9.5)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rmqlite.errors import ExpressionInvalid
from rmqlite.limits import EXPRESSION_BYTES_MAX, check_length
from rmqlite.records.record import tags_hash

_SHORT_CHARS_MAX: Final = 256


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
