"""POP consumers: RocketMQ 5's Java clients, to which the broker leases messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqlite.client import AdminClient
from rmqlite.features.request_modes.requests import RequestMode
from rmqlite.kernel.config.config import load_config
from rmqlite.kernel.words.names import dlq_topic
from rmqlite.protocols.remoting.bytes.requests.pop import (
    SET_MESSAGE_REQUEST_MODE,
    ModeChangeBody,
)
from rmqlite.testing import BrokerProcess
from tests.conformance.conftest import PROGRAMS, live_broker
from tests.support.eventually import eventually
from tests.support.programs import Program
from tests.support.remoting import RawClient

KeysIn = Callable[[str], Counter[str]]
SECONDS = [1, 1, 1]
"""Delays between retries; the client's own begin with 10 s, and it takes no shorter lease."""
INVISIBLE_MS = 5_000


def address_of(broker: BrokerProcess) -> str:
    return f"127.0.0.1:{load_config(broker.folder / 'broker.conf').listen_port}"


def make(broker: BrokerProcess, topic: str, *groups: str) -> None:
    with AdminClient(broker.endpoint, timeout_ms=60_000) as admin:
        admin.create_topic(topic, 4)
        for group in groups:
            admin.set_group(group, max_reconsume_times=2)


def behind(broker: BrokerProcess, group: str) -> int:
    """How many messages the group has not acknowledged; one in each queue."""
    with AdminClient(broker.endpoint, timeout_ms=60_000) as admin:
        return sum([each.lag for each in admin.group(group).progress])


@pytest.mark.parametrize("name", ["java-5", pytest.param("java-pop", marks=pytest.mark.long)])
def test_messages_are_consumed_failed_and_dead_lettered(
    name: str, broker: BrokerProcess, programs: Callable[[str], Program], keys_in: KeysIn
) -> None:
    """After mqadmin has set the group's mode; its members then ask the broker for their queues."""
    topic, group = f"popped-by-{name}", f"poppers-{name}"
    make(broker, topic, group)
    words = ["setConsumeMode", "-b", address_of(broker), "-t", topic, "-g", group, "-m", "POP"]
    printed = programs("java-5").mqadmin(*words, "-n", broker.name_server)
    assert f"topic[{topic}] group[{group}] consume mode[POP]" in printed
    java = programs(name)
    keys = [f"key-{number}" for number in range(40)]
    java.send(topic, *keys, "twice", "dead", tags="A")
    java.send(topic, "unwanted", tags="B")
    fails = {"twice": 2, "dead": 99}
    java.push(group, topic, expression="A", pop=SECONDS, invisible=INVISIBLE_MS, fails=fails)
    eventually(lambda: keys_in(dlq_topic(group))["dead"] == 1, "it is a dead letter")
    java.until(lambda: java.keys(group).count("twice") == 3, "it succeeds at last")
    assert Counter(java.keys(group)) == Counter([*keys, *["twice"] * 3, *["dead"] * 3])
    assert {event["topic"] for event in java.got(group)} == {topic}
    for key in ("twice", "dead"):
        assert [event["times"] for event in java.got(group, got=key)] == [0, 1, 2]
    java.do("stop", name=group)


@pytest.mark.long
def test_a_killed_broker_forgets_no_lease_and_no_ack(tmp_path: Path) -> None:
    """What was acknowledged never comes again; what is worked on can still be acknowledged; what
    nobody acknowledges comes again when its lease is over."""
    topic, slow, lost = "popped", "slow", "lost"
    with live_broker(tmp_path / "broker") as broker:
        make(broker, topic, slow, lost)
        with RawClient(address_of(broker)) as client:
            for group in (slow, lost):
                mode = ModeChangeBody(topic, group, RequestMode.POP)
                assert client.ask(SET_MESSAGE_REQUEST_MODE, None, mode).code == 0
        command = PROGRAMS["java-pop"]()
        with Program(command, broker.name_server, tmp_path / "java.log") as java:
            java.push(slow, topic, pop=SECONDS, invisible=60_000, holds=["held"])
            java.push(lost, topic, pop=SECONDS, invisible=INVISIBLE_MS, holds=["dropped"])
            for queue, key in enumerate(("held", "done", "dropped")):
                java.send(topic, key, queue=queue)
            eventually(lambda: behind(broker, slow) == behind(broker, lost) == 1, "two of each")
            broker.kill()
            broker.start()
            java.do("let", key="held")
            java.until(lambda: java.keys(lost).count("dropped") == 2, "its lease is over")
            assert [event["times"] for event in java.got(lost, got="dropped")] == [0, 1]
            java.send(topic, "later")
            java.until(lambda: java.keys().count("later") == 2, "both groups go on")
            assert Counter(java.keys(slow)) == Counter(["held", "done", "dropped", "later"])
            assert Counter(java.keys(lost)) == Counter(
                ["held", "done", "dropped", "dropped", "later"]
            )
