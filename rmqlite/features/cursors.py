"""A list in pages: each has a cursor, a text that names the place at which the next page begins.

It is whole numbers with dots between them, such as "17.4"; lists of two directions or parts put a
letter in front, such as "n.17".  Clients hand it back as it is, so an older one must be read, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, Final, Protocol, TypeVar

from rmqlite.kernel.words.errors import InvalidValue

CURSOR_RULE: Final = "the cursor of the previous page, or empty"


class HasCursor(Protocol):
    """A dataclass: a query, or its answer."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def cursor(self) -> str: ...


Q = TypeVar("Q", bound=HasCursor)
P = TypeVar("P", bound=HasCursor)


def pages(ask: Callable[[Q], P], query: Q) -> Iterator[P]:
    """Every page from the query's cursor on, asked for when it is needed; at least one."""
    while True:
        page = ask(query)
        yield page
        if not page.cursor:
            return
        query = replace(query, cursor=page.cursor)


def cursor_text(*parts: str | int) -> str:
    return ".".join(map(str, parts))


def read_cursor(
    text: str,
    count: int,
    kind: str = "",
    *,
    signed: bool = False,
    digits_max: int = 19,
    rule: str = CURSOR_RULE,
) -> tuple[int, ...]:
    """The numbers of a cursor_text(), behind the letter if it has one.  Raises InvalidValue."""
    sign = "-?" if signed else ""
    number = f"{sign}[0-9]{{1,{digits_max}}}"
    begin = f"{kind}." if kind else ""
    if not re.fullmatch(rf"{re.escape(begin)}{number}(\.{number}){{{count - 1}}}", text):
        raise InvalidValue("cursor", text, rule)
    return tuple(map(int, text.removeprefix(begin).split(".")))
