"""Dead letters that a fake broker has: its list of them, and the raw records behind it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rmqlite.features.dead_letters.requests import DeadLetter, DeadLetterPage, DeadLettersQuery
from rmqlite.features.finding.requests import FoundMessage, MessageState
from rmqlite.features.raw_log.requests import QueueRead, QueueReadRequest
from rmqlite.kernel.records.drafts import Draft, fresh
from rmqlite.kernel.records.encoding import encode
from rmqlite.kernel.records.record import read_head, to_message
from rmqlite.kernel.words.errors import MessageNotFound
from rmqlite.kernel.words.message import (
    FAILURE_REASON,
    KEYS,
    TAGS,
    UNIQ_KEY,
    StoredMessage,
    encode_properties,
    pack_host,
)
from rmqlite.kernel.words.names import dlq_topic
from tests.support.fake_broker import STATUS, FakeBroker

NOW_MS = STATUS.now_ms
HOST = "10.0.0.2:10911"
HOSTILE = "\x1b]52;c;cm0gLXJm\x07\x9b31m\u202e<script>"
"""It would write to the clipboard, ring, colour, and turn the line round."""


def record(
    number: int, body: bytes, group: str = "billing", sys_flag: int = 0, **properties: str
) -> bytes:
    """The number-th record of a group's dead letters, as it lies in the log."""
    pairs = {
        UNIQ_KEY: f"{number:032X}",
        TAGS: "A",
        KEYS: f"order-{number}",
        FAILURE_REASON: "ledger timed out",
    }
    draft = Draft(
        dlq_topic(group),
        0,
        encode_properties(pairs | properties),
        body,
        born_timestamp_ms=NOW_MS - 7_200_000,
        born_host=pack_host("10.0.0.1:1"),
        sys_flag=sys_flag,
        reconsume_times=16,
    )
    new = fresh(draft, pack_host(HOST))
    place = {"queue_offset": number, "physical_offset": number * 1_000}
    return encode(new, **place, store_timestamp_ms=NOW_MS - 60_000)


def stored(data: bytes) -> StoredMessage:
    head = read_head(data)
    assert head is not None
    return to_message(head, data)


def letter_of(message: StoredMessage, **fields: Any) -> DeadLetter:
    """What the broker says of such a record."""
    found = DeadLetter(
        group=message.topic.removeprefix("%DLQ%"),
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        store_size=message.store_size,
        body_size=len(message.body),
        message_id=message.message_id,
        origin_topic="orders",
        origin_message_id="",
        origin_queue_id=2,
        origin_queue_offset=991,
        tags=message.tags,
        keys=message.keys,
        delivery_attempts=17,
        first_failure_ms=NOW_MS - 3_600_000,
        last_failure_ms=NOW_MS - 60_000,
        reason=message.properties.get(FAILURE_REASON, ""),
        born_timestamp_ms=message.born_timestamp_ms,
        store_timestamp_ms=message.store_timestamp_ms,
        store_host=message.store_host,
    )
    return dataclasses.replace(found, **fields)


def has_letters(
    broker: FakeBroker, *records: bytes, page: int = 1_000, **fields: Any
) -> list[DeadLetter]:
    """The broker has these dead letters; fields are the same for all of them.

    Of a filter only the ids are looked at: the others are the real broker's affair.
    """
    messages = [stored(each) for each in records]
    letters = [letter_of(each, **fields) for each in messages]

    def list_dead(query: DeadLettersQuery) -> DeadLetterPage:
        wanted = query.filter.ids
        fitting = [
            each
            for each in letters
            if query.group in ("", each.group)
            and (not wanted or {each.message_id, each.offset_message_id} & {*wanted})
        ]
        begin = int(query.cursor or 0)
        end = min(begin + page, begin + (query.max_letters or 100), len(fitting))
        more = str(end) if end < len(fitting) else ""
        return DeadLetterPage(tuple(fitting[begin:end]), more, end - begin)

    def get(offset_message_id: str) -> FoundMessage:
        for each in messages:
            if each.offset_message_id == offset_message_id:
                return FoundMessage(each, MessageState.DEAD)
        raise MessageNotFound(0)

    def read_queue(request: QueueReadRequest) -> QueueRead:
        return _read(request, messages, records)

    broker.answers |= {"ListDeadLetters": list_dead, "GetMessage": get, "ReadQueue": read_queue}
    return letters


def _read(
    request: QueueReadRequest, messages: Sequence[StoredMessage], records: Sequence[bytes]
) -> QueueRead:
    """Two records a call."""
    end = request.end_queue_offset
    assert end is not None
    asked = range(request.begin_queue_offset, end)
    found = [
        (message.queue_offset, data)
        for message, data in zip(messages, records, strict=True)
        if message.topic == request.topic and message.queue_offset in asked
    ][:2]
    if not found:
        return QueueRead(b"", end)
    return QueueRead(b"".join([data for _, data in found]), found[-1][0] + 1)
