"""Failed messages in a real broker, seen and dealt with from the command line, through SIGKILLs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer.testing import CliRunner, Result

from rmqlite.cli.main import app
from rmqlite.client import (
    CONSUME_SUCCESS,
    AdminClient,
    ConsumeResult,
    Message,
    Producer,
    PushConsumer,
    reconsume_later,
)
from rmqlite.features.redrive.requests import RedriveSpec
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import StartBroker
from tests.support.eventually import eventually
from tests.support.fake_schedule import HOSTILE

LEVELS = "1s 2s 1h 2h 3h"
"""A first retry waits at level 3, far longer than this test."""


class Shell:
    """Runs rmqlite against one broker, which may have been started again meanwhile."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker

    def __call__(self, command: str, *args: str, exit_code: int = 0) -> Result:
        env = {"RMQLITE_ENDPOINT": self.broker.endpoint, "COLUMNS": "80"}
        result = CliRunner().invoke(app, [*command.split(), *args], env=env)
        assert result.exit_code == exit_code, result.output
        return result

    def tree(self, command: str) -> Any:
        return json.loads(self(f"{command} --json").stdout)

    def attempts(self) -> dict[str, int]:
        """Of what is retried in billing: which attempt comes next, by key."""
        found = self.tree("retry list billing")["letters"]
        return {each["keys"][0]: each["attempt"] for each in found}

    def events(self, message_id: str) -> list[tuple[str, int]]:
        """The kinds of a history's events, and how often it had failed by then."""
        life = self.tree(f"message history {message_id}")
        return [(each["kind"], each["attempt"]) for each in life["hops"]]


@contextmanager
def failing(endpoint: str) -> Iterator[list[StoredMessage]]:
    """A member of billing that fails everything but what is redriven; what it was given."""
    given: list[StoredMessage] = []

    def listen(message: StoredMessage) -> ConsumeResult:
        given.append(message)
        if "REDRIVEN_FROM" in message.properties:
            return CONSUME_SUCCESS
        key = message.keys[0]
        return reconsume_later(reason=f"{key} declined, time {message.reconsume_times + 1}")

    with PushConsumer(endpoint, "billing", listen) as consumer:
        consumer.subscribe("orders")
        consumer.start()
        yield given


def sent(broker: BrokerProcess, *keys: str) -> dict[str, str]:
    """Message ids by key."""
    with Producer(broker.endpoint, "senders") as producer:
        return {
            key: producer.send(
                Message("orders", b"x", keys=key, tags="paid"), queue_id=0
            ).message_id
            for key in keys
        }


def is_committed(broker: BrokerProcess) -> bool:
    """Is it on disk that billing has read three messages of the first queue of orders?"""
    table = broker.store / "config" / "consumerOffset.json"
    return table.exists() and '"orders@billing":{0:3' in table.read_text()


def test_a_message_is_followed_from_its_first_failure_to_its_redrive(
    start_broker: StartBroker,
) -> None:
    """Listed with its reason, retried at once, cancelled, dead, sent again; the life tells all."""
    broker = start_broker(messageDelayLevel=LEVELS, flushConsumerOffsetInterval=100)
    shell = Shell(broker)
    with AdminClient(broker.endpoint) as admin:
        admin.set_group("billing", max_reconsume_times=2)
    ids = sent(broker, "dies", "dropped", "later")
    with failing(broker.endpoint):
        eventually(lambda: len(shell.attempts()) == 3, "all have failed")
    # Or they would be read, and fail, once more after the kill: at least once.
    eventually(lambda: is_committed(broker), "that they were read is on disk")
    before = shell.tree("retry list billing"), shell.tree(f"message history {ids['dies']}")
    broker.kill()
    broker.start()
    after = shell.tree("retry list billing"), shell.tree(f"message history {ids['dies']}")
    assert [each["letters"] for each in (before[0], after[0])] == [after[0]["letters"]] * 2
    assert [event["offset_message_id"] for event in before[1]["hops"]] == [
        event["offset_message_id"] for event in after[1]["hops"]
    ]
    assert (after[0]["waiting"], after[0]["due"], after[0]["attempts_max"]) == (3, 0, 3)
    reasons = {each["keys"][0]: each["reason"] for each in after[0]["letters"]}
    assert reasons["dies"] == "dies declined, time 1"

    with failing(broker.endpoint):
        assert shell("retry now billing", ids["dies"]).stdout == f"{ids['dies']}  done\n"
        eventually(lambda: shell.attempts().get("dies") == 3, "it has failed again")
        said = shell("retry cancel billing --reason DROPPED --yes").stdout
        assert said == "1 message cancelled\n"
        assert shell("retry now billing --tag paid --yes").stdout == "2 messages retried\n"
        eventually(lambda: shell.attempts() == {"later": 3}, "one has died, one goes on")
    too_late = shell("retry now billing", ids["dies"], exit_code=1).stdout
    assert too_late.endswith("does not wait any more: it was given to billing already\n")
    too_late = shell("retry cancel billing", ids["dropped"], exit_code=1).stdout
    assert too_late.endswith("does not wait any more: it was cancelled or buried\n")
    whole = [("sent", 0), ("failed", 1), ("fired", 1), ("failed", 2), ("fired", 2), ("dead", 3)]
    assert shell.events(ids["dies"]) == whole
    assert shell.events(ids["dropped"]) == [("sent", 0), ("failed", 1), ("cancelled", 1)]
    shown = " ".join(shell("message history", ids["dies"]).stdout.split())
    assert "dead in billing after 3 attempts: dies declined, time 3" in shown
    assert shown.count("declined, time") == 3

    with failing(broker.endpoint) as given, AdminClient(broker.endpoint) as admin:
        job = admin.redrives.start(RedriveSpec("billing"))
        eventually(lambda: admin.redrives.job(job.job_id).is_over, "it is sent again")
        eventually(lambda: len(given) == 1, "it is read again")
    broker.kill()
    broker.start()
    life = shell.tree(f"message history {ids['dies']}")
    redriven = life["hops"][-1]
    assert (redriven["kind"], redriven["job_id"]) == ("redriven", job.job_id)
    assert redriven["message_id"] != ids["dies"]
    for name in (redriven["message_id"], redriven["offset_message_id"]):
        assert shell.events(name) == [*whole, ("redriven", 0)]
    shown = " ".join(shell("message history", ids["dies"]).stdout.split())
    assert f"sent again by job {job.job_id} to group billing, as {redriven['message_id']}" in shown


def test_looking_appends_nothing_and_consumes_nothing(start_broker: StartBroker) -> None:
    """Reasons and keys that would drive a terminal are only shown."""
    broker = start_broker(messageDelayLevel="1s")
    shell = Shell(broker)
    with Producer(broker.endpoint, "senders") as producer:
        message_id = producer.send(Message("orders", b"x", keys="\u202ekey")).message_id

    def listen(_: StoredMessage) -> ConsumeResult:
        return reconsume_later(reason=f"first {HOSTILE}\nsecond")

    with PushConsumer(broker.endpoint, "billing", listen) as consumer:
        consumer.subscribe("orders")
        consumer.start()
        eventually(lambda: len(shell.events(message_id)) > 2, "it was retried")
    with AdminClient(broker.endpoint) as admin:
        eventually(lambda: shell.tree("retry list billing")["due"] == 1, "its retry is due")
        before = admin.broker_status().log_max_offset, admin.group("billing").progress
        shown = [shell("retry list billing").stdout, shell("message history", message_id).stdout]
        shell("retry now billing", message_id, "--dry-run", exit_code=1)
        shell("retry cancel billing --all --dry-run", exit_code=1)
        assert (admin.broker_status().log_max_offset, admin.group("billing").progress) == before
    assert "due, waits for a consumer" in shown[0]
    assert "billing has no member now" in shown[1]
    for text in shown:
        assert "owned" in text
        assert text.replace("\n", "").isprintable()
