"""The broker of a command: its calls, and its clock and table of levels, each fetched once.

Also parses a level that a person wrote: its number, or its delay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Final

from rmqlite.cli.options import refuse
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import LEVELS_MAX, LevelTable, parse_delay, parse_levels
from rmqlite.views.levels import TIMER

if TYPE_CHECKING:
    from rmqlite.client import AdminClient

CALL_MS_MAX: Final = 60_000
"""A page of a large schedule may take long; a broker that is away fails at once all the same."""
SHORT_CALL_MS_MAX: Final = 5_000


@contextmanager
def connected(
    endpoint: str, timeout_ms: int = CALL_MS_MAX, *, note: str = ""
) -> Iterator[AdminClient]:
    """The calls of the broker at endpoint; the client is loaded only now."""
    from rmqlite.client import AdminClient

    with AdminClient(endpoint, timeout_ms=timeout_ms, note=note) as admin:
        yield admin


class BrokerView:
    """A broker's clock and its table of levels, each fetched when it is first needed."""

    def __init__(self, admin: AdminClient) -> None:
        self.admin = admin
        self.schedule = admin.schedule

    @cached_property
    def now_ms(self) -> int:
        return self.admin.broker_status().now_ms

    @cached_property
    def table(self) -> LevelTable:
        return parse_levels(self.admin.levels().message_delay_level)


def level_or_timers(option: str, text: str) -> int | str:
    """level_or_delay(), or the id of the timers' wait queue for the word "timer"."""
    if text == TIMER:
        return TIMERS
    return level_or_delay(option, text, f", or {TIMER} for messages of any instant")


def level_number(option: str, text: str, broker: BrokerView) -> int:
    """A level of the table in force, named by its number or its delay.  Raises DelayUnknown."""
    number = number_in_force(level_or_delay(option, text), broker)
    if number > broker.table.max_level:
        refuse(option, text, f"a level of this broker, 1 to {broker.table.max_level}")
    return number


def level_or_delay(option: str, text: str, more: str = "") -> int | str:
    """A level's number, or the text of a delay, checked to be one."""
    if text.isascii() and text.isdigit() and len(text) <= 2 and 1 <= int(text) <= LEVELS_MAX:
        return int(text)
    try:
        parse_delay(text)
    except InvalidValue:
        refuse(option, text, f"a level, 1 to {LEVELS_MAX}, or a delay such as 10m{more}")
    return text


def number_in_force(level: int | str, broker: BrokerView) -> int:
    return level if isinstance(level, int) else broker.table.level_lasting(level)
