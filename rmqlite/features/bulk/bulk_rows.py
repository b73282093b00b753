"""Turns a bulk call's columns into rows, and rows into records or refusals.

The rules are those of Message and of a send, in a form that is cheap for very many messages.
Duplicates are not found here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeVar

from rmqlite.features.bulk.requests import (
    COLUMNS,
    BulkMatch,
    BulkRequest,
    Refusal,
    check_property_text,
)
from rmqlite.features.rows import check_job_id
from rmqlite.kernel.admission import Room, TimerRules, check_sent_properties
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.routing import record_of
from rmqlite.kernel.sends.calls import check_messages
from rmqlite.kernel.words.errors import InvalidValue, MessageTooLarge, RmqliteError, Unavailable
from rmqlite.kernel.words.levels import LevelTable, check_not_long_ago, parse_delay
from rmqlite.kernel.words.limits import KEYS_MAX, MESSAGE_ID_BYTES_MAX, PROPERTIES_MAX
from rmqlite.kernel.words.message import (
    KEY_END,
    KEY_SEPARATOR,
    KEYS,
    PAIR_END,
    TAGS,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    Message,
)

_UNIQ_KEY: Final = f"{UNIQ_KEY}{KEY_END}"
_TAGS: Final = f"{PAIR_END}{TAGS}{KEY_END}"
_KEYS: Final = f"{KEYS}{KEY_END}"
_DELIVER_MS: Final = f"{PAIR_END}{TIMER_DELIVER_MS}{KEY_END}"
T = TypeVar("T")
When = tuple[int, str, int]
"""Delay level, delay, instant: at most one of them is set."""
QueueOf = Callable[[str], int]
"""The queue id for a topic.  Raises the error that refuses every message to it."""


class BulkWait(NamedTuple):
    """For what a message waits: a level of the table, or an instant; 0 and 0 for nothing."""

    level: int
    due_ms: int = 0


class BulkRow(NamedTuple):
    """A message that may be stored."""

    position: int
    body: bytes
    message_id: str
    topic: str
    tags: str
    keys: str
    properties: str
    wait: BulkWait
    queue_id: int


class Sender(NamedTuple):
    """The values that all messages of a call share."""

    cluster: str
    born_at_ms: int
    born_host: bytes
    store_host: bytes


def check_call(request: BulkRequest, config: BrokerConfig) -> None:
    """Raises InvalidValue, MessageTooLarge for the call as a whole, before any message."""
    count, refused = len(request.bodies), len(request.already_refused)
    most = config.bulk_messages_max
    check_messages("messages", count or refused, most, "maxBulkMessages")
    check_messages("already_refused", refused or count, most, "maxBulkMessages")
    for name in COLUMNS:
        length = len(getattr(request, name))
        needs_all = name in ("bodies", "message_ids")
        if length != count and (needs_all or length > 1 or not count):
            rule = "one for each message"
            rule += "" if needs_all else ", one for all of them, or none"
            raise InvalidValue(name, f"{length} of them", rule)
    total = sum(map(len, request.bodies))
    if total > config.send_bytes_max:
        rule = f"bodies of at most {config.send_bytes_max} bytes in one call (maxSendBytes)"
        raise MessageTooLarge("messages", total, rule)
    for name, most, end in (
        ("keys", KEYS_MAX, KEY_SEPARATOR),
        ("properties", PROPERTIES_MAX, PAIR_END),
    ):
        column = getattr(request, name)
        each = 1 if len(column) == count else count
        check_count(name, each * sum([text.count(end) + 1 for text in column if text]), most)
    if request.job_id:
        check_job_id(request.job_id)


def check_count(field: str, count: int, most: int) -> None:
    """Raises MessageTooLarge for more of a field in all messages of a call."""
    if count > most:
        raise MessageTooLarge(field, f"{count} of them", f"at most {most} in one call")


def rows_of(
    request: BulkRequest, waits: Waits, queue_of: QueueOf, room: Room
) -> tuple[list[BulkRow], dict[int, Refusal]]:
    """The messages that may be stored, and the refusals of the others by position.

    One pass over columns takes 0.6 µs a message; a Message for each would take 4: texts are
    first checked together, and each distinct topic and delay is decided once.
    """
    count, body_bytes_max = len(request.bodies), room.body_bytes_max
    columns = [_spread(request, name, count) for name in COLUMNS]
    is_plain = _is_plain(request)
    queues: dict[str, int | RmqliteError] = {}
    found: dict[When, BulkWait | RmqliteError] = {}
    rows: list[BulkRow] = []
    refused: dict[int, Refusal] = {}
    for position, row in enumerate(zip(*columns, strict=True)):
        body, message_id, topic, tags, keys, properties, *when_columns = row
        when = tuple(when_columns)
        wait = found.get(when)
        if wait is None:
            wait = found[when] = _tried(waits.wait_for, when)
        queue_id = queues.get(topic)
        if queue_id is None:
            queue_id = queues[topic] = _tried(queue_of, topic)
        if isinstance(queue_id, RmqliteError):
            refused[position] = Refusal.of(message_id, queue_id)
            continue
        if isinstance(wait, RmqliteError):
            refused[position] = Refusal.of(message_id, wait)
            continue
        if properties or not is_plain or not message_id or not 0 < len(body) <= body_bytes_max:
            error = _tried(_check_row, row, room)
            if isinstance(error, RmqliteError):
                refused[position] = Refusal.of(message_id, error)
                continue
        rows.append(
            BulkRow(position, body, message_id, topic, tags, keys, properties, wait, queue_id)
        )
    return rows, refused


def records_of(
    rows: Sequence[BulkRow], sender: Sender
) -> tuple[dict[int, NewRecord], dict[int, Refusal]]:
    """The records, and the refusals of too long properties, by position.

    A record is as new_records() makes it.  Its property string is put together as text: 1 µs
    for a message, where a dict takes 4.
    """
    cluster, born_at_ms, born_host, store_host = sender
    records: dict[int, NewRecord] = {}
    refused: dict[int, Refusal] = {}
    for row in rows:
        position, body, message_id, topic, tags, keys, properties, wait, queue_id = row
        text = f"{_UNIQ_KEY}{message_id}"
        if tags:
            text += f"{_TAGS}{tags}"
        if wait.due_ms:
            text += f"{_DELIVER_MS}{wait.due_ms}"
        if keys:
            text = f"{_KEYS}{keys}{PAIR_END}{text}"
        if properties:
            text = f"{properties}{PAIR_END}{text}"
        draft = Draft(topic, queue_id, text.encode(), body, born_at_ms, born_host)
        try:
            check_sent_properties(draft.properties)
            records[position] = record_of(draft, *wait, cluster=cluster, store_host=store_host)
        except MessageTooLarge as error:
            refused[position] = Refusal.of(message_id, error)
    return records, refused


class Waits:
    """Finds the wait that is asked for, by one table and at one moment."""

    def __init__(
        self, table: LevelTable, match: BulkMatch, timers: TimerRules, now_ms: int
    ) -> None:
        self._table = table
        self._timers = timers
        self._match = match
        self._now_ms = now_ms
        first: dict[int, int] = {}
        for level, delay_ms in enumerate(table.delays_ms, 1):
            first.setdefault(delay_ms, level)
        self._delays_ms = sorted(first)
        self._levels = [first[delay_ms] for delay_ms in self._delays_ms]

    def wait_for(self, when: When) -> BulkWait:
        """Raises InvalidValue, DelayUnknown."""
        level, delay, deliver_at_ms = when
        if (level != 0) + (delay != "") + (deliver_at_ms != 0) > 1:
            rule = "given alone: one of delay_level, delay and deliver_at for a message, or none"
            raise InvalidValue("delay_level", f"{level}, {delay!r}, {deliver_at_ms}", rule)
        if level:
            if not 1 <= level <= self._table.max_level:
                rule = f"a level of the table in force, 1 to {self._table.max_level}; 0 is now"
                raise InvalidValue("delay_level", level, rule)
            return BulkWait(level)
        if delay:
            exact = self._match is BulkMatch.EXACT
            return BulkWait(self._table.level_lasting(delay) if exact else self._next_longer(delay))
        check_not_long_ago("deliver_at", deliver_at_ms)
        left_ms = deliver_at_ms - self._now_ms
        if left_ms <= 0:
            return BulkWait(0)
        self._timers.check("deliver_at", deliver_at_ms, left_ms)
        return BulkWait(0, deliver_at_ms)

    def _next_longer(self, delay: str) -> int:
        at = bisect_left(self._delays_ms, parse_delay(delay))
        if at == len(self._delays_ms):
            longest = self._table.name(self._levels[-1])
            raise InvalidValue("delay", delay, f"at most {longest}: the longest level")
        return self._levels[at]


def _check_row(row: Sequence[Any], room: Room) -> int:
    body, message_id, topic, tags, keys, properties, *_ = row
    if not message_id:
        raise InvalidValue("message_id", message_id, "a deduplication id, not empty")
    room.check_body(len(body))
    # Message checks its fields and raises.
    Message(topic, body, tags=tags, keys=keys, message_id=message_id)
    if properties:
        check_property_text(properties)
    return 0


def _is_plain(request: BulkRequest) -> bool:
    """Are all ids, tags and keys valid at a glance: short, ASCII and printable?"""
    longest = max(map(len, (*request.message_ids, *request.tags, *request.keys)), default=0)
    if longest > MESSAGE_ID_BYTES_MAX:
        return False
    texts = "".join((*request.message_ids, *request.tags))
    keys = "".join(request.keys)
    return texts.isascii() and texts.isprintable() and keys.isascii() and keys.isprintable()


def _spread(request: BulkRequest, name: str, count: int) -> Iterator[Any] | Sequence[Any]:
    """A column with one value for each message."""
    column: Sequence[Any] = getattr(request, name)
    if len(column) == count:
        return column
    nothing = 0 if name in ("delay_levels", "deliver_at_ms") else ""
    return repeat(column[0] if column else nothing, count)


def _tried(decide: Callable[..., T], *arguments: object) -> T | RmqliteError:
    """The result of a rule, or its error.  Raises Unavailable, which is no refusal."""
    try:
        return decide(*arguments)
    except Unavailable:
        raise
    except RmqliteError as error:
        return error
