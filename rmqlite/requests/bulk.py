"""What a bulk sender asks and what it is answered: plain values, in columns.

A call carries many messages, column by column: that costs a third of one value for each.
Every message has its own outcome, and one that was sent before under the same topic and
message id is a duplicate, not a second message.  Times are milliseconds since 1970.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from rmqlite.errors import InvalidValue, RmqliteError, restore
from rmqlite.message import KEY_END, PAIR_END, RESERVED_PROPERTIES

JOB_ID_CHARS_MAX: Final = 127
SAMPLES_MAX: Final = 20
"""Of so many refused messages a job's record keeps id and reason, the first ones."""


class BulkMatch(enum.IntEnum):
    """Which level a length of time, or an instant, means."""

    EXACT = 0
    """The level that is exactly that long; another length is refused."""
    LONGER = 1
    """That one, or the next longer one; for an instant the first that is never before it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a message was refused: an error of ours, as plain values."""

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
        """The error itself."""
        return restore(self.code, self.sentence, field=self.field, value=self.value, rule=self.rule)


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """Messages to schedule, or to send at once, each for itself.

    Every column has one value for each message, or one for all of them, or is empty: none
    has any; bodies and message_ids have one for each.  keys: tokens, one blank between two.
    properties: RocketMQ's property string.  Of delay_levels, delays ("10m") and
    deliver_at_ms a message may have one; 0 and "" are none, and without any it is for now.
    already_refused: what the sender itself has refused, for the job's record to count.
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
        """The messages from begin up to end, alone."""
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
    """A refused message of a call: where it was, counted from 0, and why."""

    position: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class BulkAnswer:
    """What became of a call's messages; who is not named was accepted.

    duplicates: where those were that had been sent before, counted from 0.
    """

    accepted: int
    duplicates: tuple[int, ...] = ()
    refused: tuple[RefusedAt, ...] = ()


@dataclass(frozen=True, slots=True)
class BulkJob:
    """What all calls with one job id have come to.

    accepted: messages stored, each once.  duplicates, refused: how often that was answered,
    so a call that is repeated counts again.  samples: the first that were refused.
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


def check_job_id(job_id: str) -> None:
    """Raises InvalidValue unless a job may be called this."""
    is_plain = job_id.isascii() and job_id.isprintable() and " " not in job_id
    if not is_plain or not 1 <= len(job_id) <= JOB_ID_CHARS_MAX:
        rule = f"1 to {JOB_ID_CHARS_MAX} printable ASCII characters without blanks"
        raise InvalidValue("job_id", job_id, rule)


def property_text(properties: Mapping[str, str]) -> str:
    """A user's properties as a property string.  Raises InvalidValue."""
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str) or not key or not value:
            raise InvalidValue("properties", f"{key}={value}", "text keys and values, none empty")
    text = PAIR_END.join([key + KEY_END + value for key, value in properties.items()])
    check_property_text(text, len(properties))
    return text


def check_property_text(text: str, count: int = 0) -> None:
    """Raises InvalidValue unless a user may give this property string; count: of its pairs."""
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
    if len(names) != len(pairs) or (count and count != len(pairs)):
        raise InvalidValue("properties", text, "each key once, without control character 0x02")


def _plain(refusal: Refusal) -> dict[str, str]:
    pairs = {each.name: getattr(refusal, each.name) for each in fields(refusal)}
    return {name: text for name, text in pairs.items() if text}
