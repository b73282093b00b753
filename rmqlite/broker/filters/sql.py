"""SQL92 expressions over properties, compiled once and asked for each message."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rmqlite.broker.filters.sql_evaluation import Incomparable, Pairs, evaluation
from rmqlite.broker.filters.sql_parser import FIELD, parse
from rmqlite.broker.filters.sql_tree import Value
from rmqlite.limits import SQL_BYTES_MAX, check_length
from rmqlite.property_string import pairs_of

_KNOWN_MAX: Final = 128
"""Compiled expressions that are remembered; one of the greatest length takes about 400 KiB."""


class Sql:
    """One expression.  work: roughly how many values it looks at for a message."""

    __slots__ = ("_evaluate", "work")

    def __init__(self, text: str) -> None:
        """Raises ExpressionInvalid, or InvalidValue for a text that is too long."""
        check_length(FIELD, text, SQL_BYTES_MAX)
        self._evaluate = evaluation(parse(text))
        self.work = 1 + len(text) // 8

    def answer(self, pairs: Pairs) -> Value:
        """True, False, or None for null.  Raises Incomparable."""
        return self._evaluate(pairs)

    def matches(self, properties: bytes) -> bool:
        """Does a message with this property string match?  Only if the answer is true."""
        try:
            return self._evaluate(pairs_of(properties)) is True
        except Incomparable:
            return False


@lru_cache(maxsize=_KNOWN_MAX)
def compiled(text: str) -> Sql:
    """The expression of a text.  Raises ExpressionInvalid, InvalidValue."""
    return Sql(text)
