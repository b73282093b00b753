"""A standby follows a RocketMQ master: the same log, no junk in it, and the tables at hand."""

from __future__ import annotations

import json
import zlib
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from rmqlite.client import AdminClient, PullConsumer
from rmqlite.kernel.records import record
from rmqlite.kernel.words.errors import Refused, Unavailable
from rmqlite.protocols.remoting.bytes.requests.pop import GET_ALL_MESSAGE_REQUEST_MODE
from rmqlite.store_tools.check import check
from rmqlite.testing import BrokerProcess
from tests.support.brokers import BrokerUnderTest
from tests.support.eventually import eventually
from tests.support.ha_captures import captured, sent_log
from tests.support.made_brokers import Make
from tests.support.messages import TOPIC, delayed, plain
from tests.support.remoting import RawClient
from tests.support.rocketmq_masters import (
    DELAYS,
    MODES,
    OFFSETS,
    TOPICS,
    FakeMaster,
    fake_master,
    frame,
)
from tests.support.standbys import SMALL, replication

FILE_BYTES = 1 << 20
POPPED = (
    b'{"messageRequestModeMap":{"T":{"g":'
    b'{"consumerGroup":"g","mode":"POP","popShareQueueNum":1,"topic":"T"}}}}'
)
"""As RocketMQ 5.3 answers code 402."""
LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


def standby(folder: Path, master: FakeMaster, **more: str) -> BrokerProcess:
    own = {"brokerRole": "SLAVE", "masterAddress": master.address, "messageDelayLevel": LEVELS}
    return BrokerProcess(folder, {**SMALL, **own, "haMasterAddress": master.ha_address, **more})


def has(broker: BrokerProcess, end: int) -> bool:
    status = replication(broker)
    return status.is_connected and status.end == end and not status.behind_bytes


def trouble_of(broker: BrokerProcess, text: str) -> bool:
    return text in replication(broker).trouble


def log_of(broker: BrokerProcess, end: int) -> bytes:
    paths = sorted((broker.store / "commitlog").iterdir())
    return b"".join([path.read_bytes() for path in paths])[:end]


def promote(broker: BrokerProcess) -> None:
    """Its master has just gone."""

    def is_promoted() -> bool:
        with suppress(Refused), AdminClient(broker.endpoint) as admin:
            # Refused while it still hears the master.
            admin.promote()
            return True
        return False

    def is_master() -> bool:
        with suppress(Unavailable), AdminClient(broker.endpoint) as admin:
            return bool(admin.list_topics())
        return False

    eventually(is_promoted, "it is promoted")
    eventually(is_master, "it is the master")


@pytest.fixture(scope="module")
def captured_log() -> bytes:
    return sent_log()


@pytest.fixture
def long_log(make: Make) -> bytes:
    """Records over three files, as RocketMQ has them: without our marks."""
    under_test = make()
    under_test.send(*[plain("x" * 100_000) for _ in range(12)], delayed("waits", 17))
    under_test.send(*[plain("y" * 100_000) for _ in range(13)])
    return unmarked(under_test)


def unmarked(under_test: BrokerUnderTest) -> bytes:
    store = under_test.store
    log = bytearray(store.read(0, store.end))
    for end in range(FILE_BYTES, len(log), FILE_BYTES):
        log[end - 32 : end] = bytes(32)
    return bytes(log)


def test_a_captured_master_is_followed(tmp_path: Path, captured_log: bytes) -> None:
    """The log and the tables that a real 4.9 master gave its slave; then this one serves them."""
    bodies = {
        row["answers_request_code"]: (row.get("body_text") or json.dumps(row["body_json"])).encode()
        for row in captured()["slave-tables"]
        if row.get("dir") == "server->client"
    }
    with fake_master(captured_log, FILE_BYTES, LEVELS) as master:
        master.bodies |= bodies | {MODES: POPPED}
        with standby(tmp_path, master) as broker:
            eventually(lambda: has(broker, len(captured_log)), "it has all")
            eventually(lambda: master.reports[-1] == len(captured_log), "it has reported it")
            eventually(lambda: master.asked.count(DELAYS) > 1, "it has put the first of all tables")
            assert master.firsts[0] == 1, "from the first byte: 0 asks for the last file"
            assert master.reports == sorted(master.reports)
            assert log_of(broker, len(captured_log)) == captured_log
            master.stop()
            promote(broker)
            with AdminClient(broker.endpoint) as admin:
                assert {"T", "C1"} <= {each.topic for each in admin.list_topics()}
                assert "g" in {each.group for each in admin.list_groups()}
                assert admin.schedule.count_pending() == ()
            with RawClient(broker.remoting) as client:
                modes = client.ask(GET_ALL_MESSAGE_REQUEST_MODE).body
            with PullConsumer(broker.endpoint, "g") as consumer:
                committed = [consumer.committed(each) for each in consumer.queues("T")]
    table = json.loads(
        bodies[OFFSETS]
        .replace(b"{0:", b'{"0":')
        .replace(b",1:", b',"1":')
        .replace(b",2:", b',"2":')
        .replace(b",3:", b',"3":')
    )
    assert committed == [*table["offsetTable"]["T@g"].values()]
    assert json.loads(modes)["messageRequestModeMap"] == json.loads(POPPED)["messageRequestModeMap"]
    assert not list(check(broker.store))


def test_a_standby_that_is_killed_goes_on(tmp_path: Path, long_log: bytes) -> None:
    """At its end, in any piece; the log is the master's, also over the ends of files."""
    with ExitStack() as stack:
        master = stack.enter_context(fake_master(long_log[:700_000], FILE_BYTES, LEVELS))
        broker = stack.enter_context(standby(tmp_path, master))
        for end in (900_000, FILE_BYTES, FILE_BYTES + 10, 2_000_000, len(long_log)):
            master.log = long_log[:end]
            wanted = end - 120_000
            eventually(partial(reports_at_least, master, wanted), "it has nearly all")
            broker.kill()
            broker.start()
        eventually(lambda: has(broker, len(long_log)), "it has all")
        broker.stop()
    got = bytearray(log_of(broker, len(long_log)))
    for end in range(FILE_BYTES, len(got), FILE_BYTES):
        got[end - 32 : end] = bytes(32)
    assert got == long_log
    assert not list(check(broker.store))


def reports_at_least(master: FakeMaster, end: int) -> bool:
    return max([0, *master.reports]) >= end


def of_wrong_crc(log: bytes) -> bytes:
    head = record.read_head(log)
    assert head is not None
    return log[: head.body_position] + b"?" + log[head.body_position + 1 :]


def test_what_is_no_log_is_refused(tmp_path: Path, captured_log: bytes) -> None:
    """A real slave stores it, hangs, or ends in -4; this one asks again.

    Junk, another place, a size below 0, another body, a size beyond all, and a frame cut off.
    """
    cut_off = frame(1, captured_log[1:50], 400)
    with fake_master(captured_log, FILE_BYTES, LEVELS) as master:
        master.frames = [frame(1, b"\7" * 200)]
        with standby(tmp_path, master) as broker:
            for sent, sentence in (
                (master.frames[0], "no record"),
                (frame(0, b"\0" * 200), "at 0, not at 1"),
                (frame(1, b"", -4), "-4 bytes"),
                (frame(1, of_wrong_crc(captured_log)[1:]), "no record"),
                (frame(1, b"\7" * 100, 5 << 20), f"{5 << 20} bytes"),
                (cut_off, "ended the connection"),
            ):
                master.frames, asked = [sent], len(master.firsts)
                if sent == cut_off:
                    # It waits for the rest, until the connection ends.
                    eventually(lambda n=asked: len(master.firsts) > n, "it is connected")  # type: ignore[misc]
                    master.end_all()
                eventually(partial(trouble_of, broker, sentence), sentence)
                assert replication(broker).end in (0, len(captured_log)), sentence
            master.frames = []
            eventually(lambda: has(broker, len(captured_log)), "it has all")
            assert log_of(broker, len(captured_log)) == captured_log


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"mappedFileSizeCommitLog": "65536"}, "mappedFileSizeCommitLog=65536, as the master's"),
        ({"messageDelayLevel": "1s 2s"}, "messageDelayLevel=1s 2s, as the master's"),
    ],
)
def test_a_master_of_another_shape_is_not_followed(
    tmp_path: Path, captured_log: bytes, settings: dict[str, str], sentence: str
) -> None:
    """The copy would break at the end of a file, or be early."""
    with fake_master(captured_log, FILE_BYTES, LEVELS) as master:
        master.settings |= settings
        with standby(tmp_path, master) as broker:
            eventually(lambda: trouble_of(broker, sentence), sentence)
            assert master.firsts == []


def test_tables_that_are_refused_are_seen(tmp_path: Path, captured_log: bytes) -> None:
    """With accounts at the master, for one: a slave of RocketMQ writes that to its log only."""
    with fake_master(captured_log, FILE_BYTES, LEVELS) as master:
        master.refuses = {OFFSETS}
        with standby(tmp_path, master) as broker:
            sentence = f"refuses code {OFFSETS} with 1 no right"
            eventually(lambda: trouble_of(broker, sentence), sentence)


@pytest.mark.parametrize("kind", ["another", "shorter"])
def test_a_master_with_another_log_is_not_followed(
    tmp_path: Path, captured_log: bytes, kind: str
) -> None:
    """After a crash it may have lost what it had sent; RocketMQ's slave never finds out."""
    with fake_master(captured_log, FILE_BYTES, LEVELS) as master:
        with standby(tmp_path, master) as broker:
            eventually(lambda: has(broker, len(captured_log)), "it has all")
        changed = bytearray(captured_log)
        changed[-5] ^= 1
        master.log = bytes(changed) if kind == "another" else captured_log[:-100]
        with broker:
            eventually(lambda: trouble_of(broker, "remove the store of this broker"), "refused")
            assert log_of(broker, len(captured_log)) == captured_log


@pytest.mark.parametrize("is_whole", [True, False])
def test_what_a_level_has_delivered_counts_once_its_delivery_is_here(
    tmp_path: Path, make: Make, is_whole: bool
) -> None:
    """The tables come on another way than the log.  A message that counts as delivered would be
    lost if the log ends before its delivery; and it would come twice if it did not count."""
    under_test = make()
    under_test.send(delayed("waits", 1))
    first = under_test.store.end
    under_test.send(plain("its delivery"))
    log = unmarked(under_test)
    with fake_master(log, FILE_BYTES, LEVELS) as master:
        row = {"topicName": TOPIC, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        topics = {"dataVersion": {"counter": 1}, "topicConfigTable": {TOPIC: row}}
        master.bodies |= {DELAYS: b'{"offsetTable":{1:1}}', TOPICS: json.dumps(topics).encode()}
        master.frames = [] if is_whole else [frame(1, log[1:first])]
        end = len(log) if is_whole else first
        with standby(tmp_path, master) as broker:
            eventually(lambda: reports_at_least(master, end), "it has the first one")
            eventually(lambda: master.asked.count(DELAYS) > 2, "it knows what is delivered")
            master.stop()
            promote(broker)
            with AdminClient(broker.endpoint) as admin:
                eventually(lambda: not admin.schedule.count_pending(), "nothing waits any more")
                assert admin.broker_status().delivered == (0 if is_whole else 1)


def test_a_record_may_end_where_a_mark_of_ours_would_be(tmp_path: Path, make: Make) -> None:
    """RocketMQ leaves 8 bytes at the end of a file; this broker leaves 40."""
    under_test = make()
    under_test.send(plain("its topic is made"))
    begin = under_test.store.end
    under_test.send(plain("x"))
    end = under_test.store.end
    under_test.send(*[plain("x" * (400 << 10)) for _ in range(2)])
    log = bytearray(under_test.store.read(0, under_test.store.end))
    first = bytes(log[begin:end])
    log += stretched(first, FILE_BYTES - len(log) - 12, len(log), 4)
    log += record.encode_blank(12).ljust(12, b"\0")
    assert len(log) == FILE_BYTES
    log += stretched(first, len(first), len(log), 5)
    with fake_master(bytes(log), FILE_BYTES, LEVELS) as master:
        with standby(tmp_path, master) as broker:
            eventually(lambda: has(broker, len(log)), "it has all")
        with broker:
            eventually(lambda: has(broker, len(log)), "it has all again")
        got = bytearray(log_of(broker, len(log)))
        # Of a mark that this broker has written before, behind the 8 bytes of the blank.
        got[FILE_BYTES - 4 : FILE_BYTES] = bytes(4)
        assert got == log
    assert not list(check(broker.store))


def stretched(first: bytes, size: int, place: int, queue_offset: int) -> bytes:
    """The record of a message in another place of the log, with a body so that it has this size."""
    head = record.read_head(first)
    assert head is not None
    body = b"z" * (head.body_end - head.body_position + size - len(first))
    made = bytearray(first[: head.body_position] + body + first[head.body_end :])
    made[:4] = len(made).to_bytes(4)
    made[8:12] = (zlib.crc32(body) & 0x7FFF_FFFF).to_bytes(4)
    made[20:28] = queue_offset.to_bytes(8)
    made[28:36] = place.to_bytes(8)
    made[head.body_position - 4 : head.body_position] = len(body).to_bytes(4)
    return bytes(made)
