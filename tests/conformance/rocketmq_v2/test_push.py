"""Push consumers of the official gRPC clients: failures up to the dead letter, and order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from typer.testing import CliRunner

from rmqlite.cli.main import app
from rmqlite.client import AdminClient
from rmqlite.testing import BrokerProcess
from tests.support.eventually import eventually
from tests.support.grpc_clients import GrpcClient, on_each


def shell(broker: BrokerProcess, words: str) -> str:
    done = CliRunner().invoke(app, words.split(), env={"RMQLITE_ENDPOINT": broker.endpoint})
    assert done.exit_code == 0, done.output
    return done.output


def test_a_failed_message_comes_again_and_at_last_is_a_dead_letter(
    clients: list[GrpcClient], admin: AdminClient, v2_broker: BrokerProcess
) -> None:
    """1 + 2 deliveries with their numbers; who fails once is not dead; the others are not late."""
    for client in clients:
        admin.create_topic(f"{client.name}-fails", 4)
        admin.set_group(f"{client.name}-failing", max_reconsume_times=2, retry_policy="1s 1s")

    def scenario(client: GrpcClient) -> None:
        topic, group = f"{client.name}-fails", f"{client.name}-failing"
        client.push(group, topic, fails={"once": 1, "always": 99})
        client.send(topic, "never", "once", "always", tags="TagA", properties={"colour": "red"})
        client.until(lambda: client.keys(group).count("always") == 3, "1 + 2 deliveries")
        client.until(lambda: client.keys(group).count("once") == 2, "it comes again")
        eventually(lambda: len(list(admin.letters.dead(group))) == 1, "it is a dead letter")
        attempts = {
            key: [event["attempt"] for event in client.got(group, got=key)]
            for key in ("never", "once", "always")
        }
        assert attempts == {"never": [1], "once": [1, 2], "always": [1, 2, 3]}
        assert {(e["topic"], e["tags"]) for e in client.got(group)} == {(topic, "TagA")}
        (letter,) = admin.letters.dead(group)
        assert (letter.origin_topic, letter.delivery_attempts) == (topic, 3)

    on_each(clients, scenario)
    for client in clients:
        assert "always" in shell(v2_broker, f"dlq show {client.name}-failing")
        assert shell(v2_broker, f"dlq redrive {client.name}-failing --yes")


def test_a_waiting_retry_is_seen_and_given_now(
    clients: list[GrpcClient], admin: AdminClient, v2_broker: BrokerProcess
) -> None:
    """The commands for retries work as for any other client; the consumer sees attempt 2."""
    for client in clients:
        admin.create_topic(f"{client.name}-waits", 4)
        admin.set_group(f"{client.name}-waiting", retry_policy="2h")

    def scenario(client: GrpcClient) -> None:
        topic, group = f"{client.name}-waits", f"{client.name}-waiting"
        client.push(group, topic, fails={"waits": 1})
        client.send(topic, "waits")
        client.until(lambda: client.keys(group) == ["waits"], "it comes once")

    on_each(clients, scenario)
    for client in clients:
        group = f"{client.name}-waiting"
        eventually(lambda group=group: "waits" in shell(v2_broker, f"retry list {group}"), group)  # type: ignore[misc]
        shell(v2_broker, f"retry now {group} --all --yes")
        client.until(lambda: len(client.got(group)) == 2, "it comes again")  # noqa: B023
        assert [event["attempt"] for event in client.got(group)] == [1, 2]


def test_messages_of_a_group_come_in_order_and_a_failing_one_holds_up_its_own_only(
    clients: list[GrpcClient], admin: AdminClient
) -> None:
    """Then it is a dead letter, and those behind it come."""
    for client in clients:
        admin.create_topic(f"{client.name}-ordered", 2)
        group = f"{client.name}-orderly"
        admin.set_group(group, max_reconsume_times=2, retry_policy="1s 1s", orderly=True)

    def scenario(client: GrpcClient) -> None:
        topic, group = f"{client.name}-ordered", f"{client.name}-orderly"
        for number in range(6):
            client.send(topic, f"o{number}", ordered="first")
            client.send(topic, f"p{number}", ordered="second")
        client.push(group, topic, fails={"o2": 1, "p3": 99})
        client.until(lambda: {"o5", "p5"} <= set(client.keys(group)), "all of them arrive")
        for prefix, name in (("o", "first"), ("p", "second")):
            came = client.keys(group, ordered=name)
            assert list(once(came)) == [f"{prefix}{number}" for number in range(6)], came
        assert client.keys(group).count("o2") == 2
        assert client.keys(group).count("p3") == 3
        eventually(lambda: len(list(admin.letters.dead(group))) == 1, "it is a dead letter")

    on_each(clients, scenario)


def once(keys: list[str]) -> Iterator[str]:
    """Each key once, if the same one came several times in a row."""
    return (key for key, _ in groupby(keys))
