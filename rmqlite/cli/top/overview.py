"""The parts of the overview beside its tables: header, troubles and rates.

Everything is computed from a Picture and a moment, so a screen and a file show the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.cli.output.grid import Line, cut, spread
from rmqlite.cli.output.terminal import printable, shortened, time_text
from rmqlite.cli.status import Picture
from rmqlite.views.counts import COUNTED, rate_text, size_text
from rmqlite.views.tables import BAD, Tone
from rmqlite.views.times import span_text

_NAME_MAX: Final = 24
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"


def header(picture: Picture, endpoint: str, now_s: float, width: int) -> Line:
    """The broker's name, its uptime and its clock."""
    name: Line = (Tone("rmqlite top  ", "head"),)
    status = picture.status
    if status is None:
        return cut((*name, Tone(printable(endpoint))), width)
    now_ms = picture.now_ms(now_s)
    broker = shortened(printable(status.broker_name), _NAME_MAX)
    words = [
        f"{broker} {printable(status.version)}",
        f"up {span_text((now_ms - status.started_at_ms) // 1000 * 1000)}",
        f"{printable(endpoint)}",
    ]
    disk_tone = "bad" if status.is_disk_full else ""
    disk = Tone(f"  disk {status.disk_used_ratio:.0%}", disk_tone)
    archives = [
        Tone(f"  archive {size_text(each.behind_bytes)} behind", "bad" if each.trouble else "")
        for each in status.archives
    ]
    line = (*name, Tone("  ".join(words)), disk, *archives)
    return spread(line, (Tone(time_text(now_ms)[11:19], "dim"),), width)


def verdict(
    picture: Picture,
    now_s: float,
    waiting_since_s: float,
    *,
    is_paused: bool,
    width: int,
    lines: int = 1,
) -> list[Line]:
    """The troubles in at most this many lines, the worst first; the last line has all the rest."""
    end: Line = ()
    if is_paused:
        end = (Tone(f"PAUSED, {span_text(int(picture.age_s(now_s)) * 1000)} old", "warn"),)
    connection = picture.connection_trouble(now_s, waiting_since_s)
    found = [connection] if connection else []
    found += picture.troubles()
    parts = [Tone(f"{_mark(each)} {each.text}", each.tone) for each in found]
    if not parts:
        is_known = picture.status is not None
        parts = [Tone("● well", "good") if is_known else Tone("… asking", "dim")]
    first = [(each,) for each in parts[: lines - 1]]
    rest = tuple([part for each in parts[lines - 1 :] for part in (each, Tone("  "))])
    shown = [*first, rest] if rest else first
    return [spread(shown[0], end, width), *[cut(line, width) for line in shown[1:]]]


def _mark(trouble: Tone) -> str:
    return "✖" if trouble.tone == BAD else "▲"


def rate_lines(picture: Picture, width: int, height: int) -> list[Line]:
    """The rates per second, each with a chart of its last minutes."""
    size = max(12, (width - 2 * (len(COUNTED) - 1)) // len(COUNTED))
    lines: list[list[Tone]] = [[] for _ in range(height + 1)]
    for name in COUNTED:
        tone = "bad" if name == "dead" and picture.rates.now(name) else ""
        label, rate = f"{name}/s ".upper(), rate_text(picture.rates.now(name))
        gap = Tone("  " if lines[0] else "")
        rest = max(0, size - len(label) - len(rate))
        lines[0] += [gap, Tone(label, "dim"), Tone(rate + " " * rest, tone or "head")]
        for line, text in zip(
            lines[1:], chart(picture.rates.history[name], size, height), strict=True
        ):
            line += [gap, Tone(text, tone or "line")]
    return [cut(tuple(line), width) for line in lines]


def chart(rates: Iterable[float | None], width: int, height: int) -> list[str]:
    """The last rates as blocks, from the top down; the highest takes the whole height.

    A step without a rate is blank, one without messages a thin line.
    """
    shown = list(rates)[-width:] if width > 0 else []
    most = max([each for each in shown if each is not None], default=0.0)
    eighths = [_eighths(each, most, height) for each in shown]
    return [
        "".join([_BLOCKS[max(0, min(8, each - 8 * line))] for each in eighths]).rjust(width)
        for line in reversed(range(height))
    ]


def _eighths(rate: float | None, most: float, height: int) -> int:
    if rate is None:
        return 0
    if rate <= 0:
        return 1
    # Any rate above 0 differs from the line of 0.
    return max(2, int(rate / most * 8 * height))
