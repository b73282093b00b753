"""RocketMQ's unique ids: the reference's layout, and never twice the same."""

from __future__ import annotations

import os
import socket

from rmqlite.client.unique_id import UniqueIds, own_address, own_client_id
from rmqlite.kernel.words.clock import month_start_ms, wall_ms


def test_an_id_is_32_upper_case_hex_characters_laid_out_as_rocketmq_does() -> None:
    """RocketMQ's tools read address, process and time out of an id (reference §5.1)."""
    now_ms = wall_ms()
    unique_id = UniqueIds(lambda: now_ms).next()
    packed = bytes.fromhex(unique_id)
    assert unique_id == unique_id.upper()
    assert packed[:4] == own_address()
    assert int.from_bytes(packed[4:6], "big") == os.getpid() & 0xFFFF
    assert int.from_bytes(packed[10:14], "big") == (now_ms - month_start_ms(now_ms)) & 0xFFFFFFFF


def test_ids_never_repeat_while_the_clock_stands_still() -> None:
    """A burst makes many ids in one millisecond."""
    ids = UniqueIds(lambda: 1_700_000_000_000)
    assert len({ids.next() for _ in range(30_000)} | set(ids.take(30_000))) == 60_000


def test_the_milliseconds_start_again_with_the_month() -> None:
    """They are counted from the month's start, which is looked up again when it is passed."""
    january_ms = month_start_ms(1_706_000_000_000)
    february_ms = month_start_ms(january_ms + 32 * 86_400_000)
    times = iter([february_ms - 1, february_ms, february_ms + 5])
    ids = UniqueIds(lambda: next(times))
    since_ms = [int(ids.next()[20:28], 16) for _ in range(3)]
    assert since_ms == [(february_ms - 1 - january_ms) & 0xFFFFFFFF, 0, 5]


def test_a_clock_that_steps_back_does_not_repeat_time() -> None:
    """The same millisecond and counter would be the same id."""
    times = iter([1_700_000_001_000, 1_700_000_000_000])
    ids = UniqueIds(lambda: next(times))
    assert ids.next()[20:28] == ids.next()[20:28]


def test_two_generators_of_one_process_differ() -> None:
    """Two producers in one process share address, process id and time."""
    assert UniqueIds(lambda: 1).next()[:20] != UniqueIds(lambda: 1).next()[:20]


def test_a_client_id_tells_address_and_process() -> None:
    """An operator finds the member of a group by it."""
    address, _, rest = own_client_id().partition("@")
    assert socket.inet_aton(address) == own_address()
    assert rest.startswith(f"{os.getpid()}#")
    assert own_client_id() != own_client_id()


def test_what_belongs_to_one_process_is_drawn_anew() -> None:
    """A forked child has the memory of its parent, and would repeat its ids."""
    ids = UniqueIds(lambda: 1_700_000_000_000)
    before = ids.next()
    ids.begin_anew()
    assert ids.next()[:20] != before[:20]
