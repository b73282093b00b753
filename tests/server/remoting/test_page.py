"""The page about RocketMQ 4.x clients: its table of requests is the wire's own."""

from __future__ import annotations

import re
from pathlib import Path

import rmqlite.protocols.remoting
from rmqlite.protocols.remoting.bytes.requests import ANSWERED, NAMES, REFUSED
from rmqlite.protocols.remoting.bytes.requests.request import Party
from tests.support.documents import Page

PAGE = Page.read(Path(rmqlite.protocols.remoting.__file__).with_name("README.md"))


def state(asked: tuple[Party, ...]) -> str:
    if asked == (Party.CLIENT,):
        return "the broker asks a client"
    return "answered, by the client" if Party.CLIENT in asked else "answered"


def codes_in(cell: str) -> list[int]:
    """`10 to 12, 14 NAME`: each code that a cell lists."""
    codes: list[int] = []
    for first, last in re.findall(r"(?:^|, )(\d+)(?: to (\d+))?", cell):
        codes += range(int(first), int(last or first) + 1)
    return codes


def test_the_page_lists_every_request() -> None:
    """Whoever misses one sees why it is refused."""
    rows = PAGE.table_after("## Every request")
    listed = {code: state_of for state_of, cell, *_ in rows for code in codes_in(cell)}
    states = {code: state(row.asked) for code, row in ANSWERED.items()}
    states |= {code: f"code 3: {row.reason}" for code, row in REFUSED.items()}
    assert listed == states
    assert sum(len(codes_in(cell)) for _, cell, *_ in rows) == len(states), "each code once"


def test_the_page_names_each_request_by_its_own_name() -> None:
    """Whoever searches for a name finds it; all that are refused have theirs."""
    names = {**NAMES, **{code: row.name for code, row in REFUSED.items()}}
    cells = " ".join(cell for _, cell, *_ in PAGE.table_after("## Every request"))
    named = {int(code): name for code, name in re.findall(r"(\d+) ([A-Z]\w+)", cells)}
    assert named == {code: names[code] for code in named}
    assert {*REFUSED} <= {*named}
