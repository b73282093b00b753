"""RocketMQ's slaves copy the log, and none of them can hurt the broker or another one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest

from rmqlite.features.accounts.gate.exposure import check_exposure, open_ports
from rmqlite.features.ha.frames import BEAT_S, FRAME_BYTES_MAX, REPORT, SILENCE_S
from rmqlite.features.ha.port import SLAVES_MAX
from rmqlite.kernel.store.log.checksums import decode_mark
from rmqlite.kernel.words.errors import ConfigInvalid
from tests.support.brokers import BrokerUnderTest
from tests.support.ha_captures import reports_of, sent_log
from tests.support.made_brokers import Make
from tests.support.messages import plain
from tests.support.rocketmq_slaves import HOST, Slaves, with_slaves

FILE_BYTES = 1 << 20


def fill(under_test: BrokerUnderTest, messages: int = 30) -> int:
    """Messages of 100 KB, so that 30 of them fill two files; the end of the log."""
    under_test.send(*[plain("x" * 100_000) for _ in range(messages)])
    return under_test.store.end


def log_of(under_test: BrokerUnderTest, begin: int = 0) -> bytes:
    return under_test.store.read(begin, under_test.store.end - begin)


def test_an_empty_slave_gets_the_log_from_its_first_byte(under_test: BrokerUnderTest) -> None:
    """RocketMQ begins with its last file, and such a copy lacks what waits in older ones.

    A slave's files are the master's byte by byte, with the blank at their ends, if no frame
    crosses the end of a file.
    """
    end = fill(under_test)

    async def scenario(slaves: Slaves) -> None:
        async with slaves.slave(0) as slave:
            await slave.follow(end)
            assert slave.log == log_of(under_test)
            assert max(size for _, size in slave.frames) == FRAME_BYTES_MAX
            assert all(
                at // FILE_BYTES == (at + size - 1) // FILE_BYTES for at, size in slave.frames
            )

    with_slaves(under_test, scenario)
    assert end > 2 * FILE_BYTES


def test_a_full_file_is_sent_when_it_changes_no_more(under_test: BrokerUnderTest) -> None:
    """This broker writes a mark into the blank at the end of a file, after its last sync."""
    fill(under_test)

    async def scenario(slaves: Slaves) -> None:
        async with slaves.slave(0) as slave:
            await slave.follow(FILE_BYTES)
            mark = decode_mark(bytes(slave.log[FILE_BYTES - 32 : FILE_BYTES]))
            assert mark is not None
            assert mark.is_sure

    with_slaves(under_test, scenario)


@pytest.mark.parametrize("end", [1, 70_000, FILE_BYTES, FILE_BYTES + 5])
def test_a_slave_that_comes_back_goes_on_at_its_end(under_test: BrokerUnderTest, end: int) -> None:
    """Also in the middle of a record: it appends bytes, and knows no records."""
    log_end = fill(under_test)

    async def scenario(slaves: Slaves) -> None:
        async with slaves.slave(end) as slave:
            await slave.follow(log_end)
            assert slave.frames[0][0] == end
            assert slave.log == log_of(under_test, end)

    with_slaves(under_test, scenario)


def test_what_this_broker_could_still_lose_is_not_sent(under_test: BrokerUnderTest) -> None:
    """After a power cut other bytes may come to these offsets, and a slave cannot cut its log."""
    end = fill(under_test, 1)
    sync, under_test.sync = under_test.sync, lambda: None  # type: ignore[method-assign]

    async def scenario(slaves: Slaves) -> None:
        async with slaves.slave(0) as slave:
            await slave.follow(end)
            under_test.send(plain("unsynced"))
            assert await slave.frame() == 0, "a sign of life, 5 seconds later"
            sync()
            await slave.follow(under_test.store.end)

    with_slaves(under_test, scenario)


def test_with_a_standby_a_slave_gets_what_both_have(under_test: BrokerUnderTest) -> None:
    """If the standby takes over, the rest was never in its log."""
    end = fill(under_test, 1)
    under_test.store.copied_end = end
    fill(under_test, 1)

    async def scenario(slaves: Slaves) -> None:
        async with slaves.slave(0) as slave:
            await slave.follow(end)
            assert await slave.frame() == 0
            under_test.store.copied_end = under_test.store.end
            await slave.follow(under_test.store.end)

    with_slaves(under_test, scenario)


def test_an_idle_connection_stays_and_says_so(under_test: BrokerUnderTest) -> None:
    """Both sides repeat themselves each 5 seconds; a slave of RocketMQ 5 leaves after 20."""
    end = fill(under_test, 1)

    async def scenario(slaves: Slaves) -> None:
        async with slaves.slave(0) as slave:
            await slave.follow(end)
            loop = asyncio.get_running_loop()
            for _ in range(12):
                before_s = loop.time()
                assert await slave.frame() == 0
                assert BEAT_S - 0.1 < loop.time() - before_s < BEAT_S + 0.2
                slave.report()
            (status,) = slaves.port.status()
            assert (status.is_connected, status.end, status.behind_bytes) == (True, end, 0)

    with_slaves(under_test, scenario)


@pytest.mark.parametrize(
    ("reports", "sentence"),
    [
        ([1 << 40], "it cannot cut its own: remove its store"),
        ([-1], "no physical offset"),
        ([-5], "no physical offset"),
        ([int.from_bytes(b"GET / HT")], "it cannot cut its own"),
        ([100, 90], "it had 100"),
        ([100, 1 << 40], "was sent up to"),
    ],
)
def test_a_report_that_cannot_be_is_the_end_of_a_connection(
    under_test: BrokerUnderTest, reports: list[int], sentence: str
) -> None:
    """RocketMQ takes a forged first one for an acknowledgement, and never forgets it."""
    end = fill(under_test, 3)

    async def scenario(slaves: Slaves) -> None:
        async with slaves.slave(0) as other, slaves.slave() as slave:
            for each in reports:
                slave.report(each)
            assert await slave.is_closed()
            assert any(sentence in each for each in slaves.troubles()), slaves.troubles()
            await other.follow(end)
            assert other.log == log_of(under_test)

    with_slaves(under_test, scenario)


def test_a_slave_that_was_away_for_too_long_is_told_in_a_sentence(
    under_test: BrokerUnderTest,
) -> None:
    """RocketMQ sends it signs of life for ever, and no error."""
    fill(under_test)
    under_test.persist()
    under_test.store.drop_before(FILE_BYTES)

    async def scenario(slaves: Slaves) -> None:
        async with slaves.slave(5_000) as slave:
            assert await slave.is_closed()
        (trouble,) = slaves.troubles()
        assert f"up to 5000, and this broker has it from {FILE_BYTES} on: remove" in trouble
        async with slaves.slave(0) as slave:
            await slave.follow(under_test.store.end)
            assert slave.begin == FILE_BYTES, "at the beginning of a file, as an empty one needs"
            assert slaves.troubles() == [], "it follows again"

    with_slaves(under_test, scenario)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\0\0\0\0"])
def test_who_says_nothing_whole_is_closed(under_test: BrokerUnderTest, data: bytes) -> None:
    """After RocketMQ's own 20 seconds."""

    async def scenario(slaves: Slaves) -> None:
        loop = asyncio.get_running_loop()
        async with slaves.slave() as slave:
            slave.writer.write(data)
            begin_s = loop.time()
            assert await slave.is_closed()
            assert SILENCE_S - 0.5 < loop.time() - begin_s < SILENCE_S + 0.5

    with_slaves(under_test, scenario)


def test_a_report_of_one_byte_a_second_is_one(under_test: BrokerUnderTest) -> None:
    """It costs nothing, and nobody waits for it."""
    end = fill(under_test, 1)

    async def scenario(slaves: Slaves) -> None:
        async with slaves.slave() as slave:
            for byte in REPORT.pack(0):
                slave.writer.write(bytes([byte]))
                await asyncio.sleep(1)
            await slave.follow(end)

    with_slaves(under_test, scenario)


def test_a_slave_that_reads_nothing_holds_little_and_is_closed(
    under_test: BrokerUnderTest,
) -> None:
    """No more is read of the log than its connection takes."""
    end = fill(under_test, 200)

    async def scenario(slaves: Slaves) -> None:
        async with slaves.slave(0) as slave:
            slave.writer.transport.pause_reading()  # type: ignore[attr-defined]
            while slaves.port.status() == () or slaves.port.status()[0].is_connected:
                await asyncio.sleep(1)
            assert slaves.port.status()[0].end == 0
        async with slaves.slave(0) as slave:
            await slave.follow(end)

    with_slaves(under_test, scenario)


def test_a_port_full_of_silent_connections_takes_a_slave(under_test: BrokerUnderTest) -> None:
    """The oldest silent one goes; slaves that follow stay, and one too many is told."""
    end = fill(under_test, 1)

    async def scenario(slaves: Slaves) -> None:
        async with AsyncExitStack() as stack:
            silent = [await stack.enter_async_context(slaves.slave()) for _ in range(SLAVES_MAX)]
            followers = [
                await stack.enter_async_context(slaves.slave(0)) for _ in range(SLAVES_MAX)
            ]
            for each in followers:
                await each.follow(end)
            for each in silent:
                assert await each.is_closed()
            late = await stack.enter_async_context(slaves.slave(0))
            assert await late.is_closed()
            assert f"at most {SLAVES_MAX} slaves" in slaves.troubles()[0]
            fill(under_test, 1)
            for each in followers:
                await each.follow(under_test.store.end)

    with_slaves(under_test, scenario)


def test_only_addresses_of_brokers_allowed_may_come(under_test: BrokerUnderTest) -> None:
    """There is no account at this port."""

    async def scenario(slaves: Slaves) -> None:
        async with slaves.slave(0) as slave:
            assert await slave.is_closed()
        assert f"brokersAllowed does not name {HOST}" in slaves.troubles()[0]

    with_slaves(under_test, scenario, brokers_allowed="10.0.0.7")


def test_the_port_is_not_open_to_others_unasked(make: Make) -> None:
    """Also with accounts, which this protocol cannot carry."""
    config = make().config.model_copy(
        update={"acl_enabled": True, "ha_listen_port": 10_912, "bind_address": "0.0.0.0"}
    )
    with pytest.raises(ConfigInvalid, match="bindAddress"):
        check_exposure(config)
    allowed = config.model_copy(update={"allow_unauthenticated": True})
    check_exposure(allowed)
    assert "haListenPort=10912) can read every message" in open_ports(allowed)[0]


def test_a_broker_that_is_killed_goes_on_where_the_slave_is(make: Make) -> None:
    """After a restart of either, or both, no byte is sent twice, and none is missing."""
    under_test = make()
    end = fill(under_test)
    got = bytearray()

    async def some(slaves: Slaves) -> None:
        async with slaves.slave(len(got)) as slave:
            while slave.end < min(len(got) + 300_000, under_test.store.end):
                await slave.frame()
            got.extend(slave.log)

    while len(got) < end:
        with_slaves(under_test, some)
        under_test.crash()
        under_test.open()
    assert got == log_of(under_test)[: len(got)]


def test_a_captured_slave_gets_its_masters_log(make: Make) -> None:
    """The reports of a real 4.9 slave, at a broker with the log that it copied."""
    log = sent_log()
    under_test = make()
    folder = under_test.config.store_path / "commitlog"
    under_test.crash()
    folder.mkdir(exist_ok=True)
    (folder / f"{0:020d}").write_bytes(log.ljust(FILE_BYTES, b"\0"))
    under_test.open()
    assert under_test.store.end == len(log)

    async def scenario(slaves: Slaves) -> None:
        for reports in reports_of():
            async with slaves.slave(reports[0]) as slave:
                while slave.end < len(log):
                    await slave.frame()
                assert slave.log == log[max(0, slave.begin) :]
                for each, after in pairwise(reports):
                    assert each <= after
                    slave.report(after)
                # A connection that is refused would get no sign of life.
                assert await slave.frame() == 0

    with_slaves(under_test, scenario)
