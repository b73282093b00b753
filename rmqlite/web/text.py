"""Writes values on a page: numbers, times, lengths, and texts of strangers.

Every template passes each value through visible() first, so that no control character of a
message reaches a browser; then the template escapes the value for HTML.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from markupsafe import Markup

from rmqlite.kernel.words.clock import zone_text
from rmqlite.kernel.words.limits import NOTE_CHARS_MAX
from rmqlite.kernel.words.visible import printable
from rmqlite.views.counts import counted, rate_text, share_text, size_text
from rmqlite.views.failed_messages import origin_text
from rmqlite.views.levels import delay_cell, level_text
from rmqlite.views.tables import Subject
from rmqlite.views.times import age_text, delay_text, second_text, span_text, time_text, until_text

_SHORT_CHARS: Final = 160
_OPEN: Final = {"view": "open"}
_LEADS: Final[Mapping[Subject, tuple[str, tuple[str, ...], Mapping[str, str]]]] = {
    Subject.LEVELS: ("/schedule", ("level",), {}),
    Subject.DEAD_LETTERS: ("/dead/letters", ("group",), _OPEN),
    Subject.REASONS: ("/dead/letters", ("group", "kind"), _OPEN),
    Subject.UNDELIVERABLE: ("/dead/letters", ("group",), _OPEN),
    Subject.GROUPS: ("/group", ("name",), {}),
    Subject.RETRIES: ("/retries", ("group",), {}),
    Subject.REDRIVE: ("/job", ("id",), {}),
    Subject.BULK: ("/job/bulk", ("id",), {}),
}
"""The page, and its fields, where a thing is looked at closer."""


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


def moment(timestamp_ms: int) -> Markup | str:
    """A moment to the second, with milliseconds and time zone in a tooltip; - for 0: never."""
    if not timestamp_ms:
        return "-"
    title = f"{time_text(timestamp_ms)} {zone_text(timestamp_ms)}"
    return Markup('<time title="{}">{}</time>').format(title, second_text(timestamp_ms))


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


def lead(subject: Subject | None, *names: str) -> Markup | None:
    """A link to the page where a thing is looked at closer; None for a thing without one."""
    if subject is None or subject not in _LEADS:
        return None
    path, fields, more = _LEADS[subject]
    return url(path, dict(zip(fields, names, strict=True)), **more)


FILTERS: Final = {
    each.__name__.removesuffix("_text"): each
    for each in (plain, short, moment, quoted, second_text, span_text, size_text)
}
GLOBALS: Final = {
    each.__name__: each
    for each in (
        url,
        lead,
        zone_text,
        until_text,
        age_text,
        delay_text,
        counted,
        rate_text,
        share_text,
        level_text,
        delay_cell,
        origin_text,
    )
} | {"note_chars_max": NOTE_CHARS_MAX}
