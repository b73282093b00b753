"""How one message reads: its life hop by hop, and one of its records in full."""

from __future__ import annotations

from typing import Final

from rmqlite.cli.message_text import where_text
from rmqlite.cli.retry.life_text import Around, Told, outcome, place_text
from rmqlite.cli.schedule.spans import instant_text
from rmqlite.cli.terminal import printable, time_text
from rmqlite.cli.top.body_view import body_lines, body_of
from rmqlite.cli.top.grid import Column, Line, Part, Row, Table, cell, row, wrapped
from rmqlite.letter_requests import Hop, HopKind, Life
from rmqlite.message import StoredMessage

_HOPS: Final = (
    Column("TIME"),
    Column("WHAT", is_short=True),
    Column("WHERE", is_short=True, rank=1),
)
_TONES: Final = {
    HopKind.FAILED: "warn",
    HopKind.DEAD: "bad",
    HopKind.UNDELIVERABLE: "bad",
    HopKind.REDRIVEN: "good",
    HopKind.CANCELLED: "dim",
}


def hops_table(life: Life | None, why_not: str, now_ms: int) -> Table:
    """The life; why_not: what stands there while it is not known."""
    if life is None:
        return Table("life", _HOPS, (), why_not)
    count = "1 hop" if len(life.hops) == 1 else f"{len(life.hops):,} hops"
    cut = ", older ones are left out" if life.is_cut else ""
    told = Told(life)
    return Table(
        f"life: {count}{cut}",
        _HOPS,
        tuple([_hop_row(n, hop, told, now_ms) for n, hop in enumerate(life.hops)]),
        "no record of this message is kept",
    )


def _hop_row(number: int, hop: Hop, told: Told, now_ms: int) -> Row:
    return row(
        str(number),
        instant_text(hop.at_ms, now_ms),
        cell("; ".join(told.sentences(hop)), _TONES.get(hop.kind, "")),
        cell(place_text(hop), "dim"),
    )


def outcome_lines(life: Life | None, around: Around, width: int) -> list[Line]:
    """What the message waits for, or how it ended."""
    sentences = outcome(life, around) if life else ()
    pieces = [piece for each in sentences for piece in wrapped(printable(each), width)]
    return [(Part(piece, "head"),) for piece in pieces]


def message_lines(message: StoredMessage, form: str) -> list[Line]:
    """Every field, every property, and the body; not wrapped."""
    fields = [
        ("where", where_text(message)),
        ("message id", message.message_id),
        ("offset id", message.offset_message_id),
        ("stored", f"{time_text(message.store_timestamp_ms)} at {message.store_host}"),
        ("born", f"{time_text(message.born_timestamp_ms)} at {message.born_host}"),
        ("record", f"{message.store_size:,} bytes at {message.physical_offset}"),
        ("failed", f"{message.reconsume_times} times"),
    ]
    shown, *rest = body_lines(body_of(message), form)
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
