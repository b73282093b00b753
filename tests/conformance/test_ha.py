"""RocketMQ's own slaves follow this broker, and take over; its masters are followed.

With --rocketmq; Maven fetches the brokers.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rmqlite.client import AdminClient, Message, Producer
from rmqlite.features.request_modes.requests import RequestMode
from rmqlite.kernel.requests.broker import BrokerStatus
from rmqlite.kernel.words.clock import pause_s, wall_ms
from rmqlite.kernel.words.errors import Refused, Unavailable
from rmqlite.protocols.remoting.bytes.requests.pop import (
    SET_MESSAGE_REQUEST_MODE,
    ModeChangeBody,
)
from rmqlite.store_tools.check import check
from rmqlite.store_tools.moving.handover import hand_over
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import free_port
from tests.support.eventually import eventually
from tests.support.remoting import RawClient
from tests.support.rocketmq import LOG_FILE_BYTES, POM, QUEUE_FILE_BYTES, delivered, rocketmq
from tests.support.standbys import SMALL, bodies_of
from tests.support.toolchains import classpath

pytestmark = pytest.mark.xdist_group("ha")

TOPIC = "orders"
LEVELS = "1s 5s 90s 2h"
TIMERS_S = 75
"""After that all timers are due: RocketMQ starts twice, and copies tables once a minute."""
SLAVES = ("4.9.7", "5.3.2")


@pytest.fixture(autouse=True)
def _wanted(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--rocketmq"):
        pytest.skip("RocketMQ's own brokers run with --rocketmq")
    for version in SLAVES:
        classpath(POM, version)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[BrokerProcess]:
    ports = {key: str(free_port()) for key in ("haListenPort", "nameServerPort", "listenPort")}
    sizes = {"maxHashSlotNum": "100", "maxIndexNum": "500"}
    sizes |= {"mappedFileSizeConsumeQueue": str(QUEUE_FILE_BYTES)}
    about = {"brokersAllowed": "127.0.0.1", "messageDelayLevel": LEVELS}
    with BrokerProcess(tmp_path / "ours", {**SMALL, **sizes, **ports, **about}) as broker:
        yield broker


def of_slave(master: BrokerProcess, **more: Any) -> dict[str, Any]:
    """Its keys, beside those of any RocketMQ broker of the tests."""
    keys = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": master.name_server}
    keys |= {"brokerClusterName": "DefaultCluster", "messageDelayLevel": LEVELS}
    return keys | {"mappedFileSizeCommitLog": LOG_FILE_BYTES} | more


def status(broker: BrokerProcess) -> BrokerStatus:
    with AdminClient(broker.endpoint) as admin:
        return admin.broker_status()


def has_all(master: BrokerProcess) -> bool:
    found = status(master)
    return any(each.is_connected and each.end == found.log_max_offset for each in found.replication)


def log_of(root: Path, end: int) -> bytes:
    files = sorted((root / "commitlog").iterdir())
    return b"".join([path.read_bytes() for path in files])[:end]


def is_popped(root: Path, group: str) -> bool:
    """Does RocketMQ's table of modes there say so?"""
    with suppress(OSError, ValueError):
        table = json.loads((root / "config" / "messageRequestMode.json").read_text())
        modes: dict[str, Any] = table["messageRequestModeMap"]
        return bool(modes.get(TOPIC, {}).get(group, {}).get("mode") == "POP")
    return False


@pytest.mark.parametrize("version", SLAVES)
def test_a_slave_of_rocketmq_follows_and_takes_over(
    master: BrokerProcess, tmp_path: Path, version: str
) -> None:
    """Killed and started again meanwhile: then the handover, and RocketMQ goes on as the master.

    It delivers what was promised, once, and nothing that was cancelled.
    """
    root, folder = tmp_path / "store", tmp_path / "theirs"
    folder.mkdir()
    due: dict[str, int] = {}
    with Producer(master.endpoint, "shop") as producer, AdminClient(master.endpoint) as admin:

        def send(name: str, **delay: Any) -> str:
            result = producer.send(Message(TOPIC, name.encode(), **delay))
            due[result.message_id] = result.deliver_at_ms
            return result.message_id

        for number in range(30):
            producer.send(Message(TOPIC, bytes(60_000), keys=(f"key-{number}",)))
        with rocketmq(folder, root, version, **of_slave(master)) as slave:
            eventually(lambda: has_all(master), "the slave has all")
            (registered,) = status(master).registered
            assert registered.broker_id == 1
            if version.startswith("5"):
                with RawClient(master.remoting) as client:
                    mode = ModeChangeBody(TOPIC, "poppers", RequestMode.POP)
                    assert client.ask(SET_MESSAGE_REQUEST_MODE, None, mode).code == 0
                eventually(lambda: is_popped(root, "poppers"), "the slave has the mode")
            slave.kill()
        cancelled = []
        wait = timedelta(seconds=TIMERS_S)
        for number in range(20):
            soon = send(f"timer {number}", deliver_after=wait + timedelta(seconds=number % 3))
            level = send(f"level {number}", delay_level=3)
            cancelled += [soon, level] if number % 4 == 1 else []
        admin.schedule.cancel(*cancelled)
        delivered_here = send("delivered here", delay_level=1)
        with rocketmq(folder, root, version, **of_slave(master)):
            eventually(lambda: has_all(master), "the slave has all again")
            eventually(lambda: status(master).delivered == 1, "one is delivered")
            producer.send(Message(TOPIC, b"the last one"))
            eventually(lambda: has_all(master), "the slave has all")
            end = status(master).log_max_offset
    master.kill()
    assert log_of(master.store, end) == log_of(root, end)
    found = hand_over(root, version[:3])
    assert found.pending == 15
    keys = of_slave(master, brokerRole="ASYNC_MASTER", brokerId=0)
    del keys["namesrvAddr"]
    keys["messageDelayLevel"] = found.levels or LEVELS
    with rocketmq(folder, root, version, **keys):
        until_ms = max(due.values()) + 8_000
        while wall_ms() < until_ms:
            pause_s(0.5)
    ended = Counter(name for name, _ in delivered(root))
    assert ended[delivered_here] == 1
    assert {name: ended[name] for name in due} == {name: int(name not in cancelled) for name in due}
    early = [name for name, at_ms in delivered(root) if name in due and at_ms < due[name]]
    assert not early


@pytest.mark.parametrize("version", SLAVES)
def test_a_standby_follows_a_master_of_rocketmq(tmp_path: Path, version: str) -> None:
    """And takes its place when it is killed: what waited comes once, what was recalled never."""
    root, folder = tmp_path / "store", tmp_path / "theirs"
    folder.mkdir()
    due: dict[str, int] = {}
    # However busy the machine is.
    keys = {"messageDelayLevel": "1s 5s 45s 2h", "waitTimeMillsInSendQueue": "60000"}
    with ExitStack() as stack:
        theirs = stack.enter_context(rocketmq(folder, root, version, **keys))
        conf = (folder / "broker.conf").read_text()
        port, ha = [int(each) for each in re.findall("istenPort=([0-9]+)", conf)]
        if version.startswith("4"):
            # Whatever its configuration says.
            ha = port + 1
        settings = {**SMALL, "messageDelayLevel": keys["messageDelayLevel"]}
        settings |= {"brokerRole": "SLAVE", "haMasterAddress": f"127.0.0.1:{ha}"}
        settings |= {"masterAddress": f"127.0.0.1:{port}"}
        for number in range(30):
            theirs.send(f"filler-{number}".ljust(20_000, "x"))
        for number in range(5):
            theirs.send(f"soon-{number}", DELAY=1)
            theirs.send(f"later-{number}", DELAY=3)
            due[f"later-{number}"] = wall_ms() + 44_000
            if version.startswith("5"):
                for name, after_ms in {"timer": 40_000, "recalled": 40_000, "fast": 2_000}.items():
                    due[f"{name}-{number}"] = wall_ms() + after_ms
                    at_ms = due[f"{name}-{number}"]
                    handle = theirs.send(f"{name}-{number}", TIMER_DELIVER_MS=at_ms)
                    if name == "recalled":
                        theirs.recall(handle["recallHandle"])
        ours = stack.enter_context(BrokerProcess(tmp_path / "ours", settings))
        eventually(lambda: not lacks(ours), "the standby has all")
        eventually(
            lambda: (
                not {"soon-4", *(["fast-4"] if version[0] == "5" else [])}
                - {name for name, _ in delivered(root)}
            ),
            "RocketMQ has delivered the first ones",
        )
        pause_s(6)
        theirs.kill()
        with AdminClient(ours.endpoint) as admin:
            eventually(lambda: promoted(admin), "the standby is the master")
            eventually(lambda: is_served(ours), "it serves")
        while wall_ms() < max(due.values()) + 5_000:
            pause_s(0.5)
        found = Counter(body.decode().rstrip("x") for body in bodies_of(ours, TOPIC))
    wanted = {f"{name}-{number}" for name in ("soon", "later") for number in range(5)}
    if version.startswith("5"):
        wanted |= {f"{name}-{number}" for name in ("timer", "fast") for number in range(5)}
    wanted |= {f"filler-{number}" for number in range(30)}
    assert found == Counter(wanted)
    assert not list(check(ours.store))


def lacks(standby: BrokerProcess) -> bool:
    (found,) = status(standby).replication
    return not found.is_connected or found.behind_bytes > 0 or not found.end


def promoted(admin: AdminClient) -> bool:
    """False while it still hears the master."""
    with suppress(Refused):
        admin.promote()
        return True
    return False


def is_served(broker: BrokerProcess) -> bool:
    with suppress(Unavailable), AdminClient(broker.endpoint) as admin:
        return any(each.topic == TOPIC for each in admin.list_topics())
    return False
