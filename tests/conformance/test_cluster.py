"""RocketMQ's Java client and mqadmin over several brokers that make one cluster.

By default all of them are rmqlite's, and so are the name servers: no JVM but the client's.  With
--rocketmq the same is done at RocketMQ 4.9's name server, with its broker beside one of ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.names import dlq_topic
from rmqlite.testing import BrokerProcess
from tests.conformance.conftest import CLIENTS, LEVELS, live_broker
from tests.support import toolchains
from tests.support.broker_processes import free_port
from tests.support.eventually import eventually
from tests.support.java_server import name_server
from tests.support.programs import Event, Program
from tests.support.rocketmq import rocketmq

pytestmark = pytest.mark.xdist_group("cluster")

PLACES = (
    "three of rmqlite",
    "one of rmqlite beside RocketMQ's",
    "RocketMQ's at the name server of rmqlite",
)
LOCAL = "127.0.0.1"
GONE_S_MAX = 60.0
"""A broker whose connection has ended is gone at once, not when it expires after 120 s."""


@dataclass(slots=True)
class Cluster:
    """name_servers: as clients get them.  brokers: those of rmqlite, by name; names: all."""

    name_servers: str
    names: list[str]
    brokers: dict[str, BrokerProcess] = field(default_factory=dict)


@contextmanager
def of_rmqlite(folder: Path) -> Iterator[Cluster]:
    """Three brokers; two of them are the name servers, too."""
    ports = [free_port(), free_port()]
    name_servers = ";".join([f"{LOCAL}:{port}" for port in ports])
    cluster = Cluster(name_servers, ["one", "two", "three"])
    with ExitStack() as stack:
        for name, port in zip(cluster.names, [*ports, free_port()], strict=True):
            keys = {"brokerName": name, "namesrvAddr": name_servers, "brokersAllowed": LOCAL}
            broker = live_broker(folder / name, **keys, nameServerPort=port, **QUICK)
            cluster.brokers[name] = stack.enter_context(broker)
        yield cluster


@contextmanager
def beside_rocketmq(folder: Path) -> Iterator[Cluster]:
    """RocketMQ's name server with a broker of its own, and one of ours."""
    with name_server(folder / "names") as address:
        keys: dict[str, Any] = {"brokerName": "theirs", "namesrvAddr": address}
        keys |= {"messageDelayLevel": LEVELS, "brokerClusterName": "DefaultCluster", **QUICK}
        keys |= {"enablePropertyFilter": "true"}
        (folder / "theirs").mkdir()
        ours = live_broker(folder / "ours", brokerName="ours", namesrvAddr=address, **QUICK)
        with rocketmq(folder / "theirs", folder / "store", "4.9.7", **keys), ours:
            yield Cluster(address, ["ours", "theirs"], {"ours": ours})


@contextmanager
def at_ours(folder: Path) -> Iterator[Cluster]:
    """One of ours, at whose name server RocketMQ's broker registers."""
    port = free_port()
    address = f"{LOCAL}:{port}"
    keys: dict[str, Any] = {"brokerName": "theirs", "namesrvAddr": address}
    keys |= {"messageDelayLevel": LEVELS, "brokerClusterName": "DefaultCluster", **QUICK}
    keys |= {"enablePropertyFilter": "true"}
    (folder / "theirs").mkdir(parents=True)
    about = {"brokerName": "ours", "brokersAllowed": LOCAL}
    ours = live_broker(folder / "ours", **about, nameServerPort=port, **QUICK)
    with ours, rocketmq(folder / "theirs", folder / "store", "4.9.7", **keys):
        yield Cluster(address, ["ours", "theirs"])


QUICK = {"transactionTimeOut": 500, "transactionCheckInterval": 500}


@pytest.fixture(scope="module", params=PLACES)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """One cluster for all tests of the module."""
    if request.param != PLACES[0] and not request.config.getoption("--rocketmq"):
        pytest.skip("RocketMQ's own name server and broker run with --rocketmq")
    make = dict(zip(PLACES, (of_rmqlite, beside_rocketmq, at_ours), strict=True))[request.param]
    with make(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def java(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The client; it knows the name servers only, and each of them knows all brokers."""
    log = tmp_path_factory.mktemp("client") / "java.log"
    with Program(toolchains.java(), cluster.name_servers, log) as program:
        for server in cluster.name_servers.split(";"):
            eventually(partial(knows_all, cluster, program, server), f"{server} knows all")
        yield program


Make = Callable[..., None]


@pytest.fixture
def make(cluster: Cluster, java: Program) -> Make:
    """Makes a topic on all brokers, and returns when all of them are in its route."""

    def made(topic: str, queues: int = 4) -> None:
        words = f"updateTopic -c DefaultCluster -t {topic} -r {queues} -w {queues}"

        def have_it() -> bool:
            # Again: mqadmin passes over a broker that does not answer it in time.
            mqadmin(cluster, java, words)
            return brokers_of(cluster, java, topic) == set(cluster.names)

        eventually(have_it, "all have it")

    return made


def mqadmin(cluster: Cluster, java: Program, line: str) -> str:
    return java.mqadmin(*line.split(), "-n", cluster.name_servers)


def brokers_at(name_servers: str, java: Program) -> list[list[str]]:
    """The lines of mqadmin's list of brokers, each as its words."""
    printed = java.mqadmin("clusterList", "-n", name_servers)
    return [line.split() for line in printed.splitlines() if line.startswith("DefaultCluster")]


def knows_all(cluster: Cluster, java: Program, name_server: str) -> bool:
    """A broker that started before a name server registers there after a pause of its own."""
    return {line[1] for line in brokers_at(name_server, java)} == set(cluster.names)


def brokers_of(cluster: Cluster, java: Program, topic: str) -> set[str]:
    """The brokers in a topic's route, as a client gets it."""
    printed = mqadmin(cluster, java, f"topicRoute -t {topic}")
    return {name for name in cluster.names if f'"brokerName":"{name}"' in printed}


def has_got(java: Program, reader: str, expected: Counter[str]) -> bool:
    return Counter(java.keys(reader)) == expected


def keys(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def test_mqadmin_sees_all_brokers(cluster: Cluster, java: Program) -> None:
    """Each with its address and its figures, which it asks every broker for."""
    lines = brokers_at(cluster.name_servers, java)
    assert {line[1] for line in lines} == set(cluster.names), lines
    assert all(line[4].startswith("V4_9") for line in lines), lines


def test_sends_are_spread_and_each_message_comes_once(
    cluster: Cluster, java: Program, make: Make
) -> None:
    """Forty of them, to each broker as many as to each other one."""
    make("spread")
    count = 20 * len(cluster.names)
    sent = java.send("spread", *keys("s", count))
    by_broker = Counter(event["at"][:16] for event in sent)
    assert set(by_broker.values()) == {20}, by_broker
    java.push("spread-readers", "spread")
    java.until(lambda: len(java.got("spread-readers")) >= count, "all are consumed")
    assert Counter(java.keys("spread-readers")) == Counter(keys("s", count))
    java.do("stop", name="spread-readers")


def test_delays_retries_and_dead_letters_work_on_each_broker(
    cluster: Cluster, java: Program, make: Make
) -> None:
    """A message waits, fails and dies on the broker that it was sent to."""
    make("delayed", queues=1)
    levels = range(1, LEVELS.split().index("2h") + 1)
    expected = []
    for level in levels:
        names = keys(f"level{level}-", len(cluster.names))
        java.send("delayed", *names, level=level)
        expected += names
    fails = {key: 99 for key in keys("dies", len(cluster.names))}
    java.push("delayed-readers", "delayed", fails=fails, max=1, level=1)
    java.send("delayed", *fails)
    total = len(expected) + 2 * len(fails)
    java.until(lambda: len(java.got("delayed-readers")) >= total, "all are consumed")
    found = Counter(java.keys("delayed-readers"))
    assert found == Counter(expected) + Counter([*fails, *fails])
    java.push("dead-readers", dlq_topic("delayed-readers"))
    java.until(lambda: len(java.got("dead-readers")) >= len(fails), "all are dead letters")
    assert Counter(java.keys("dead-readers")) == Counter([*fails])
    for name in ("dead-readers", "delayed-readers"):
        java.do("stop", name=name)


def test_two_members_share_the_queues_of_all_brokers_in_order(
    cluster: Cluster, java: Program, make: Make
) -> None:
    """They lock a queue at the broker that has it."""
    make("ordered", queues=2)
    members = ("orderly-1", "orderly-2")
    for name in members:
        java.do(
            "push", name=name, group="orderly", topics=["ordered"], expression="*", orderly=True
        )
    queues = 2 * len(cluster.names)
    expected = []
    for queue in range(queues):
        names = keys(f"q{queue}-", 5)
        java.send("ordered", *names, queue=queue)
        expected += names

    def got() -> list[Event]:
        return [event for name in members for event in java.got(name)]

    java.until(lambda: len(got()) >= len(expected), "all are consumed")
    assert Counter(event["got"] for event in got()) == Counter(expected)
    for queue in range(queues):
        numbers = [each for name in members for each in java.keys(name) if f"q{queue}-" in each]
        assert numbers == keys(f"q{queue}-", 5)
    for name in members:
        java.do("stop", name=name)


def test_transactions_are_checked_back_by_the_broker_that_has_the_half(
    cluster: Cluster, java: Program, make: Make
) -> None:
    """Each broker asks the producers that are connected to it."""
    make("transacted")
    names = keys("half", 2 * len(cluster.names))
    decides, checks = dict.fromkeys(names, "UNKNOW"), dict.fromkeys(names, "COMMIT_MESSAGE")
    java.push("transaction-readers", "transacted")
    java.do("transact", group="transactors", topic="transacted", decides=decides, checks=checks)
    java.until(lambda: len(java.got("transaction-readers")) >= len(names), "all are committed")
    assert Counter(java.keys("transaction-readers")) == Counter(names)
    java.do("stop", name="transaction-readers")


def test_requests_broadcasts_pulls_and_sql_work_over_all_brokers(
    cluster: Cluster, java: Program, make: Make
) -> None:
    """What a client does with one broker it does with each of them."""
    make("mixed")
    names = keys("m", 4 * len(cluster.names))
    make("asked")
    java.do("answer", group="answerers", topic="asked")
    for key in keys("ask", len(cluster.names)):
        said = java.do("request", group="askers", topic="asked", key=key)
        assert [event["reply"] for event in said if "reply" in event] == [f"{key}!"]
    for name in ("all-1", "all-2"):
        java.do("push", name=name, group="all", topics=["mixed"], expression="*", broadcast=True)
    java.push("large", "mixed", sql="amount > 5")
    java.send("mixed", *names, properties={"amount": "9"})
    java.send("mixed", *keys("small", 4), properties={"amount": "1"})
    everything = Counter([*names, *keys("small", 4)])
    for reader in ("all-1", "all-2"):
        java.until(partial(has_got, java, reader, everything), reader)
    java.until(partial(has_got, java, "large", Counter(names)), "the large ones")
    java.do("pull", group="pullers", name="pull", topic="mixed", expression="*")
    assert Counter(java.keys("pull")) == everything
    for name in ("answerers", "all-1", "all-2", "large"):
        java.do("stop", name=name)


@pytest.mark.long
@pytest.mark.parametrize("name", ["go", "cpp"])
def test_go_and_cpp_send_and_consume_over_all_brokers(
    cluster: Cluster, java: Program, make: Make, name: str, tmp_path: Path
) -> None:
    """Each message once, one that fails twice, and as a dead letter at the end."""
    topic, group = f"{name}-cluster", f"{name}-cluster-readers"
    make(topic)
    names = keys("s", 8 * len(cluster.names))
    mqadmin(cluster, java, f"updateSubGroup -c DefaultCluster -g {group} -r 1")
    with Program(CLIENTS[name](), cluster.name_servers, tmp_path / f"{name}.log") as client:
        client.push(group, topic, fails={"dies": 99}, max=1, level=1)
        for key in names:
            # One by one: the C++ client sends back all that it has pulled with one that fails.
            client.send(topic, key)
        client.until(lambda: len(client.got(group)) >= len(names), "all are consumed")
        client.send(topic, "dies")
        client.until(lambda: client.keys(group).count("dies") == 2, "it comes again")
        assert Counter(client.keys(group)) == Counter([*names, "dies", "dies"])
        client.do("stop", name=group)
    java.push(f"{name}-dead", dlq_topic(group))
    java.until(lambda: java.keys(f"{name}-dead") == ["dies"], "it is a dead letter")
    java.do("stop", name=f"{name}-dead")


def test_a_deleted_topic_is_in_no_route(cluster: Cluster, java: Program, make: Make) -> None:
    """Also where the name server does not forget topics."""
    make("deleted")
    mqadmin(cluster, java, "deleteTopic -c DefaultCluster -t deleted")
    eventually(lambda: not brokers_of(cluster, java, "deleted"), "it has no route")


def test_the_rest_goes_on_without_a_broker(
    cluster: Cluster, java: Program, make: Make, is_long: bool
) -> None:
    """After SIGKILL it is soon in no route; after SIGTERM no send fails at all."""
    if not cluster.brokers:
        pytest.skip("the one broker of ours is also the one name server")
    make("going-on")
    name, broker = [*cluster.brokers.items()][-1]
    sent = 0
    for round_number in range(3 if is_long else 1):
        broker.stop()
        names = keys(f"stopped{round_number}-", 50)
        sent += len(java.send("going-on", *names))
        broker.start()
        eventually(lambda: name in brokers_of(cluster, java, "going-on"), "it is there again")
    broker.kill()
    began_s = elapsed_s()
    while name in mqadmin(cluster, java, "clusterList"):
        # mqadmin itself may take some seconds on a busy machine.
        assert elapsed_s() - began_s < GONE_S_MAX
    sent += len(java.send("going-on", *keys("killed", 50)))
    broker.start()
    java.push("going-on-readers", "going-on")
    java.until(lambda: len({*java.keys("going-on-readers")}) == sent, "all are consumed")
    java.do("stop", name="going-on-readers")
