"""Writes values on a page: numbers, times, lengths, and texts of strangers.

Every template passes each value through visible() first, so that no control character of a
message reaches a browser; then the template escapes the value for HTML.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from markupsafe import Markup

from rmqlite.clock import local_text, zone_text
from rmqlite.views.levels import delay_text, level_text
from rmqlite.visible import printable

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_SHORT_CHARS: Final = 160


def visible(value: Any) -> Any:
    """A value as a template writes it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, Markup) else printable(str(value))


def plain(value: object) -> Markup:
    """A value for an attribute: a number has no commas, a text stays as it is."""
    return Markup("{}").format(str(value))


def short(text: str, chars: int = _SHORT_CHARS) -> str:
    """The beginning of a text, cut to so many characters, for a table."""
    return text if len(text) <= chars else text[: chars - 1] + "…"


def lines(text: str) -> Markup:
    """A text that keeps its lines and tabs; other control characters become visible."""
    shown = "\n".join(
        [
            "\t".join(map(printable, line.split("\t")))
            for line in text.replace("\r\n", "\n").split("\n")
        ]
    )
    return Markup("{}").format(shown)


def clock_time(timestamp_ms: int) -> str:
    """A time of the broker's clock, to the second; - for 0, which means never."""
    return local_text(timestamp_ms).partition(".")[0] if timestamp_ms else "-"


def moment(timestamp_ms: int) -> Markup | str:
    """Like clock_time(), with the milliseconds and the time zone in a tooltip."""
    if not timestamp_ms:
        return "-"
    whole = local_text(timestamp_ms)
    title = f"{whole} {zone_text(timestamp_ms)}"
    return Markup('<time title="{}">{}</time>').format(title, whole.partition(".")[0])


def span(length_ms: float) -> str:
    """A length of time in its two largest units: "2h 5m", "850 ms"."""
    left_ms = int(length_ms)
    if left_ms < 0:
        return f"-{span(-left_ms)}"
    if left_ms < 1_000:
        return f"{left_ms} ms"
    parts: list[str] = []
    for unit, unit_ms in _UNITS:
        amount, left_ms = divmod(left_ms, unit_ms)
        if amount or parts:
            parts.append(f"{amount}{unit}")
        if len(parts) == 2:
            break
    return " ".join([part for part in parts if part[0] != "0"])


def until(timestamp_ms: int, now_ms: int) -> str:
    """The time until a deliver time: "in 2h 5m", "now", "3s late"; - for 0."""
    if not timestamp_ms:
        return "-"
    wait_ms = timestamp_ms - now_ms
    if wait_ms > 0:
        return f"in {span(wait_ms)}"
    return f"{span(-wait_ms)} late" if wait_ms <= -1_000 else "now"


def ago(timestamp_ms: int, now_ms: int) -> str:
    """The time since an instant: "2h 5m ago"; - for 0."""
    if not timestamp_ms:
        return "-"
    return f"{span(now_ms - timestamp_ms)} ago" if now_ms - timestamp_ms >= 1_000 else "just now"


def size(count: float) -> str:
    """Bytes in the largest unit that gives at least 1: "1.5 MiB"."""
    for unit in _SIZES[:-1]:
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} {_SIZES[-1]}"


def rate(per_second: float) -> str:
    """Messages per second; a rate below 10 has one decimal."""
    return f"{per_second:,.1f}" if 0 < per_second < 10 else f"{per_second:,.0f}"


def percent(part: float, whole: float = 1) -> str:
    """A share; never 100% if part is less than whole."""
    if not whole:
        return "-"
    return f"{min(99.9, 100 * part / whole) if part < whole else 100:.1f}%"


def quoted(text: str) -> Markup:
    """An id for a form's field: characters that a browser would change become %0d and the like."""
    return Markup("{}").format(quote(text, safe="", errors="surrogatepass"))


def url(path: str, values: Mapping[str, object] | None = None, **more: object) -> Markup:
    """A link to a page of ours; values are quoted, empty ones are left out, tuples repeated."""
    pairs = [
        (name, str(each))
        for name, value in {**(values or {}), **more}.items()
        for each in (value if isinstance(value, tuple) else (value,))
    ]
    query = urlencode([pair for pair in pairs if pair[1]], errors="surrogatepass")
    return Markup("{}").format(f"{path}?{query}" if query else path)


FILTERS: Final = {
    each.__name__: each
    for each in (plain, short, lines, clock_time, moment, span, size, rate, quoted, level_text)
}
GLOBALS: Final = {
    each.__name__: each for each in (until, ago, percent, url, level_text, delay_text, zone_text)
}
