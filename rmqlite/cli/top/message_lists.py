"""The lists of one group: its retries and dead letters, page by page, and their filter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from rmqlite.cli.output.grid import Line, cut
from rmqlite.cli.output.terminal import printable
from rmqlite.cli.status import Picture, why
from rmqlite.client import (
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    DeadLetterPage,
    DeadLettersQuery,
)
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.kernel.words.reasons import failure_kind
from rmqlite.views.counts import counted
from rmqlite.views.failed_messages import attempt_text, origin_text, reason_line
from rmqlite.views.tables import DIM, NOTHING, Column, Table, Tone, cell, row, table
from rmqlite.views.times import instant_text, span_text, until_text

PAGE_LETTERS: Final = 100
LOADED_MAX: Final = 2_000
"""The most letters loaded of a list; a filter finds the others."""
_FIELDS: Final = ("topic", "tag", "key")
FILTER_HELP: Final = "topic=T tag=T key=K id=ID kind=KIND, other words: part of the reason"
_REASON_LEAST: Final = 30
"""The width of a reason that is more useful than a key or a tag."""

_MESSAGE: Final = (
    Column("TOPIC", is_short=True),
    Column("KEYS", is_short=True, rank=3),
    Column("TAG", is_short=True, rank=4),
    Column("REASON", is_short=True, least=_REASON_LEAST),
)
_RETRIES: Final = (Column("NEXT"), Column("ATTEMPT", right=True), *_MESSAGE)
_DEAD: Final = (
    Column("DIED"),
    Column("TRIES", right=True),
    *_MESSAGE,
    Column("REDRIVEN", is_short=True, rank=5),
)


def filter_of(text: str) -> DeadLetterFilter:
    """The filter of a typed text: name=value for a field, other words are part of the reason.

    A kind of reasons has blanks: it is all that follows kind=.
    """
    text, _, kind = f" {text}".partition(" kind=")
    fields: dict[str, Any] = {"failure_kind": failure_kind(kind)} if kind.strip() else {}
    ids, reason = [], []
    for word in text.split():
        name, _, value = word.partition("=")
        if value and name in _FIELDS:
            fields[name] = value
        elif value and name == "id":
            ids.append(value)
        else:
            reason.append(word)
    return DeadLetterFilter(reason=" ".join(reason), ids=tuple(ids), **fields)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The letters of a list so far.

    query: the next page, None at the end.  at_s: the time of the first page, or of the last failed
    call; 0: not yet.  error: of the last call, empty after a success.
    """

    query: DeadLettersQuery | None
    letters: tuple[DeadLetter, ...] = ()
    looked_at: int = 0
    pages: int = 0
    at_s: float = 0.0
    error: str = ""

    def taken(self, page: DeadLetterPage, at_s: float) -> Loaded:
        """This list with one more page."""
        letters = self.letters + page.letters
        query = self.query
        if query is not None:
            query = replace(query, cursor=page.cursor) if page.cursor else None
        looked_at = self.looked_at + page.looked_at
        return Loaded(query, letters, looked_at, self.pages + 1, self.at_s or at_s)

    def failed(self, error: RmqliteError, at_s: float) -> Loaded:
        return replace(self, error=why(error), at_s=at_s)

    @property
    def is_full(self) -> bool:
        return len(self.letters) >= LOADED_MAX


def first_query(group: str, wanted: str, *, newest_first: bool) -> DeadLettersQuery:
    return DeadLettersQuery(
        group, filter_of(wanted), newest_first=newest_first, max_letters=PAGE_LETTERS
    )


def group_line(picture: Picture, group: str, width: int) -> Line:
    """The group in one line."""
    figures = picture.figures(group)
    status = picture.described.get(group)
    parts = [Tone(printable(group), "head")]
    for count, name, tone in (
        (figures.lag, "lag", "bad" if figures.is_silent else ""),
        (figures.due, "due", ""),
        (figures.members, "", "warn" if figures.members == 0 else ""),
        (figures.waiting, "retries", ""),
        (figures.dead, "dead", "warn" if figures.dead else ""),
        (figures.new_dead or None, "new", "bad"),
    ):
        if count is not None:
            text = f"{name} {count:,}" if name else counted(count, "member")
            parts.append(Tone(f"  {text}", tone))
    if figures.oldest_ms:
        parts.insert(2, Tone(f"  oldest {span_text(figures.oldest_ms)}", parts[1].tone))
    if status is not None:
        policy = printable(status.info.retry_policy)
        parts.append(
            Tone(f"  at most {counted(status.info.max_reconsume_times, 'retry')} {policy}", "dim")
        )
    return cut(tuple(parts), width)


def reasons_line(dead: DeadLetterGroup | None, width: int) -> Line:
    """The reasons of dead letters, the most frequent first."""
    if dead is None or not dead.reasons:
        return ()
    parts = [Tone("reasons", "dim")]
    for each in dead.reasons:
        parts.append(Tone(f"  {each.count:,} "))
        parts.append(Tone(printable(each.reason) or "(none given)"))
    if dead.rest_letters:
        parts.append(Tone(f"  {dead.rest_letters:,} others"))
    return cut(tuple(parts), width)


def retries_table(loaded: Loaded, of_group: int | None, now_ms: int, wanted: str) -> Table:
    """Due retries first, then waiting ones in due order; of_group: attempts before one is dead."""
    rows = [
        row(
            letter_key(each),
            until_text(each.due_ms, now_ms) if each.due_ms > now_ms else "due",
            attempt_text(each, of_group),
            *_about(each),
        )
        for each in loaded.letters
    ]
    return table(_title("retries", loaded, wanted, "in due order"), _RETRIES, rows, _empty(loaded))


def dead_table(loaded: Loaded, now_ms: int, wanted: str, *, newest_first: bool) -> Table:
    rows = []
    for each in loaded.letters:
        died = instant_text(each.last_failure_ms, now_ms)
        values = (died, each.delivery_attempts, *_about(each), each.redriven_by or NOTHING)
        tone = DIM if each.redriven_by else ""
        rows.append(row(letter_key(each), *[cell(value, tone) for value in values]))
    order = "the newest first" if newest_first else "the oldest first"
    return table(_title("dead letters", loaded, wanted, order), _DEAD, rows, _empty(loaded))


def _about(letter: DeadLetter) -> tuple[str, ...]:
    """The cells of _MESSAGE."""
    found = (origin_text(letter), " ".join(letter.keys), letter.tags)
    return (
        *[each or NOTHING for each in found],
        reason_line(letter.reason) if letter.reason else NOTHING,
    )


def letter_key(letter: DeadLetter) -> str:
    """The key by which a cursor finds a letter again."""
    return f"{letter.topic}/{letter.queue_id}/{letter.queue_offset}/{letter.physical_offset}"


def _title(what: str, loaded: Loaded, wanted: str, order: str) -> str:
    more = "" if loaded.query is None else " so far"
    about = f", filtered by {printable(wanted)!r}" if wanted else ""
    error = f", old: {loaded.error}" if loaded.error and loaded.letters else ""
    return f"{what}: {len(loaded.letters):,}{more}{about}, {order}{error}"


def _empty(loaded: Loaded) -> str:
    if loaded.error:
        return f"not known: {loaded.error}"
    if loaded.query is None:
        return "none"
    return f"looking, at {loaded.looked_at:,} so far" if loaded.looked_at else "asking"
