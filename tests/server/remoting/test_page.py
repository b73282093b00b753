"""The page about RocketMQ 4.x clients: its table of requests is the wire's own."""

from __future__ import annotations

from pathlib import Path

import rmqlite.server.protocols.remoting
from rmqlite.wire.remoting.requests.request import Party
from rmqlite.wire.remoting.requests.table import ANSWERED, NAMES, REFUSED

PAGE = Path(rmqlite.server.protocols.remoting.__file__).with_name("README.md")


def state(asked: tuple[Party, ...]) -> str:
    if asked == (Party.CLIENT,):
        return "the broker asks a client"
    return "answered, by the client" if Party.CLIENT in asked else "answered"


def test_the_page_lists_every_request() -> None:
    """Whoever misses one sees why it is refused."""
    lines = {
        code: f"| {code} | {NAMES[code]} | {state(row.asked)} |" for code, row in ANSWERED.items()
    }
    lines |= {
        code: f"| {code} | {row.name} | code 3: {row.reason} |" for code, row in REFUSED.items()
    }
    listed = [line for line in PAGE.read_text("utf-8").splitlines() if line[2:3].isdigit()]
    assert listed == [lines[code] for code in sorted(lines)]
