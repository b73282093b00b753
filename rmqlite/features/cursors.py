"""A list in pages: each has a cursor, a text that names the place at which the next page begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeVar


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
