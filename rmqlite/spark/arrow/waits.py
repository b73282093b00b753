"""The waits of records, many at once: which of them wait, until when, and which end a wait.

Due times are those of kernel/records/wait_queues.py.  The tables of kernel/records/completion.py
are evaluated column by column.  A test compares both with what is found record by record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial, reduce
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqlite.kernel.records.completion import ENDS, STEPS, TIMER_NAMED, WORDS, Left, Rule
from rmqlite.kernel.records.record import TRANSACTION_TYPE
from rmqlite.kernel.records.wait_queues import SLOT_MS, TIMERS, WAIT_TOPICS, queue_of, when_due_ms
from rmqlite.kernel.words.levels import LEVELS_MAX, LevelHistory
from rmqlite.kernel.words.limits import INT32_MAX
from rmqlite.kernel.words.message import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    RESCHEDULED_FROM,
    RETRY_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_EXACT,
    TIMER_OUT_MS,
    UNIQ_KEY,
)
from rmqlite.spark.arrow.pairs import Pairs
from rmqlite.spark.arrow.records import Flags, Longs, RecordArray

TIMERS_QUEUE: Final = queue_of(TIMERS)
_EXACT: Final = re.compile(f"{TIMER_EXACT}\x01".encode())


class PromisedRows(Protocol):
    """The deliver times that the queue entries of scheduled records promise."""

    def promised_ms(self, topic: str, records: RecordArray, rows: Longs) -> Longs:
        """The times in the entries of these rows, all of this topic; 0 without one."""


class Dues:
    """Computes when scheduled records are due, many at once.

    It is the time in the queue entry; else, for a level, the store time plus its delay, and for a
    timer the time in its properties.
    """

    def __init__(self, levels: LevelHistory, promises: PromisedRows | None = None) -> None:
        self._since_ms = np.array([since for since, _ in levels.entries], np.int64)
        # Asked once for every table and queue, not once for every record.
        due_ms = [
            [when_due_ms(levels, *queue_of(n + 1), since, b"") for n in range(LEVELS_MAX)]
            for since, _ in levels.entries
        ]
        self._delays_ms = np.array(due_ms, np.int64) - self._since_ms[:, np.newaxis]
        self._promises = promises

    def of_levels(self, records: RecordArray, rows: Longs, pairs: Callable[[], Pairs]) -> Longs:
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

    def of_timers(self, records: RecordArray, rows: Longs, pairs: Pairs) -> Longs:
        """The deliver times of these rows, all of timers; pairs: of all records."""
        asked_ms = _property_ms(pairs)
        stored_ms = records.head["store_timestamp"].astype(np.int64)
        due_ms = np.where(asked_ms != 0, asked_ms, stored_ms)
        return self._or_promised(TIMERS_QUEUE[0], records, rows, due_ms[rows])

    def _or_promised(self, topic: str, records: RecordArray, rows: Longs, due_ms: Longs) -> Longs:
        if self._promises is None:
            return due_ms
        promised = self._promises.promised_ms(topic, records, rows)
        return np.where(promised > 0, promised, due_ms)


class CompletingRows(NamedTuple):
    """The rows that end the wait of a scheduled record, and the wait queue that each leaves."""

    rows: Longs
    wait_queues: Longs


class Facts:
    """What the rules ask of some records."""

    def __init__(self, records: RecordArray, topics: pa.Array, pairs: Pairs) -> None:
        self.records = records
        self.topics = topics
        self.pairs = pairs
        self._flags: dict[str, Flags] = {}

    def has(self, name: str) -> Flags:
        """Which rows have a property with a value?"""
        return self._once(name, lambda: _has(self.pairs, name))

    def lies_in(self, topics: Iterable[str]) -> Flags:
        found = (self._once(f"/{name}", partial(is_topic, self.topics, name)) for name in topics)
        return reduce(np.logical_or, found)

    @cached_property
    def ahead(self) -> pa.Array:
        """The topic of the destination in each row; "" without one."""
        topics = self.pairs.texts(*self.pairs.last(REAL_TOPIC))
        _, has_queue = _numbers(self.pairs, REAL_QID)
        return pc.if_else(pa.array(has_queue), pc.fill_null(topics, ""), "")

    def fit(self, rule: Rule[Any]) -> Flags:
        """Which rows does a rule fit?"""
        found = np.ones(len(self.records), bool)
        if rule.topics:
            found &= self.lies_in(rule.topics)
        if rule.within:
            begun = pc.starts_with(self.topics, rule.within)
            found &= begun.to_numpy(zero_copy_only=False)
        if rule.has:
            found &= self.has(rule.has)
        if rule.lacks:
            found &= ~self.has(rule.lacks)
        if rule.types:
            found &= np.isin(self.records.ints("sys_flag") & TRANSACTION_TYPE, rule.types)
        if rule.ahead:
            ahead = [pc.starts_with(self.ahead, begin) for begin in rule.ahead]
            found &= reduce(pc.or_, ahead).to_numpy(zero_copy_only=False)
        return found

    def words(self, rules: Sequence[Rule[Any]], wanted: Flags) -> pa.Array:
        """The value of the first rule that fits, in the wanted rows; null in the others."""
        if not wanted.any():
            return pa.nulls(len(wanted), pa.string())
        codes = np.zeros(len(wanted), np.int8)
        for code in reversed(range(len(rules))):
            codes[self.fit(rules[code])] = code
        return pa.array([rule.meaning.value for rule in rules]).take(pa.array(codes, mask=~wanted))

    def _once(self, key: str, make: Callable[[], Flags]) -> Flags:
        if key not in self._flags:
            self._flags[key] = make()
        return self._flags[key]


def completing(facts: Facts) -> CompletingRows:
    """Which of these records end a wait?"""
    is_open = facts.records.longs("prepared_transaction_offset") != 0
    left = np.zeros(len(is_open), np.int64)
    for rule in ENDS:
        rows = is_open & facts.fit(rule)
        if rule.meaning is not Left.NOTHING:
            queues = _named(rule.meaning, facts.pairs)
            rows &= queues != 0
            left[rows] = queues[rows]
        is_open &= ~rows
    ending = np.flatnonzero(left)
    return CompletingRows(ending, left[ending])


def _named(left: Left, pairs: Pairs) -> Longs:
    """The wait queue that each row names; 0 if none."""
    if left is Left.TIMERS:
        return np.full(pairs.count, TIMERS)
    name = DELAY if left is Left.LEVEL else RESCHEDULED_FROM
    found, is_number = _numbers(pairs, name, has_plus=left is Left.LEVEL)
    found[~is_number] = 0
    if left is Left.LEVEL:
        # A level of Java's is an int.
        return np.where(found <= INT32_MAX, found, 0)
    named, rows = pairs.last(name)
    found[rows[pairs.are(named, str(TIMERS).encode())]] = TIMERS
    return found


def completions(found: CompletingRows, facts: Facts) -> pa.Array:
    """How each record ends a wait; null for one that ends none."""
    wanted = np.zeros(len(facts.records), bool)
    wanted[found.rows] = True
    return facts.words(WORDS, wanted)


def timer_steps(facts: Facts) -> pa.Array:
    """What each record of RocketMQ 5 means for a timer; null: nothing."""
    return facts.words(STEPS, _has_step(facts))


def timers(facts: Facts) -> pa.Array:
    """The text that the records of one timer have in common; null in a row without a step."""
    pairs, found = facts.pairs, facts.records
    has_step = _has_step(facts)
    is_timer = facts.lies_in(TIMERS_QUEUE[:1])
    topic = pc.if_else(pa.array(is_timer), facts.ahead, facts.topics)
    key = pairs.texts(*pairs.last(UNIQ_KEY))
    rows = np.flatnonzero(has_step & (~facts.has(UNIQ_KEY) | (is_timer & facts.has(TIMER_NAMED))))
    if len(rows):
        keys = key.to_pylist()
        named = pairs.texts(*pairs.last(TIMER_NAMED))
        born_ms, crc = found.longs("born_timestamp"), found.ints("body_crc")
        for row in rows:
            name = named[row].as_py() if is_timer[row] else None
            own = (name or "").removeprefix(f"{topic[row]}+") or keys[row]
            keys[row] = own or f"{born_ms[row]} {crc[row]}"
        key = pa.array(keys, pa.string())
    out = pairs.texts(*pairs.last(TIMER_OUT_MS))
    joined = pc.binary_join_element_wise(topic, out, key, " ")
    return pc.if_else(pa.array(has_step), joined, None)


def _has_step(facts: Facts) -> Flags:
    points = facts.records.longs("prepared_transaction_offset") != 0
    is_timer = facts.lies_in(TIMERS_QUEUE[:1]) & (facts.records.ints("queue_id") == TIMERS_QUEUE[1])
    others = ~(points | is_waiting(facts.topics))
    found: Flags = facts.has(TIMER_OUT_MS) & (is_timer | others)
    return found


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
