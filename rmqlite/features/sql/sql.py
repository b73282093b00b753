"""The filters of consumers that are SQL92 expressions over properties.

An expression is compiled once and asked for each message.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rmqlite.features.sql.sql_evaluation import Incomparable, evaluation
from rmqlite.features.sql.sql_parser import FIELD, parse
from rmqlite.features.sql.sql_tree import Value
from rmqlite.kernel.words.limits import SQL_BYTES_MAX, check_length

_KNOWN_MAX: Final = 128
"""Compiled expressions that are remembered; one of the greatest length takes about 200 KiB."""


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
