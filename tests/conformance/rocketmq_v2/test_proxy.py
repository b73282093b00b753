"""RocketMQ's proxy in front of two brokers: what push consumers get, and one broker killed.

What simple consumers get there: test_messages.py.  With --rocketmq.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from rmqlite.client import AdminClient
from rmqlite.features.dead_letters.requests import DeadLetter
from tests.conformance.rocketmq_v2.conftest import Place, behind_their_proxy, folder_for_rocketmq
from tests.support.eventually import eventually
from tests.support.grpc_clients import GrpcClient, on_each

pytestmark = pytest.mark.xdist_group("proxy")
MESSAGES = 40


@pytest.fixture(scope="module")
def behind(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    yield from behind_their_proxy(folder_for_rocketmq(request, tmp_path_factory))


def set_groups(place: Place, name: str, *, orderly: bool = False) -> None:
    for broker in place.brokers:
        with AdminClient(broker.endpoint) as admin:
            for client in place.clients:
                group, policy = f"{client.name}-{name}", "1s 1s"
                admin.set_group(group, max_reconsume_times=2, retry_policy=policy, orderly=orderly)


def dead(place: Place, group: str) -> list[DeadLetter]:
    found = []
    for broker in place.brokers:
        with AdminClient(broker.endpoint) as admin:
            found += list(admin.letters.dead(group))
    return found


def test_a_failed_message_comes_again_and_at_last_is_a_dead_letter(behind: Place) -> None:
    """The proxy does it with commands of a broker that nobody else sends."""
    behind.make_for_each("fails")
    set_groups(behind, "failing")

    def scenario(client: GrpcClient) -> None:
        topic, group = f"{client.name}-fails", f"{client.name}-failing"
        client.push(group, topic, fails={"once": 1, "always": 99})
        client.send(topic, "never", "once", "always")
        client.until(lambda: client.keys(group).count("always") == 3, "1 + 2 deliveries")
        client.until(lambda: client.keys(group).count("once") == 2, "it comes again")
        eventually(lambda: len(dead(behind, group)) == 1, "it is a dead letter")
        assert Counter(client.keys(group)) == {"never": 1, "once": 2, "always": 3}

    on_each(behind.clients, scenario)


def test_messages_of_a_group_come_in_order(behind: Place) -> None:
    """All of a group go to one queue of one broker."""
    behind.make_for_each("ordered")
    set_groups(behind, "orderly", orderly=True)

    def scenario(client: GrpcClient) -> None:
        topic, group = f"{client.name}-ordered", f"{client.name}-orderly"
        for number in range(6):
            client.send(topic, f"o{number}", ordered="first")
            client.send(topic, f"p{number}", ordered="second")
        client.push(group, topic)
        client.until(lambda: {"o5", "p5"} <= set(client.keys(group)), "all of them arrive")
        for prefix, name in (("o", "first"), ("p", "second")):
            assert client.keys(group, ordered=name) == [f"{prefix}{n}" for n in range(6)]

    on_each(behind.clients, scenario)


def test_a_transaction_is_committed_or_rolled_back(behind: Place) -> None:
    """The proxy lets a broker ask about those of topics of the type TRANSACTION only; ours are
    MIXED.
    """
    behind.make_for_each("transacted")

    def scenario(client: GrpcClient) -> None:
        topic, group = f"{client.name}-transacted", f"{client.name}-readers"
        client.push(group, topic)
        client.do("transact", topic=topic, decides={"now": "commit", "gone": "rollback"})
        client.do("transact", topic=topic, decides={"last": "commit"})
        client.until(lambda: {"now", "last"} <= set(client.keys(group)), "two arrive")
        assert Counter(client.keys(group)) == {"now": 1, "last": 1}

    on_each(behind.clients, scenario)


def test_a_broker_is_killed_and_all_that_was_acknowledged_arrives(behind: Place) -> None:
    """What the killed one has arrives when it is back; sends go to the other one meanwhile."""
    behind.make_for_each("killed")
    sent: dict[str, list[str]] = {client.name: [] for client in behind.clients}

    def send(client: GrpcClient, first: int) -> None:
        for number in range(first, first + MESSAGES):
            key = f"k{number}"
            said = client.do("send", topic=f"{client.name}-killed", group="senders", keys=[key])
            sent[client.name] += [key for event in said if "sent" in event]

    on_each(behind.clients, lambda client: send(client, 0))
    behind.brokers[1].kill()
    on_each(behind.clients, lambda client: send(client, MESSAGES))
    behind.brokers[1].start()

    def scenario(client: GrpcClient) -> None:
        group = f"{client.name}-survivors"
        client.push(group, f"{client.name}-killed")
        assert len(sent[client.name]) > MESSAGES, "the other broker takes them"
        client.until(lambda: set(sent[client.name]) <= set(client.keys(group)), "all arrive")

    on_each(behind.clients, scenario)
