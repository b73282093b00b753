"""How one message reads: its life hop by hop, and one of its records in full."""

from __future__ import annotations

from typing import Final

from rmqlite.cli.message_text import where_text
from rmqlite.cli.status import span_text
from rmqlite.cli.terminal import printable, time_text
from rmqlite.cli.top.body_view import body_lines, body_of
from rmqlite.cli.top.grid import Column, Line, Part, Row, Table, cell, row
from rmqlite.cli.top.letters_view import moment
from rmqlite.letter_requests import Hop, HopKind, Life
from rmqlite.message import StoredMessage

_HOPS: Final = (
    Column("TIME"),
    Column("WHAT"),
    Column("WHERE", is_short=True),
    Column("TRY", right=True, rank=2),
    Column("ABOUT", is_short=True),
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
    cut = ", older hops are left out" if life.is_cut else ""
    return Table(
        f"life: {len(life.hops)} hops{cut}",
        _HOPS,
        tuple([_hop_row(n, hop, now_ms) for n, hop in enumerate(life.hops)]),
        "no record of this message is kept",
    )


def _hop_row(number: int, hop: Hop, now_ms: int) -> Row:
    return row(
        str(number),
        moment(hop.at_ms, now_ms),
        cell(hop.kind.name.lower(), _TONES.get(hop.kind, "")),
        f"{hop.topic}/{hop.queue_id}@{hop.queue_offset}",
        hop.attempt or "-",
        _about(hop, now_ms) or "-",
    )


def _about(hop: Hop, now_ms: int) -> str:
    about = []
    if hop.is_pending and hop.due_ms > now_ms:
        about.append(f"waits, due in {span_text(hop.due_ms - now_ms)}")
    elif hop.is_pending:
        about.append("waits, due now")
    elif hop.due_ms:
        about.append(f"due {moment(hop.due_ms, now_ms)}")
    if hop.group and hop.kind is not HopKind.SENT:
        about.append(f"group {hop.group}")
    if hop.job_id:
        about.append(f"job {hop.job_id}")
    if hop.reason:
        about.append(hop.reason)
    if hop.readers:
        about.append(f"read by {' '.join(hop.readers)}")
    return ", ".join(about)


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
