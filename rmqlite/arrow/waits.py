"""The waits of records, many at once: which of them wait, until when, and which end a wait.

The rules are those of rmqlite/records/wait_queues.py and rmqlite/records/completion.py, column
by column; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqlite.arrow.pairs import Pairs
from rmqlite.arrow.records import Flags, Longs, Records
from rmqlite.levels import LEVELS_MAX, LevelHistory
from rmqlite.message import (
    DELAY,
    FIRED,
    RESCHEDULED_FROM,
    RETRY_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_EXACT,
    TIMER_OUT_MS,
)
from rmqlite.names import CANCELLED_TOPIC
from rmqlite.records.completion import UNDELIVERABLE_TOPIC
from rmqlite.records.record import TRANSACTION_TYPE
from rmqlite.records.wait_queues import SLOT_MS, TIMERS, WAIT_TOPICS, queue_of, when_due_ms

TIMERS_QUEUE: Final = queue_of(TIMERS)
_EXACT: Final = re.compile(f"{TIMER_EXACT}\x01".encode())
_INT_MAX: Final = (1 << 31) - 1


class Promises(Protocol):
    """The deliver times that the queue entries of scheduled records promise."""

    def promised_ms(self, topic: str, records: Records, rows: Longs) -> Longs:
        """The times in the entries of these rows, all of this topic; 0 without one."""


class Dues:
    """Computes when scheduled records are due, many at once.

    It is the time in the queue entry; else, for a level, the store time plus its delay, and for a
    timer the time in its properties.
    """

    def __init__(self, levels: LevelHistory, promises: Promises | None = None) -> None:
        self._since_ms = np.array([since for since, _ in levels.entries], np.int64)
        # Asked once for every table and queue, not once for every record.
        due_ms = [
            [when_due_ms(levels, *queue_of(n + 1), since, b"") for n in range(LEVELS_MAX)]
            for since, _ in levels.entries
        ]
        self._delays_ms = np.array(due_ms, np.int64) - self._since_ms[:, np.newaxis]
        self._promises = promises

    def of_levels(self, records: Records, rows: Longs, pairs: Callable[[], Pairs]) -> Longs:
        """The deliver times of these rows, all of levels; pairs: of all records, if needed."""
        head = records.head[rows]
        stored_ms = head["store_timestamp"].astype(np.int64)
        queue_id = np.clip(head["queue_id"].astype(np.int64), 0, LEVELS_MAX - 1)
        table = np.maximum(np.searchsorted(self._since_ms, stored_ms, side="right") - 1, 0)
        due_ms = stored_ms + self._delays_ms[table, queue_id]
        if len(rows) and _EXACT.search(records.data[records.starts[0] : records.end[-1]].data):
            # Timers that were handed over to a broker without timers wait at a level.
            found = pairs()
            pairs_from, from_timers = found.last(RESCHEDULED_FROM)
            is_timer = np.zeros(len(records), bool)
            is_timer[from_timers[found.are(pairs_from, str(TIMERS).encode())]] = True
            is_timer &= _has(found, TIMER_EXACT) & ~_has(found, RETRY_TOPIC)
            due_ms = np.where(is_timer[rows], _property_ms(found)[rows], due_ms)
        return self._or_promised(queue_of(1)[0], records, rows, due_ms)

    def of_timers(self, records: Records, rows: Longs, pairs: Pairs) -> Longs:
        """The deliver times of these rows, all of timers; pairs: of all records."""
        asked_ms = _property_ms(pairs)
        stored_ms = records.head["store_timestamp"].astype(np.int64)
        due_ms = np.where(asked_ms != 0, asked_ms, stored_ms)
        return self._or_promised(TIMERS_QUEUE[0], records, rows, due_ms[rows])

    def _or_promised(self, topic: str, records: Records, rows: Longs, due_ms: Longs) -> Longs:
        if self._promises is None:
            return due_ms
        promised = self._promises.promised_ms(topic, records, rows)
        return np.where(promised > 0, promised, due_ms)


class Completing(NamedTuple):
    """The rows that end the wait of a scheduled record, and the wait queue that each leaves."""

    rows: Longs
    wait_queues: Longs


def completing(records: Records, topics: pa.Array, pairs: Pairs) -> Completing:
    """Which of these records end a wait?"""
    left = np.zeros(len(records), np.int64)
    waits = is_waiting(topics)
    # A level of Java's is an int.
    delays, is_level = _numbers(pairs, DELAY, has_plus=True)
    is_level &= ~waits & (delays > 0) & (delays <= _INT_MAX)
    left[is_level] = delays[is_level]
    left[~waits & ~is_level & _has(pairs, TIMER_OUT_MS)] = TIMERS
    came_from, is_number = _numbers(pairs, RESCHEDULED_FROM)
    left[waits & is_number] = came_from[waits & is_number]
    found, rows = pairs.last(RESCHEDULED_FROM)
    from_timers = rows[pairs.are(found, str(TIMERS).encode())]
    left[from_timers[waits[from_timers]]] = TIMERS
    # A message that RocketMQ commits points to its half message; only a carried timer, of those
    # without RESCHEDULED_FROM, points to a scheduled record.
    is_committed = records.ints("sys_flag") & TRANSACTION_TYPE != 0
    is_carried = is_topic(topics, TIMERS_QUEUE[0]) & ~_has(pairs, RESCHEDULED_FROM)
    left[is_carried & ~is_committed] = TIMERS
    ending = np.flatnonzero((left != 0) & (records.longs("prepared_transaction_offset") != 0))
    return Completing(ending, left[ending])


def completions(count: int, found: Completing, topics: pa.Array, pairs: Pairs) -> pa.Array:
    """How each of the count records ends a wait; null for one that ends none."""
    words = np.full(count, None, object)
    words[found.rows] = "delivered"
    is_new = _has(pairs, RESCHEDULED_FROM)
    for rows, word in (
        (_has(pairs, FIRED), "fired"),
        (is_topic(topics, UNDELIVERABLE_TOPIC), "undeliverable"),
        (is_topic(topics, CANCELLED_TOPIC), "cancelled"),
        (is_waiting(topics), "rescheduled"),
        (is_topic(topics, TIMERS_QUEUE[0]) & ~is_new, "carried"),
    ):
        words[found.rows[rows[found.rows]]] = word
    return pa.array(words, pa.string())


def is_waiting(topics: pa.Array) -> Flags:
    """Which of these topics are those of scheduled records?"""
    return reduce(np.logical_or, (is_topic(topics, topic) for topic in WAIT_TOPICS))


def is_topic(topics: pa.Array, name: str) -> Flags:
    """Which of these topics are this one?"""
    found: Flags = pc.equal(topics, name).to_numpy(zero_copy_only=False)
    return found


def _property_ms(pairs: Pairs) -> Longs:
    """The instant in the properties of a timer in each row; 0 if there is none."""
    out_ms, has_out = _numbers(pairs, TIMER_OUT_MS)
    asked_ms, is_asked = _numbers(pairs, TIMER_DELIVER_MS)
    for name in (TIMER_DELAY_SEC, TIMER_DELAY_MS):
        is_asked &= ~_has(pairs, name)
    is_asked &= (out_ms < asked_ms) & (asked_ms <= out_ms + SLOT_MS)
    due_ms = np.where(is_asked, asked_ms, out_ms + SLOT_MS)
    due_ms = np.where(_has(pairs, TIMER_EXACT), out_ms, due_ms)
    return np.where(has_out, due_ms, 0)


def _numbers(pairs: Pairs, name: str, *, has_plus: bool = False) -> tuple[Longs, Flags]:
    """The value of a property in each row, and which rows have a number there."""
    values, is_number = np.zeros(pairs.count, np.int64), np.zeros(pairs.count, bool)
    found, rows = pairs.last(name)
    values[rows], is_number[rows] = pairs.numbers(found, has_plus=has_plus)
    return values, is_number


def _has(pairs: Pairs, name: str) -> Flags:
    """Which rows have a property with a value?"""
    found = np.zeros(pairs.count, bool)
    found[pairs.last(name)[1]] = True
    return found
