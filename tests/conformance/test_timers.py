"""Timers and recalls of RocketMQ's own Java clients, against a broker process.

That of RocketMQ 5 has setters for them; one of 4.9 sets the same properties by their names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from rmqlite.client import AdminClient
from rmqlite.features.changes.requests import PendingFilter
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.testing import BrokerProcess
from tests.support.programs import Event, Program

FOUR_MIB: Final = 4 << 20
COMPRESSION_BYTES: Final = 4_096
"""Random bytes do not shrink: they grow a little."""
HOUR_MS: Final = 3_600_000


def make(broker: BrokerProcess, topic: str) -> None:
    with AdminClient(broker.endpoint, timeout_ms=60_000) as admin:
        admin.create_topic(topic, 4)


def send(java: Program, topic: str, key: str, **timer: Any) -> Event:
    more = {name: timer.pop(name) for name in ("size", "random", "queue") if name in timer}
    (sent,) = java.send(topic, key, timer=timer, **more)
    return sent


def came(java: Program, group: str, key: str) -> tuple[int, int]:
    """For when a message was due, and when it came into its topic."""
    java.until(lambda: key in java.keys(group), f"{key} arrives")
    (event,) = java.got(group, got=key)
    assert event["stored"] >= int(event["out"]), "never early"
    return int(event["out"]), event["stored"]


@pytest.fixture
def java_5(programs: Callable[[str], Program]) -> Program:
    return programs("java-5")


def test_a_timer_of_every_setter_comes_when_it_is_due(
    java_5: Program, broker: BrokerProcess
) -> None:
    """To the millisecond, the largest body and a chosen queue included."""
    topic, group = "java-timers", "timer-readers"
    make(broker, topic)
    java_5.push(group, topic)
    now_ms = wall_ms()
    assert send(java_5, topic, "ms", setDelayTimeMs=1_234)["handle"]
    send(java_5, topic, "sec", setDelayTimeSec=2)
    send(java_5, topic, "at", setDeliverTimeMs=now_ms + 5_789)
    send(java_5, topic, "past", setDeliverTimeMs=now_ms - HOUR_MS)
    size = FOUR_MIB - COMPRESSION_BYTES
    send(java_5, topic, "large", setDelayTimeMs=1_000, size=size, random=True)
    for key, delay_ms in (("second", 6_000), ("first", 1_000)):
        sent = send(java_5, topic, key, setDelayTimeMs=delay_ms, queue=3)
        assert sent["queue"] == 3
    for key, delay_ms in (("ms", 1_234), ("sec", 2_000), ("first", 1_000), ("large", 1_000)):
        assert came(java_5, group, key)[0] >= now_ms + delay_ms
    assert came(java_5, group, "at")[0] == now_ms + 5_789
    assert came(java_5, group, "first")[1] < came(java_5, group, "second")[1]
    java_5.until(lambda: "past" in java_5.keys(group), "a past instant is now")
    (large,) = java_5.got(group, got="large")
    assert large["size"] == size
    java_5.do("stop", name=group)


def test_a_timer_is_recalled_once_and_then_the_client_is_told_so(
    java_5: Program, broker: BrokerProcess
) -> None:
    """The remark stands in the exception; RocketMQ says each time that it has been recalled."""
    topic, group = "java-recalls", "recall-readers"
    make(broker, topic)
    java_5.push(group, topic)
    sent = send(java_5, topic, "gone", setDelayTimeMs=HOUR_MS)
    late = send(java_5, topic, "late", setDelayTimeMs=1_000)
    asked = {"topic": topic, "group": "recallers"}
    said = java_5.do("recall", handle=sent["handle"], **asked)
    assert [event["recalled"] for event in said if "recalled" in event] == [sent["id"]]
    came(java_5, group, "late")
    for handle, why in ((sent["handle"], "cancelled"), (late["handle"], "delivered")):
        said = java_5.do("recall", handle=handle, **asked)
        (refused,) = [event["refused"] for event in said if "refused" in event]
        assert "CODE: 604" in refused
        assert f"is {why} already" in refused
    with AdminClient(broker.endpoint, timeout_ms=60_000) as admin:
        assert not list(admin.schedule.pending(PendingFilter(topic=topic)))
    java_5.do("stop", name=group)


def test_timers_of_a_batch_and_of_a_transaction_wait(java: Program, broker: BrokerProcess) -> None:
    """RocketMQ delivers those of a batch at once, and those of a transaction never.

    That of RocketMQ 5.5 refuses to send the first, and drops the properties of the second.
    """
    topic, group = "java-timed", "java-timed-readers"
    make(broker, topic)
    java.push(group, topic)
    begin_ms = wall_ms()
    timer = {"TIMER_DELAY_MS": 2_000}
    (sent,) = java.send(topic, "b1", "b2", how="batch", timer=timer)
    assert sent["status"] == "SEND_OK"
    asked = {"group": "timed-transactors", "topic": topic, "timer": timer}
    java.do("transact", decides={"tx": "COMMIT_MESSAGE"}, **asked)
    for key in ("b1", "b2", "tx"):
        assert came(java, group, key)[0] >= begin_ms + 2_000
    java.do("stop", name=group)


def test_what_cannot_be_kept_is_refused_in_the_clients_exception(
    any_java: Program, broker: BrokerProcess
) -> None:
    """With the name of the property and the rule."""
    make(broker, "java-refused")
    for property_name, value, why in (
        ("TIMER_DELAY_SEC", 2**62, "timerMaxDelaySec"),
        ("TIMER_OUT_MS", 1, "sent again"),
    ):
        with pytest.raises(AssertionError, match=f"CODE: 13 .*{property_name}.*{why}"):
            send(any_java, "java-refused", "k", **{property_name: value})
