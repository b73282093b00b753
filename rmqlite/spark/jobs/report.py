"""Makes reports: each is one HTML page with plots, which needs no other file.

Each plot is drawn twice, for a light and for a dark page; the browser chooses one.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator, SymmetricalLogLocator

from rmqlite.clock import local_text

Row = Mapping[str, Any]
Plot = Callable[[Axes, "Look"], None]

_INCHES: Final = (9.0, 3.6)
_DPI: Final = 130
_SERIES_MAX: Final = 8
"""Nobody can distinguish more lines or colours; further values share one."""
_ROWS_MAX: Final = 2_000
"""The most rows of a table on a page."""
_MARKS: Final = (1, 2, 5)
_BARS_MAX: Final = 120
_TICKS_MAX: Final = 9
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_STEPS_MS: Final = tuple(
    60_000 * n for n in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080, 43200)
)
"""The possible distances between two marks of a time axis."""


@dataclass(frozen=True, slots=True)
class Look:
    """The colours of a page."""

    ground: str
    ink: str
    faint: str
    map: str


_LIGHT: Final = Look("#ffffff", "#1f2328", "#d0d7de", "viridis_r")
_DARK: Final = Look("#0d1117", "#e6edf3", "#30363d", "viridis")


@dataclass(frozen=True, slots=True)
class Page:
    """A report: a page that needs no other file, and its light plots as a PNG."""

    html: str
    png: bytes


def lateness_report(
    snapshot: str, late_ms: int, tables: Mapping[str, Sequence[Row]], counts: Sequence[Row]
) -> Page:
    """The report of rmqlite.spark.jobs.lateness.  tables: by the names that its command uses."""
    by_hour, levels = tables["levels_and_hours"], tables["levels"]
    busiest = sorted(levels, key=lambda row: -row["messages"])[:_SERIES_MAX]
    shown = sorted(row["level"] for row in busiest)

    def over_time(axes: Axes, look: Look) -> None:
        for level, colour in zip(shown, _colours(look, len(shown)), strict=True):
            mine = [row for row in by_hour if row["level"] == level]
            hours = [row["hour_ms"] for row in mine]
            axes.plot(hours, [row["p99_ms"] for row in mine], "o-", color=colour, ms=4, lw=1.6)
            axes.plot(hours, [row["p50_ms"] for row in mine], ".:", color=colour, lw=1.4)
        axes.axhline(late_ms, color=look.ink, lw=0.8, ls="--")
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(*_late_limits(levels))
        axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1, subs=_MARKS))
        axes.yaxis.set_major_formatter(FuncFormatter(_whole))
        axes.set_ylabel("ms late")
        _time_axis(axes, [row["hour_ms"] for row in by_hour], _HOUR_MS)

    def distribution(axes: Axes, look: Look) -> None:
        for level, colour in zip(shown, _colours(look, len(shown)), strict=True):
            late, shares = _cumulated([row for row in counts if row["level"] == level])
            name = "timer" if level < 0 else str(level)
            axes.step(late, shares, where="post", color=colour, lw=1.6, label=name)
        axes.axvline(late_ms, color=look.ink, lw=0.8, ls="--")
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(*_late_limits(levels))
        axes.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1, subs=_MARKS))
        axes.set_xlabel("ms late")
        axes.set_ylabel("share of messages")
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
        axes.xaxis.set_major_formatter(FuncFormatter(_whole))
        _legend(axes, look, "level")

    columns = ("messages", "p50_ms", "p90_ms", "p99_ms", "max_ms", "late_share", "early")
    rest = len(levels) - len(shown)
    only = f" The {len(shown)} levels with most messages." if rest else ""
    return _page(
        "Lateness of scheduled deliveries",
        snapshot,
        [
            (f"Per level over time: p99 (lines) and p50 (dotted).{only}", over_time),
            (f"Distribution; the dashed line is {late_ms} ms", distribution),
        ],
        [
            ("Per level", ("level", *columns), levels),
            ("Per level and hour", ("level", "hour_ms", *columns), by_hour),
        ],
    )


def forecast_report(
    snapshot: str, rows: Sequence[Row], *, now_ms: int, span_ms: int, bucket_ms: int
) -> Page:
    """The report of rmqlite.spark.jobs.forecast; rows: its table."""
    due = [row for row in rows if row["state"] == "due"]

    def stacked(column: str) -> Plot:
        def draw(axes: Axes, look: Look) -> None:
            series = _series(due, column)
            bar_ms = bucket_ms * -(-span_ms // (bucket_ms * _BARS_MAX))
            heights = [0] * -(-span_ms // bar_ms)
            begins = [now_ms + n * bar_ms for n in range(len(heights))]
            for name, colour in zip(series, _colours(look, len(series)), strict=True):
                mine = [0] * len(heights)
                for row in series[name]:
                    mine[(row["due_timestamp_ms"] - now_ms) // bar_ms] += row["messages"]
                axes.bar(
                    begins, mine, bar_ms, heights, align="edge", color=colour, label=name, lw=0
                )
                heights = [one + other for one, other in zip(heights, mine, strict=True)]
            axes.set_ylabel(f"messages per {bar_ms / 1000:,g} s")
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
            _time_axis(axes, [now_ms, now_ms + span_ms], 0)
            _legend(axes, look, column.removeprefix("real_"))

        return draw

    columns = ("state", "due_timestamp_ms", "real_topic", "level", "messages")
    sums = _summed(rows, ("state", "real_topic", "level"))
    return _page(
        "What comes due",
        snapshot,
        [("By topic", stacked("real_topic")), ("By level", stacked("level"))],
        [
            ("By topic and level", ("state", "real_topic", "level", "messages"), sums),
            ("By bucket", columns, rows[:_ROWS_MAX]),
        ],
    )


def retries_report(snapshot: str, tables: Mapping[str, Sequence[Row]]) -> Page:
    """The report of rmqlite.spark.jobs.retries.  tables: by the names that its command uses."""
    sums: dict[int, list[int]] = {}
    names = ("succeeded", "in_hand", "failed")
    for row in tables["funnel"]:
        of_attempt = sums.setdefault(row["attempt"], [0] * len(names))
        for number, name in enumerate(names):
            of_attempt[number] += row[name]

    def bars(axes: Axes, look: Look) -> None:
        attempts = sorted(sums)
        below = [0] * len(attempts)
        for number, (name, colour) in enumerate(
            zip(names, ("#2da44e", look.faint, "#cf5b3c"), strict=True)
        ):
            mine = [sums[attempt][number] for attempt in attempts]
            axes.bar(attempts, mine, 0.7, below, color=colour, label=name.replace("_", " "))
            below = [one + other for one, other in zip(below, mine, strict=True)]
        axes.set_xlabel("retry")
        axes.set_ylabel("messages")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        _legend(axes, look, "what became of them")

    titles = {"groups": "Groups", "funnel": "Funnel", "reasons": "Reasons", "levels": "Levels"}
    return _page(
        "Retries",
        snapshot,
        [("Messages that reached a retry, and what became of them", bars)],
        [
            (title, tuple(tables[name][0]) if tables[name] else (), tables[name])
            for name, title in titles.items()
        ],
    )


# ---- plots


def _drawn(plots: Sequence[tuple[str, Plot]], look: Look) -> bytes:
    """All plots, one below the other, as a PNG."""
    width, height = _INCHES
    figure = Figure((width, height * len(plots)), facecolor=look.ground, layout="constrained")
    FigureCanvasAgg(figure)
    for number, (title, plot) in enumerate(plots, 1):
        axes = figure.add_subplot(len(plots), 1, number, facecolor=look.ground)
        plot(axes, look)
        axes.set_title(title, loc="left", color=look.ink, fontsize=10)
        axes.tick_params(colors=look.ink, labelsize=8)
        axes.xaxis.label.set_color(look.ink)
        axes.yaxis.label.set_color(look.ink)
        axes.grid(color=look.faint, lw=0.6)
        axes.set_axisbelow(True)
        for side, spine in axes.spines.items():
            spine.set_color(look.faint)
            spine.set_visible(side in ("left", "bottom"))
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=_DPI, facecolor=look.ground)
    return written.getvalue()


def _colours(look: Look, count: int) -> list[Any]:
    """Colours along the map, without those that are too near to the ground."""
    return [colormaps[look.map](0.25 + 0.7 * n / max(1, count - 1)) for n in range(count)]


def _cumulated(rows: Sequence[Row]) -> tuple[list[int], list[float]]:
    """Lateness ascending, and the share of messages that are at most so late."""
    by_ms: dict[int, int] = {}
    for row in rows:
        by_ms[row["late_ms"]] = by_ms.get(row["late_ms"], 0) + row["messages"]
    late = sorted(by_ms)
    sums = list(accumulate(by_ms[each] for each in late))
    # Begin at share 0, so that even a level that was never late has a line.
    return [late[0] - 1, *late], [0.0, *[each / sums[-1] for each in sums]]


def _series(rows: Sequence[Row], column: str) -> dict[str, list[Row]]:
    """The rows of each value with many messages; the other values share one series."""
    sums: dict[Any, int] = {}
    for row in rows:
        sums[row[column]] = sums.get(row[column], 0) + row["messages"]
    often = sorted(sums, key=lambda value: -sums[value])
    # An "others" with one value would hide its name for no reason.
    shown = often if len(often) <= _SERIES_MAX else often[: _SERIES_MAX - 1]
    named = {value: str(value) for value in sorted(shown)}
    found: dict[str, list[Row]] = {name: [] for name in named.values()}
    for row in rows:
        found.setdefault(named.get(row[column], "others"), []).append(row)
    return found


def _time_axis(axes: Axes, times_ms: Sequence[int], margin_ms: int) -> None:
    if not times_ms:
        return
    first_ms, last_ms = min(times_ms) - margin_ms, max(times_ms) + margin_ms
    axes.set_xlim(first_ms, max(last_ms, first_ms + 1))
    step_ms = next((n for n in _STEPS_MS if (last_ms - first_ms) / n <= _TICKS_MAX), _STEPS_MS[-1])
    axes.xaxis.set_major_locator(MultipleLocator(step_ms))
    clock = slice(5, 16) if last_ms - first_ms > _DAY_MS else slice(11, 16)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: local_text(int(at))[clock]))


def _late_limits(levels: Sequence[Row]) -> tuple[float, float]:
    """The limits of an axis: from 0, or from the earliest if a message was early, to the latest."""
    earliest = min([0, *[row["min_ms"] for row in levels]])
    latest = max([1, *[row["max_ms"] for row in levels]])
    return min(-0.2, 1.5 * earliest), 1.5 * latest


def _legend(axes: Axes, look: Look, title: str) -> None:
    """Put the legend beside the plot, because inside it would hide some of the plot."""
    if not axes.get_legend_handles_labels()[0]:
        return
    legend = axes.legend(
        frameon=False,
        labelcolor=look.ink,
        fontsize=8,
        title=title,
        title_fontsize=8,
        loc="upper left",
        bbox_to_anchor=(1, 1),
    )
    legend.get_title().set_color(look.ink)


def _whole(value: float, _: int | None) -> str:
    return f"{value:,.0f}"


# ---- pages

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1f2328; --ground: #fff; --faint: #d0d7de; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --ground: #0d1117; --faint: #30363d; }
}
body { color: var(--ink); background: var(--ground); font: 15px/1.5 system-ui, sans-serif;
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
img { max-width: 100%; height: auto; } .wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--faint);
  text-align: left; white-space: nowrap; }
th.n, td.n { text-align: right; }
"""


def _page(
    title: str,
    snapshot: str,
    plots: Sequence[tuple[str, Plot]],
    tables: Sequence[tuple[str, Sequence[str], Sequence[Row]]],
) -> Page:
    light, dark = _drawn(plots, _LIGHT), _drawn(plots, _DARK)
    alt = html.escape("; ".join(name for name, _ in plots))
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1><p>Read: {html.escape(snapshot)}</p><picture>",
        f'<source media="(prefers-color-scheme: dark)" srcset="{_data_url(dark)}">',
        f'<img alt="{alt}" src="{_data_url(light)}"></picture>',
    ]
    for name, columns, rows in tables:
        parts.append(f'<h2>{html.escape(name)}</h2><div class="wide">{_table(columns, rows)}</div>')
    parts.append("</body></html>\n")
    return Page("\n".join(parts), light)


def _data_url(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _table(columns: Sequence[str], rows: Sequence[Row]) -> str:
    if not rows:
        return "<p>Nothing.</p>"
    numeric = [type(rows[0][name]) in (int, float) and not _is_time(name) for name in columns]
    marks = [' class="n"' if each else "" for each in numeric]
    head = [
        f"<th{mark}>{html.escape(_head(name))}</th>"
        for name, mark in zip(columns, marks, strict=True)
    ]
    lines = [
        "".join(
            f"<td{mark}>{html.escape(_cell(name, row[name]))}</td>"
            for name, mark in zip(columns, marks, strict=True)
        )
        for row in rows
    ]
    return f"<table><tr>{''.join(head)}</tr>" + "".join(f"<tr>{x}</tr>" for x in lines) + "</table>"


def _is_time(name: str) -> bool:
    return name.endswith("timestamp_ms") or name == "hour_ms"


def _head(name: str) -> str:
    if _is_time(name):
        name = name.removesuffix("_ms").removesuffix("_timestamp")
    return name.removeprefix("real_").replace("_", " ")


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if _is_time(name):
        return local_text(value)[:16]
    if name.endswith(("share", "rate")):
        return f"{value:.2%}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _summed(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    sums: dict[tuple[Any, ...], int] = {}
    for row in rows:
        key = tuple(row[name] for name in names)
        sums[key] = sums.get(key, 0) + row["messages"]
    return [dict(zip(names, key, strict=True)) | {"messages": n} for key, n in sums.items()]
