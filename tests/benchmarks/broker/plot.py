"""The rates of a measurement as a PNG: bars, and curves of the scenario growth.

matplotlib is imported only when a plot is drawn.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

from tests.benchmarks.broker.document import Document
from tests.benchmarks.broker.figures import Figure, point_of

_NOW: Final = "#0969da"
_EARLIER: Final = "#afb8c1"
_CURVES: Final = ("#0969da", "#bc4c00", "#1a7f37")
_INK: Final = "#1f2328"
_FAINT: Final = "#d0d7de"
_LOG_FROM: Final = 20.0
"""If the largest rate is this many times the smallest, the bars have a logarithmic axis."""
_NOT_BARS: Final = ("growth", "rates")
"""growth has curves, and the rates of "rates" are chosen, not measured."""
_INCHES_WIDE: Final = 9.5
_DPI: Final = 130


def bars_of(figures: Sequence[Figure]) -> list[Figure]:
    """The figures that are bars: measured rates of messages."""
    rates = [each for each in figures if each.figure == "rate" and each.unit == "msg/s"]
    return [each for each in rates if each.scenario not in _NOT_BARS]


def curves_of(figures: Sequence[Figure]) -> dict[str, list[tuple[float, float]]]:
    """The curves of growth, by name: points of a number and a rate, ascending."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for each in figures:
        point = point_of(each.case) if each.scenario == "growth" else None
        if point is not None and each.figure == "rate":
            curves.setdefault(point[0], []).append((point[1], each.value))
    return {name: sorted(points) for name, points in curves.items()}


def png(now: Document, earlier: Document | None) -> bytes:
    """Draw it; an empty panel is left out."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    bars, curves = bars_of(now.figures), curves_of(now.figures)
    heights = [1.0 + len(bars) * (0.5 if earlier else 0.36)] if bars else []
    heights += [3.6] if curves else []
    canvas = Canvas(figsize=(_INCHES_WIDE, sum(heights) + 0.9), layout="constrained")
    FigureCanvasAgg(canvas)
    canvas.suptitle("\n".join([now.title, now.caption[0]]), fontsize=10, color=_INK)
    if heights:
        panels = canvas.subplots(len(heights), squeeze=False, height_ratios=heights)[:, 0]
        if bars:
            _draw_bars(panels[0], bars, earlier)
        if curves:
            _draw_curves(panels[-1], curves, curves_of(earlier.figures) if earlier else {})
    buffer = io.BytesIO()
    canvas.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def _draw_bars(axes: Any, bars: Sequence[Figure], earlier: Document | None) -> None:
    old = {each.key: each for each in earlier.figures} if earlier else {}
    series = [("now", _NOW, dict(enumerate(bars)))]
    if earlier:
        there = {row: old[each.key] for row, each in enumerate(bars) if each.key in old}
        series += [(f"earlier, rmqlite {earlier.version}", _EARLIER, there)] if there else []
    thick = 0.72 / len(series)
    for number, (label, colour, by_row) in enumerate(series):
        shift = (number - (len(series) - 1) / 2) * thick
        values = [each.value for each in by_row.values()]
        below = [each.value - each.lowest for each in by_row.values()]
        above = [each.highest - each.value for each in by_row.values()]
        axes.barh(
            [row + shift for row in by_row],
            values,
            thick * 0.92,
            color=colour,
            label=label,
            xerr=[below, above],
            error_kw={"elinewidth": 1.0, "capsize": 2, "ecolor": _INK},
        )
        for row, each in by_row.items():
            at = (each.highest, row + shift)
            axes.annotate(
                f"{each.value:,.0f}",
                at,
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=_INK,
            )
    axes.set_yticks(range(len(bars)), [f"{each.scenario}: {each.case}" for each in bars])
    # The first case is at the top; a single bar is not thicker than others.
    middle, half = (len(bars) - 1) / 2, max(len(bars), 3) / 2
    axes.set_ylim(middle + half, middle - half)
    shown = [each for _, _, by_row in series for each in by_row.values() if each.value > 0]
    if shown and max(e.value for e in shown) >= _LOG_FROM * min(e.value for e in shown):
        axes.set_xscale("log")
        axes.set_xlim(min(e.lowest for e in shown) / 2, max(e.highest for e in shown) * 3)
    else:
        axes.set_xlim(0, max([e.highest for e in shown], default=1.0) * 1.15)
    axes.set_xlabel(
        "messages per second; the thin lines go from the lowest to the highest run", fontsize=9
    )
    if len(series) > 1:
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, fontsize=8)
    _tidy(axes, "x")


def _draw_curves(
    axes: Any,
    curves: dict[str, list[tuple[float, float]]],
    earlier: dict[str, list[tuple[float, float]]],
) -> None:
    nouns = list(dict.fromkeys([name.partition(", ")[2] for name in curves]))
    for name, points in curves.items():
        what, _, noun = name.partition(", ")
        colour = _CURVES[nouns.index(noun) % len(_CURVES)]
        style = "-" if what == "sends" else "--"
        if name in earlier:
            axes.plot(*zip(*earlier[name], strict=True), style, color=colour, lw=1, alpha=0.35)
        axes.plot(
            *zip(*points, strict=True), style, marker="o", ms=4, color=colour, lw=1.6, label=name
        )
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("number of topics, of GB of log, or of consumers that wait", fontsize=9)
    axes.set_ylabel("messages per second", fontsize=9)
    title = "growth" + (": the pale lines are the earlier run" if earlier else "")
    axes.set_title(title, fontsize=9, loc="left", color=_INK)
    axes.legend(
        loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=4, frameon=False, fontsize=8
    )
    _tidy(axes, "both")


def _tidy(axes: Any, grid: str) -> None:
    from matplotlib.ticker import FuncFormatter

    value_axes = [axes.xaxis] if grid == "x" else [axes.xaxis, axes.yaxis]
    for each in value_axes:
        each.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(axis=grid, color=_FAINT, lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8, colors=_INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
