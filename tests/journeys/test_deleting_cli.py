"""An operator deletes topics and groups and resets offsets, with a real broker and consumers."""

from __future__ import annotations

import json
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
)
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import StartBroker
from tests.support.eventually import eventually

BODIES = ["0", "1", "2", "3", "4"]


class Shell:
    """Runs commands against one broker."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def __call__(self, command: str, *, exit_code: int = 0) -> Result:
        env = {"RMQLITE_ENDPOINT": self._broker.endpoint, "COLUMNS": "80"}
        result = CliRunner().invoke(app, command.split(), env=env)
        assert result.exit_code == exit_code, result.output
        return result

    def tree(self, command: str) -> Any:
        return json.loads(self(f"{command} --json").stdout)


class Consumer:
    """A member of billing that takes everything."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.given: list[str] = []
        self._consumer = PushConsumer(broker.endpoint, "billing", self._listen)
        self._consumer.subscribe("orders")

    def _listen(self, message: StoredMessage) -> ConsumeResult:
        self.given.append(message.body.decode())
        return CONSUME_SUCCESS

    def __enter__(self) -> Consumer:
        self._consumer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def send(broker: BrokerProcess, *bodies: str, **how: Any) -> None:
    with Producer(broker.endpoint, "makers") as producer:
        for body in bodies:
            producer.send(Message("orders", body.encode(), **how), queue_id=0)


def consume(broker: BrokerProcess, *bodies: str) -> None:
    """Run a consumer until it was given exactly these, in order."""
    with Consumer(broker) as consumer:
        eventually(lambda: len(consumer.given) == len(bodies), "all came")
    assert consumer.given == list(bodies)


def test_a_group_gets_messages_again_and_skips_others(start_broker: StartBroker) -> None:
    """Refused while a member lives, previewed, done, and true for the next consumer."""
    broker = start_broker()
    shell = Shell(broker)
    send(broker, *BODIES)
    with Consumer(broker) as consumer:
        eventually(lambda: len(consumer.given) == 5, "all came")
        refused = shell("group reset-offset billing --to earliest --yes", exit_code=1)
        assert "'billing' has 1 live member (stop its consumers first" in refused.stderr
    before = shell("group reset-offset billing --to earliest --dry-run")
    assert "would reset group billing: 5 messages to come again, 0 to be skipped" in before.stdout
    shell("group reset-offset billing --topic orders --queue 0 --offset 3 --yes")
    consume(broker, "3", "4")
    (*_, head) = [
        each
        for each in shell.tree("group reset-offset billing --to 2020-01-01 --yes")["queues"]
        if each["queue"] == {"topic": "orders", "queue_id": 0}
    ]
    assert (head["before"], head["after"], head["again"], head["skipped"]) == (5, 0, 5, 0)
    consume(broker, *BODIES)
    shell("group reset-offset billing --to latest --yes", exit_code=1)
    send(broker, "skipped")
    shell("group reset-offset billing --to latest --yes")
    send(broker, "new")
    consume(broker, "new")


def test_a_deleted_group_begins_anew(start_broker: StartBroker) -> None:
    """Its settings and offsets are gone; a member that lives stops the deletion."""
    broker = start_broker()
    shell = Shell(broker)
    send(broker, *BODIES)
    shell("group set billing --max-reconsume-times 3")
    with Consumer(broker) as consumer:
        eventually(lambda: len(consumer.given) == 5, "all came")
        refused = shell("group delete billing --yes", exit_code=1)
        assert "stop its consumers first, or force it" in refused.stderr
    assert shell.tree("group delete billing --dry-run")["info"]["max_reconsume_times"] == 3
    assert [each["group"] for each in shell.tree("group list")] == ["billing"]
    assert "deleted group billing" in shell("group delete billing --yes").stdout
    assert shell.tree("group list") == []
    shell("group delete billing --yes", exit_code=1)
    consume(broker, *BODIES)
    assert shell.tree("group show billing")["info"]["max_reconsume_times"] == 16


def test_a_deleted_topic_is_gone_with_what_is_shown_before(start_broker: StartBroker) -> None:
    """What waits for it becomes a dead letter; the broker's own topics stay."""
    broker = start_broker(messageDelayLevel="1s 1h")
    shell = Shell(broker)
    send(broker, *BODIES)
    consume(broker, *BODIES)
    send(broker, "unread")
    send(broker, "later", delay_level=1)
    shell("topic delete orders", exit_code=2)
    seen = shell.tree("topic delete orders --dry-run")
    assert (seen["messages"] - seen["unread"], seen["dry_run"]) == (5, True)
    assert [each["group"] for each in seen["readers"]] == ["billing"]
    said = shell("topic delete orders --yes").stdout
    assert "billing" in said
    assert said.endswith("deleted topic orders\n")
    shell("topic show orders", exit_code=1)
    shell("topic delete SCHEDULE_TOPIC_XXXX --yes", exit_code=1)
    with AdminClient(broker.endpoint) as admin:
        status = admin.group("billing")
        assert not [each for each in status.progress if each.queue.topic == "orders"]
