"""The filters of consumers: tags, and SQL92 expressions over properties.

A tag expression is "*", or "TagA || TagB" (reference §9.5).  An SQL92 expression is compiled once
and asked for each message.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rmqlite.features.sql.sql_evaluation import Incomparable, evaluation
from rmqlite.features.sql.sql_parser import FIELD, parse
from rmqlite.features.sql.sql_tree import Value
from rmqlite.kernel.records.record import tags_hash
from rmqlite.kernel.words.errors import ExpressionInvalid
from rmqlite.kernel.words.limits import EXPRESSION_BYTES_MAX, SQL_BYTES_MAX, check_length

_KNOWN_MAX: Final = 128
"""Compiled expressions that are remembered; one of the greatest length takes about 200 KiB."""


STEP_WORK: Final = 10_000
"""The work() of a step of 3 ms; then other calls may run."""
_SHORT_CHARS_MAX: Final = 256


class Sql:
    """One expression."""

    __slots__ = ("_evaluate", "_length")

    def __init__(self, text: str) -> None:
        """Raises ExpressionInvalid, or InvalidValue for a text that is too long."""
        check_length(FIELD, text, SQL_BYTES_MAX)
        self._evaluate = evaluation(parse(text))
        self._length = len(text)

    def answer(self, properties: bytes) -> Value:
        """True, False, or None for null.  Raises Incomparable."""
        return self._evaluate(properties)

    def work(self, properties: bytes) -> int:
        """The work of matches(), at most: about 20 for a short expression and a usual message.

        Each property that the expression names is searched in the whole property string.
        """
        return 20 + (self._length >> 3) * (1 + (len(properties) >> 10))

    def matches(self, properties: bytes) -> bool:
        """Does a message with this property string match?  Only if the answer is true."""
        try:
            return self._evaluate(properties) is True
        except Incomparable:
            return False


@lru_cache(maxsize=_KNOWN_MAX)
def compiled(text: str) -> Sql:
    """The expression of a text.  Raises ExpressionInvalid, InvalidValue."""
    return Sql(text)


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
