"""The tables of one group: queues, members, retries and dead letters, and their filter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from rmqlite.cli.output.letter_text import reason_line
from rmqlite.cli.output.spans import instant_text, span_text
from rmqlite.cli.output.terminal import printable
from rmqlite.cli.top.grid import Column, Line, Part, Row, Table, cell, cut, row
from rmqlite.cli.top.picture import Picture
from rmqlite.cli.top.troubles import why
from rmqlite.errors import RmqliteError
from rmqlite.requests.dead_letters import (
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    DeadLetterPage,
    DeadLettersQuery,
    failure_kind,
)
from rmqlite.requests.groups import GroupStatus

PAGE_LETTERS: Final = 100
LOADED_MAX: Final = 2_000
"""The most letters loaded of a list; a filter finds the others."""
_DAY_MS: Final = 86_400_000
_FIELDS: Final = ("topic", "tag", "key")
FILTER_HELP: Final = "topic=T tag=T key=K id=ID kind=KIND, other words: part of the reason"
_REASON_LEAST: Final = 30
"""The width of a reason that is more useful than a key or a tag."""

_QUEUES: Final = (
    Column("TOPIC", is_short=True),
    Column("QUEUE", right=True),
    Column("COMMITTED", right=True),
    Column("MAX", right=True),
    Column("LAG", right=True),
    Column("READ BY", is_short=True, rank=1),
)
_MEMBERS: Final = (
    Column("CLIENT", is_short=True),
    Column("SUBSCRIBES TO", is_short=True),
    Column("LAST SEEN"),
)
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
    parts = [Part(printable(group), "head")]
    members = "member" if figures.members == 1 else "members"
    for count, before, after, tone in (
        (figures.lag, "lag ", "", ""),
        (figures.due, "due ", "", ""),
        (figures.members, "", f" {members}", "warn" if figures.members == 0 else ""),
        (figures.waiting, "retries ", "", ""),
        (figures.dead, "dead ", "", "warn" if figures.dead else ""),
        (figures.new_dead or None, "new ", "", "bad"),
    ):
        if count is not None:
            parts.append(Part(f"  {before}{count:,}{after}", tone))
    if status is not None:
        policy = printable(status.info.retry_policy)
        parts.append(Part(f"  at most {status.info.max_reconsume_times} retries {policy}", "dim"))
    return cut(tuple(parts), width)


def reasons_line(dead: DeadLetterGroup | None, width: int) -> Line:
    """The reasons of dead letters, the most frequent first."""
    if dead is None or not dead.reasons:
        return ()
    parts = [Part("reasons", "dim")]
    for each in dead.reasons:
        parts.append(Part(f"  {each.count:,} "))
        parts.append(Part(printable(each.reason) or "(none given)"))
    if dead.rest_letters:
        parts.append(Part(f"  {dead.rest_letters:,} others"))
    return cut(tuple(parts), width)


def queues_table(status: GroupStatus | None) -> Table:
    progress = status.progress if status else ()
    return Table(
        f"queues: {len(progress)}",
        _QUEUES,
        tuple(
            [
                row(
                    f"{each.queue.topic}/{each.queue.queue_id}",
                    each.queue.topic,
                    each.queue.queue_id,
                    each.committed_offset,
                    each.max_offset,
                    cell(each.lag, "" if each.lag else "dim"),
                    each.client_id or "-",
                )
                for each in progress
            ]
        ),
        "no progress yet",
    )


def members_table(status: GroupStatus | None, now_ms: int) -> Table:
    members = status.members if status else ()
    return Table(
        f"members: {len(members)}",
        _MEMBERS,
        tuple(
            [
                row(
                    each.client_id,
                    each.client_id,
                    ", ".join(map(str, each.subscriptions)),
                    f"{span_text(max(0, now_ms - each.last_seen_ms))} ago",
                )
                for each in members
            ]
        ),
        "no members",
    )


def retries_table(loaded: Loaded, retries_max: int | None, now_ms: int, wanted: str) -> Table:
    """Due retries first, then waiting ones in due order."""
    rows = [_retry_row(each, retries_max, now_ms) for each in loaded.letters]
    return Table(
        _title("retries", loaded, wanted, "in due order"), _RETRIES, tuple(rows), _empty(loaded)
    )


def dead_table(loaded: Loaded, now_ms: int, wanted: str, *, newest_first: bool) -> Table:
    rows = [_dead_row(each, now_ms) for each in loaded.letters]
    order = "the newest first" if newest_first else "the oldest first"
    title = _title("dead letters", loaded, wanted, order)
    return Table(title, _DEAD, tuple(rows), _empty(loaded))


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


def _retry_row(letter: DeadLetter, retries_max: int | None, now_ms: int) -> Row:
    wait_ms = letter.due_ms - now_ms
    next_at = f"in {span_text(wait_ms)}" if wait_ms > 0 else "due"
    limit = retries_max if letter.max_reconsume_times is None else letter.max_reconsume_times
    # The first delivery was an attempt, too.
    of = "" if limit is None else f" of {limit + 1}"
    return row(
        letter_key(letter),
        next_at,
        f"{letter.delivery_attempts + 1}{of}",
        letter.origin_topic or "-",
        " ".join(letter.keys) or "-",
        letter.tags or "-",
        reason_line(letter.reason) if letter.reason else "-",
    )


def _dead_row(letter: DeadLetter, now_ms: int) -> Row:
    tone = "dim" if letter.redriven_by else ""
    return Row(
        letter_key(letter),
        tuple(
            [
                cell(value, tone)
                for value in (
                    instant_text(letter.last_failure_ms, now_ms),
                    letter.delivery_attempts,
                    letter.origin_topic or "-",
                    " ".join(letter.keys) or "-",
                    letter.tags or "-",
                    reason_line(letter.reason) if letter.reason else "-",
                    letter.redriven_by or "-",
                )
            ]
        ),
    )
