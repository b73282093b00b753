"""The tables of one message: its life hop by hop, and one of its records in full."""

from __future__ import annotations

import textwrap
from typing import Final

from rmqlite.cli.output.message_text import times_text, where_text
from rmqlite.cli.output.spans import instant_text
from rmqlite.cli.output.terminal import printable, time_text
from rmqlite.cli.retry.life_text import Around, Events, outcome, place_text
from rmqlite.cli.top.grid import Column, Line, Part, Row, Table, cell, row
from rmqlite.cli.top.screens.body_view import body_lines
from rmqlite.compression import readable_message
from rmqlite.message import StoredMessage
from rmqlite.requests.dead_letters import EventKind, History, HistoryEvent

_WHAT_LEAST: Final = 64
_WHERE_LEAST: Final = 24
_HOPS: Final = (
    Column("TIME"),
    Column("WHAT", is_short=True, least=_WHAT_LEAST),
    Column("WHERE", is_short=True, rank=1, least=_WHERE_LEAST),
)
_TONES: Final = {
    EventKind.FAILED: "warn",
    EventKind.DEAD: "bad",
    EventKind.UNDELIVERABLE: "bad",
    EventKind.REDRIVEN: "good",
    EventKind.CANCELLED: "dim",
}


def hops_table(life: History | None, why_not: str, now_ms: int) -> Table:
    """The table of a life; why_not: the text shown while there is no life."""
    if life is None:
        return Table("life", _HOPS, (), why_not)
    count = "1 hop" if len(life.hops) == 1 else f"{len(life.hops):,} hops"
    cut = ", older ones are left out" if life.is_cut else ""
    events = Events(life)
    rows = [each for n, hop in enumerate(life.hops) for each in _hop_rows(n, hop, events, now_ms)]
    empty = "no record of this message is kept"
    return Table(f"life: {count}{cut}", _HOPS, tuple(rows), empty)


def _hop_rows(number: int, hop: HistoryEvent, events: Events, now_ms: int) -> list[Row]:
    """A row for each sentence about a hop; hop_of() finds the hop of any of them."""
    tone = _TONES.get(hop.kind, "")
    first, *more = events.sentences(hop)
    about = [instant_text(hop.at_ms, now_ms), cell(first, tone), cell(place_text(hop), "dim")]
    rows = [row(str(number), *about)]
    for n, sentence in enumerate(more, 1):
        rows.append(row(f"{number}.{n}", "", cell(sentence, tone), ""))
    return rows


def hop_of(life: History, key: str) -> HistoryEvent:
    """The hop of a table's row."""
    return life.hops[int(key.partition(".")[0])]


def outcome_lines(life: History | None, around: Around, width: int) -> list[Line]:
    """What the message waits for, or how it ended."""
    sentences = outcome(life, around) if life else ()
    lines = [line for each in sentences for line in textwrap.wrap(printable(each), max(1, width))]
    return [(Part(line, "head"),) for line in lines]


def message_lines(message: StoredMessage, form: str) -> list[Line]:
    """Every field, every property, and the body; not wrapped."""
    fields = [
        ("where", where_text(message)),
        ("message id", message.message_id),
        ("offset id", message.offset_message_id),
        ("stored", f"{time_text(message.store_timestamp_ms)} at {message.store_host}"),
        ("born", f"{time_text(message.born_timestamp_ms)} at {message.born_host}"),
        ("record", f"{message.store_size:,} bytes at {message.physical_offset}"),
        ("failed", times_text(message.reconsume_times)),
    ]
    plain, note = readable_message(message)
    shown, *rest = body_lines(plain.body, form, note)
    return [
        *_aligned(fields),
        (),
        (Part("properties", "head"),),
        *_aligned(sorted(message.properties.items())),
        (),
        (Part(shown, "head"),),
        *[(Part(line),) for line in rest],
    ]


def _aligned(fields: list[tuple[str, str]]) -> list[Line]:
    names = [printable(name) for name, _ in fields]
    width = max([len(name) for name in names], default=0)
    return [
        (Part(f"{name:<{width}}  ", "dim"), Part(printable(value)))
        for name, (_, value) in zip(names, fields, strict=True)
    ]
