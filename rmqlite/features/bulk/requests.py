"""A bulk sender's requests and their answers: plain values, in columns.

A call carries many messages, column by column: that costs a third of one value per message.
Every message has its own outcome.  Its message id is its unique id: a second one of its topic is
a duplicate and is not stored.  Times are milliseconds since 1970.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import NoneType
from typing import Any, Final

from rmqlite.features.rows import Row
from rmqlite.kernel.words.errors import InvalidValue, RmqliteError, restore
from rmqlite.kernel.words.message import (
    KEY_END,
    PAIR_END,
    RESERVED_PROPERTIES,
    check_property_types,
)
from rmqlite.kernel.words.property_string import check_properties

SAMPLES_MAX: Final = 20
"""How many refused messages, the first ones, a job's record holds with id and reason."""


class BulkMatch(enum.IntEnum):
    """Which level a length of time means."""

    EXACT = 0
    """The level that is exactly that long; any other length is refused."""
    LONGER = 1
    """That level, else the next longer one."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a message was refused: an error of rmqlite as plain values."""

    message_id: str = ""
    code: str = ""
    sentence: str = ""
    field: str = ""
    value: str = ""
    rule: str = ""

    @classmethod
    def of(cls, message_id: str, error: RmqliteError) -> Refusal:
        return cls(message_id, error.code, str(error), error.field, error.value, error.rule)

    def error(self) -> RmqliteError:
        """The error that these values were made from."""
        return restore(self.code, self.sentence, field=self.field, value=self.value, rule=self.rule)


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """Messages to schedule, or to send at once; each one succeeds or fails by itself.

    bodies and message_ids have one value per message.  Every other column has one value per
    message, or one value for all, or is empty: then no message has a value.  keys: tokens, one
    blank between two.  properties: RocketMQ's property string.  A message has at most one of
    delay_level, delay ("10m") and deliver_at_ms; 0 and "" count as none, and a message without
    any, or with a past instant, is sent at once.  already_refused: messages that the sender itself
    has refused; the job's record counts them.
    """

    bodies: tuple[bytes, ...]
    message_ids: tuple[str, ...]
    topics: tuple[str, ...]
    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    delay_levels: tuple[int, ...] = ()
    delays: tuple[str, ...] = ()
    deliver_at_ms: tuple[int, ...] = ()
    match: BulkMatch = BulkMatch.EXACT
    job_id: str = ""
    born_at_ms: int = 0
    already_refused: tuple[Refusal, ...] = ()

    def part(self, begin: int, end: int) -> BulkRequest:
        """A request with only the messages begin <= n < end."""
        count = len(self.bodies)
        columns: dict[str, Any] = {}
        for name in COLUMNS:
            column = getattr(self, name)
            columns[name] = column[begin:end] if len(column) == count or begin == end else column
        return BulkRequest(
            **columns, match=self.match, job_id=self.job_id, born_at_ms=self.born_at_ms
        )


COLUMNS: Final = tuple(
    each.name
    for each in fields(BulkRequest)
    if each.name not in ("match", "job_id", "born_at_ms", "already_refused")
)


@dataclass(frozen=True, slots=True)
class RefusedAt:
    """A refused message of a call: its position, counted from 0, and the reason."""

    position: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class BulkAnswer:
    """The outcomes of a call's messages: those that it does not name were accepted.

    duplicates: positions of the messages that had been sent before, counted from 0.
    """

    accepted: int
    duplicates: tuple[int, ...] = ()
    refused: tuple[RefusedAt, ...] = ()


@dataclass(frozen=True, slots=True)
class BulkJob:
    """The outcomes of all calls with one job id.

    accepted: messages stored, each counted once.  duplicates, refused: how many such answers
    the broker gave; a repeated call counts again.  samples: the first refused messages.
    """

    job_id: str
    accepted: int = 0
    duplicates: int = 0
    refused: int = 0
    calls: int = 0
    first_at_ms: int = 0
    last_at_ms: int = 0
    samples: tuple[Refusal, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A tree for json."""
        tree = {each.name: getattr(self, each.name) for each in fields(self)}
        return tree | {"samples": [_plain(each) for each in self.samples]}


def property_text(properties: Mapping[str, str]) -> str:
    """A user's properties as a property string.  Raises InvalidValue."""
    try:
        check_properties(properties, RESERVED_PROPERTIES)
    except TypeError:
        check_property_types(properties)  # names the wrong type
        raise
    return PAIR_END.join([key + KEY_END + value for key, value in properties.items()])


def check_property_text(text: str) -> None:
    """Raises InvalidValue unless a user may send this property string."""
    pairs = text.split(PAIR_END)
    names = set()
    for pair in pairs:
        name, _, value = pair.partition(KEY_END)
        names.add(name)
        if name in RESERVED_PROPERTIES:
            raise InvalidValue("properties", name, "a name that RocketMQ does not reserve")
        if not name or not value or KEY_END in value:
            rule = "UTF-8 text without control characters 0x01 and 0x02, none empty"
            raise InvalidValue("properties", pair, rule)
    if len(names) != len(pairs):
        raise InvalidValue("properties", text, "each key once, without control character 0x02")


def _plain(refusal: Refusal) -> dict[str, str]:
    pairs = {each.name: getattr(refusal, each.name) for each in fields(refusal)}
    return {name: text for name, text in pairs.items() if text}


SCHEDULE_BULK: Final = Row(
    "Messaging",
    "ScheduleBulk",
    BulkRequest,
    BulkAnswer,
    bytes_max=None,
    is_short=True,
    has_host=True,
)
GET_BULK_JOB: Final = Row("Admin", "GetBulkJob", str, BulkJob)
LIST_BULK_JOBS: Final = Row("Admin", "ListBulkJobs", NoneType, tuple[BulkJob, ...])
