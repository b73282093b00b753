"""The delay levels of a running broker: its file and SIGHUP, an administrator, and SIGKILL."""

from __future__ import annotations

import os
import re
import signal

import pytest

from rmqlite.client import AdminClient, Message, Producer, PullConsumer
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import DelayUnknown
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import StartBroker
from tests.support.eventually import eventually

HOUR_MS = 3_600_000


def edit(broker: BrokerProcess, levels: str) -> None:
    """Edit the broker's file and tell it so."""
    conf = broker.folder / "broker.conf"
    conf.write_text(
        re.sub("(?m)^messageDelayLevel=.*", f"messageDelayLevel={levels}", conf.read_text())
    )
    os.kill(broker.pid, signal.SIGHUP)


def test_levels_are_edited_refused_set_and_killed(start_broker: StartBroker) -> None:
    """What waits keeps its time throughout; the later change wins, also after a SIGKILL."""
    broker = start_broker(messageDelayLevel="1s 2h", maxPullWait=600_000)
    with Producer(broker.endpoint, "makers") as producer, AdminClient(broker.endpoint) as admin:
        old = producer.send(Message("orders", b"old", delay_level=2))
        edit(broker, "1s 1h 1d")
        eventually(lambda: admin.levels().message_delay_level == "1s 1h 1d", "the edit is in force")
        new = producer.send(Message("orders", b"new", delay_level=2))
        assert abs(new.deliver_at_ms - wall_ms() - HOUR_MS) < HOUR_MS // 2
        rows = {row.level: row for row in admin.change_levels("1s 1h", dry_run=True).levels}
        assert (rows[2].pending, rows[2].next_due_ms) == (2, new.deliver_at_ms)

        edit(broker, "1s 1H")
        log = broker.folder / "broker.log"
        eventually(lambda: "level 2 is '1H'" in log.read_text(), "the refusal is logged")
        assert admin.levels().message_delay_level == "1s 1h 1d"

        admin.change_levels("1s 3h")
        edit(broker, "1s 1h 1d")
        broker.kill()
        broker.start()
        in_force = admin.levels()
        assert (in_force.message_delay_level, in_force.configured) == ("1s 3h", "1s 1h 1d")
        newest = producer.send(Message("orders", b"newest", delay_level=2))
        assert abs(newest.deliver_at_ms - wall_ms() - 3 * HOUR_MS) < HOUR_MS // 2
        (waiting,) = [each for each in admin.broker_status().levels if each.level == 2]
        assert (waiting.pending, waiting.next_due_ms) == (3, new.deliver_at_ms)
        assert old.deliver_at_ms - new.deliver_at_ms > HOUR_MS // 2

        # The producer has the table, and it changes under its hands.
        by_length = Message("orders", b"by length", delay="3h")
        assert producer.send(by_length).deliver_at_ms > wall_ms() + 2 * HOUR_MS
        admin.change_levels("3h 1s")
        assert producer.send(by_length).deliver_at_ms > wall_ms() + 2 * HOUR_MS
        admin.change_levels("1h 2h")
        with pytest.raises(DelayUnknown, match="the levels are 1h 2h"):
            producer.send(by_length)

        # Behind all of these in the same queue, and still in time.
        admin.change_levels("1h 1s")
        (sent,) = producer.send_batch([Message("orders", b"quick", delay_level=2)])
        with PullConsumer(broker.endpoint, "readers", timeout_ms=300_000) as consumer:
            (quick,) = consumer.pull("orders", sent.queue_id, wait_ms=180_000).messages
        assert quick.body == b"quick"
        assert 0 <= quick.store_timestamp_ms - sent.deliver_at_ms < HOUR_MS // 2
