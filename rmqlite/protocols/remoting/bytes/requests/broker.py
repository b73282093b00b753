"""Requests about the broker: its configuration, traffic, disk, and delay levels and timers.

Settings are no JSON: their body has a line of key=value for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from rmqlite.protocols.remoting.bytes.fields import (
    ENTRIES_MAX,
    I64,
    SETTINGS_BYTES_MAX,
    SETTINGS_MAX,
    Count,
    FieldError,
    Name,
    Nothing,
    Value,
)
from rmqlite.protocols.remoting.bytes.requests.groups import TableVersionBody
from rmqlite.protocols.remoting.bytes.requests.request import Body, request

_COMMENTS = ("#", "!")


class StatsQuery(NamedTuple):
    """stats_key: a topic, or topic@group."""

    stats_name: Name
    stats_key: str


class VersionAnswer(NamedTuple):
    """version: the JSON of a DataVersion."""

    version: str


@dataclass(frozen=True, slots=True)
class KvTable:
    """Answer to 28 and 219."""

    table: dict[str, Value]


@dataclass(frozen=True, slots=True)
class DelayOffsets:
    """Answer to 45, by delay level."""

    offset_table: dict[int, I64]


@dataclass(frozen=True, slots=True)
class StatsItem:
    """avgpt: what one call brought, on average; RocketMQ's word."""

    sum: I64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclass(frozen=True, slots=True)
class BrokerStats:
    """Answer to 315."""

    stats_minute: StatsItem
    stats_hour: StatsItem
    stats_day: StatsItem


@dataclass(frozen=True, slots=True)
class TimingCount:
    """Timers that wait for their delivery to one topic."""

    count: I64
    time_stamp: I64


@dataclass(frozen=True, slots=True)
class TimerMetrics:
    """Answer to 61: the pending timers by topic."""

    timing_count: Annotated[dict[str, TimingCount], Count(ENTRIES_MAX)]
    data_version: TableVersionBody


UPDATE_BROKER_CONFIG: Final = request(25, body=Body.SETTINGS)
GET_BROKER_CONFIG: Final = request(26, Nothing, VersionAnswer, answer_body=Body.SETTINGS)
GET_BROKER_RUNTIME_INFO: Final = request(28, answer_body=KvTable)
GET_ALL_DELAY_OFFSET: Final = request(45, answer_body=DelayOffsets)
GET_TIMER_CHECK_POINT: Final = request(60, answer_body=Body.LONGS)
GET_TIMER_METRICS: Final = request(61, answer_body=TimerMetrics)
VIEW_BROKER_STATS_DATA: Final = request(315, StatsQuery, answer_body=BrokerStats)


def read_settings(body: bytes) -> dict[str, str]:
    """Values by key; the last one of several counts.  Raises FieldError."""
    if not body:
        raise FieldError("body", None, "lines of key=value")
    if len(body) > SETTINGS_BYTES_MAX:
        raise FieldError("body", f"{len(body)} bytes", f"at most {SETTINGS_BYTES_MAX} bytes")
    lines = body.decode("utf-8", "replace").splitlines()
    if len(lines) > SETTINGS_MAX:
        raise FieldError("body", f"{len(lines)} lines", f"at most {SETTINGS_MAX} lines")
    settings = {}
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line or line.startswith(_COMMENTS):
            continue
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            raise FieldError(f"body, line {number}", line, "key=value")
        settings[key.strip()] = value.strip()
    return settings


def write_settings(settings: Mapping[str, str]) -> bytes:
    """Each pair on a line of its own; a line break in a value becomes a blank."""
    lines = [f"{key}={' '.join(value.splitlines())}\n" for key, value in settings.items()]
    return "".join(lines).encode("utf-8", "replace")
