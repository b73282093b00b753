"""What waits in a real broker, seen and changed from the command line, through a SIGKILL."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rmqlite.cli.main import app
from rmqlite.client import Message, Producer, PullConsumer
from rmqlite.features.changes.requests import ChangeOutcome
from rmqlite.protocols.remoting.bytes.requests.sends import RECALL_MESSAGE, Recall
from tests.support.broker_processes import StartBroker, free_port
from tests.support.eventually import eventually
from tests.support.remoting import RawClient
from tests.support.thinned import by_turns

LEVELS = "1s 30m 1h 2h"
MANY = 3_000
WAITS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("dropped", {"delay_level": 2}, {"deliver_after": "30m"}),
    ("wanted", {"delay_level": 3}, {"deliver_after": "400d"}),
    ("later", {"delay_level": 2}, {"deliver_after": "30m1s"}),
    ("soon", {"delay_level": 1}, {"deliver_after": "1s"}),
]
"""Names, and for what they wait: a level or an instant."""


class Shell:
    """Runs rmqlite schedule against one broker."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def __call__(self, command: str, *, exit_code: int = 0) -> Result:
        env = {"RMQLITE_ENDPOINT": self.endpoint, "COLUMNS": "80"}
        result = CliRunner().invoke(app, ["schedule", *command.split()], env=env)
        assert result.exit_code == exit_code, result.output
        return result

    def tree(self, command: str) -> Any:
        return json.loads(self(f"{command} --json").stdout)

    def counts(self) -> dict[str, int]:
        """How many wait, by topic."""
        return {each["topic"]: each["pending"] for each in self.tree("count --by topic")["counts"]}


def bodies(endpoint: str, topic: str) -> list[bytes]:
    """What was delivered to the first queue."""
    with PullConsumer(endpoint, "lookers") as consumer:
        return [each.body for each in consumer.pull(topic, 0, 0).messages]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("by", "timers"), by_turns(["id", "offset id", "key"], [False, True]))
def test_each_message_says_what_became_of_it_also_after_a_kill(
    start_broker: StartBroker, by: str, timers: bool
) -> None:
    """One cancelled, one fired, one delayed anew, one that came by itself; each exactly that."""
    broker = start_broker(messageDelayLevel=LEVELS)
    shell = Shell(broker.endpoint)
    with Producer(broker.endpoint, "senders") as producer:
        results = {
            name: producer.send(
                Message("orders", name.encode(), keys=name, **(wait if timers else level)),
                queue_id=0,
            )
            for name, level, wait in WAITS
        }
        sent = {
            name: each.offset_message_id if by == "offset id" else each.message_id
            for name, each in results.items()
        }
        eventually(lambda: bodies(broker.endpoint, "orders") == [b"soon"], "it is delivered")

        def change(action: str, name: str, exit_code: int = 0) -> str:
            """Do it, and give what was said behind the id."""
            which = f"--key {name} --topic orders --yes" if by == "key" else sent[name]
            said = shell(f"{action} {which}", exit_code=exit_code).stdout
            assert said.startswith(f"{sent[name]}  ")
            return said.removeprefix(f"{sent[name]}  ").strip()

        assert change("cancel", "dropped") == "done"
        assert change("fire", "wanted") == "done"
        assert change("reschedule --to 2h", "later").startswith("done, due ")
        broker.kill()
        broker.start()
        shell.endpoint = broker.endpoint
        assert change("cancel", "dropped", 1) == "already cancelled"
        assert change("fire", "wanted", 1) == "already delivered"
        assert change("reschedule --to 2h", "soon", 1) == "already delivered"
    assert bodies(broker.endpoint, "orders") == [b"soon", b"wanted"]
    (waiting,) = shell.tree("list")["messages"]
    assert (waiting["message_id"], waiting["level"]) == (results["later"].message_id, 4)


def test_thousands_are_listed_counted_and_changed_by_a_filter(start_broker: StartBroker) -> None:
    """List, count and timeline agree before and after; only what fits is changed."""
    broker = start_broker(messageDelayLevel=LEVELS)
    shell = Shell(broker.endpoint)
    with Producer(broker.endpoint, "senders") as producer:
        producer.send_batch(
            [Message(("orders", "stock")[n % 2], b"x", delay_level=2 + n % 3) for n in range(MANY)]
        )
        assert shell.counts() == {"orders": MANY // 2, "stock": MANY // 2}
        listed = shell.tree(f"list --topic stock --max {MANY}")
        dues = [each["deliver_at_ms"] for each in listed["messages"]]
        assert (len(dues), dues, listed["cursor"]) == (MANY // 2, sorted(dues), "")
        assert sum(each["pending"] for each in shell.tree("timeline")["buckets"]) == MANY

        shell("cancel --topic stock --level 2h", exit_code=2)
        sixth = f"{MANY // 6:,} messages"
        assert shell("cancel --topic stock --level 2h --dry-run").stdout.startswith(sixth)
        assert shell.counts() == {"orders": MANY // 2, "stock": MANY // 2}
        assert shell("cancel --topic stock --level 2h --yes").stdout == f"{sixth} cancelled\n"
        assert shell("fire --topic stock --until +45m --yes").stdout == f"{sixth} delivered now\n"
        shell("cancel --topic stock --level 2h --yes", exit_code=1)
        all_orders = f"{MANY // 2:,} messages rescheduled to level 4 (2h)\n"
        assert shell("reschedule --topic orders --to 2h --yes").stdout == all_orders
        counts = shell.tree("count")["counts"]
        assert [(each["level"], each["topic"], each["pending"]) for each in counts] == [
            (3, "stock", MANY // 6),
            (4, "orders", MANY // 2),
        ]


def test_a_producer_takes_its_message_back(start_broker: StartBroker) -> None:
    """Once; and not one that it sent to another topic."""
    broker = start_broker(messageDelayLevel=LEVELS)
    with Producer(broker.endpoint, "senders") as producer:
        sent = producer.send(Message("orders", b"x", delay="1h"))
        outcomes = [
            producer.cancel(sent.message_id, "stock").outcome,
            producer.cancel(sent.message_id, "orders").outcome,
            producer.cancel(sent.message_id).outcome,
        ]
    assert outcomes == [
        ChangeOutcome.NOT_FOUND,
        ChangeOutcome.DONE,
        ChangeOutcome.ALREADY_CANCELLED,
    ]
    assert Shell(broker.endpoint)("list").stdout == ""


def test_a_client_of_rocketmq_recalls_by_the_handle_of_ours(start_broker: StartBroker) -> None:
    """Who sends and who recalls may be two services, in two languages."""
    port = free_port()
    broker = start_broker(listenPort=port)
    timer = Message("orders", b"x", deliver_after="1d12h")
    past = Message("orders", b"past", deliver_at=1_000_000_000_000)
    with Producer(broker.endpoint, "senders") as producer:
        sent = producer.send(timer)
        handle = producer.recall_handle(timer, sent)
        assert not producer.recall_handle(past, producer.send(past))
        with RawClient(f"127.0.0.1:{port}") as client:
            asked = Recall("orders", handle, "others")
            answers = [client.ask(RECALL_MESSAGE, asked) for _ in range(2)]
        assert [answer.code for answer in answers] == [0, 604]
        assert answers[0].ext["msgId"] == sent.message_id
        assert "is cancelled already" in answers[1].remark
        assert producer.cancel(sent.message_id).outcome is ChangeOutcome.ALREADY_CANCELLED
    assert Shell(broker.endpoint)("list").stdout == ""
