"""Three brokers make a cluster, one is killed, the others go on: python3 examples/cluster.py

Two of the brokers are its name servers, too.  RocketMQ's Java client, if Java and Maven are
there, sends to the cluster; rmqlite's own producers and consumers each work with one broker.  The
exit code is 0 if every acknowledged message was consumed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqlite.client import AdminClient
    from rmqlite.testing import BrokerProcess

NAMES = ("broker-a", "broker-b", "broker-c")
KILLED = "broker-c"
TOPIC = "orders"
MESSAGES = 20
SECONDS_MAX = 120.0
JAVA = Path(__file__).parent / "java"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running_cluster(folder: Path) -> Iterator[tuple[dict[str, BrokerProcess], str]]:
    """The brokers by name, and the addresses of the name servers."""
    from rmqlite.testing import BrokerProcess

    ports = [free_port() for _ in NAMES]
    # Each broker has a name server; the first two are the cluster's.
    name_servers = ";".join([f"127.0.0.1:{port}" for port in ports[:2]])
    brokers = {}
    with ExitStack() as stack:
        for name, port in zip(NAMES, ports, strict=True):
            keys = {"brokerName": name, "nameServerPort": str(port), "listenPort": str(free_port())}
            keys |= {"namesrvAddr": name_servers, "brokersAllowed": "127.0.0.1"}
            keys |= {"diskSpaceWarningLevelRatio": "100"}
            brokers[name] = stack.enter_context(BrokerProcess(folder / name, keys))
        yield brokers, name_servers


class JavaProducer:
    """RocketMQ's Java client: it asks the name servers, and sends to all brokers in turn."""

    def __init__(self, name_servers: str, folder: Path) -> None:
        paths = folder / "classpath"
        build = ["mvn", "-q", "-B", "-f", str(JAVA / "pom.xml"), "dependency:build-classpath"]
        subprocess.run([*build, f"-Dmdep.outputFile={paths}"], check=True)
        self._command = ["java", "-cp", paths.read_text(), str(JAVA / "Sender.java"), name_servers]

    def send(self, prefix: str, count: int) -> Counter[str]:
        """How many messages each broker has acknowledged."""
        command = [*self._command, TOPIC, prefix, str(count)]
        ran = subprocess.run(command, check=True, capture_output=True, text=True)
        return Counter(ran.stdout.split())


class Readers:
    """A consumer at each broker; got: how often each message came."""

    def __init__(self) -> None:
        self.got: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._consumers = ExitStack()

    def begin(self, endpoint: str) -> None:
        from rmqlite.client import CONSUME_SUCCESS, ConsumeResult, PushConsumer, StoredMessage

        def listen(message: StoredMessage) -> ConsumeResult:
            with self._lock:
                self.got[message.body.decode()] += 1
            return CONSUME_SUCCESS

        consumer = self._consumers.enter_context(PushConsumer(endpoint, "order-readers", listen))
        consumer.subscribe(TOPIC)
        consumer.start()

    def wait_for(self, count: int) -> None:
        until = time.monotonic() + SECONDS_MAX
        while len(self.got) < count and time.monotonic() < until:
            time.sleep(0.05)

    def close(self) -> None:
        self._consumers.close()


def send(endpoint: str, prefix: str) -> int:
    """Send with rmqlite's own client to one broker."""
    from rmqlite.client import Message, Producer

    with Producer(endpoint, "order-senders") as producer:
        producer.send_batch([Message(TOPIC, f"{prefix}-{n}".encode()) for n in range(MESSAGES)])
    return MESSAGES


def wait_until_routed(admin: AdminClient, since_ms: int = 0) -> None:
    """Return when the broker has registered at its name servers since then."""
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        servers = admin.broker_status().name_servers
        if all(each.is_registered and each.registered_at_ms >= since_ms for each in servers):
            return
        time.sleep(0.05)


def show(sent: dict[str, Counter[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("sent by", *NAMES, title="acknowledged messages")
    for sender, counts in sent.items():
        table.add_row(sender, *[str(counts[name] or "-") for name in NAMES])
    Console().print(table)


def main() -> int:
    from rmqlite.client import AdminClient

    with tempfile.TemporaryDirectory() as text:
        folder, readers, total = Path(text), Readers(), 0
        sent: dict[str, Counter[str]] = {}
        with running_cluster(folder) as (brokers, name_servers):
            print(f"three brokers, name servers {name_servers}")
            java = None
            if shutil.which("java") and shutil.which("mvn"):
                java = JavaProducer(name_servers, folder)
            for broker in brokers.values():
                with AdminClient(broker.endpoint) as admin:
                    before_ms = admin.broker_status().now_ms
                    admin.create_topic(TOPIC, 4)
                    wait_until_routed(admin, before_ms)
                readers.begin(broker.endpoint)
            for step in ("all three live", f"{KILLED} is killed", "it is back"):
                if step == f"{KILLED} is killed":
                    brokers[KILLED].kill()
                elif step == "it is back":
                    brokers[KILLED].start()
                    with AdminClient(brokers[KILLED].endpoint) as admin:
                        wait_until_routed(admin)
                    readers.begin(brokers[KILLED].endpoint)
                living = [name for name in NAMES if step != f"{KILLED} is killed" or name != KILLED]
                own = Counter(
                    {name: send(brokers[name].endpoint, f"{step} {name}") for name in living}
                )
                sent[f"Python, {step}"] = own
                if java is not None:
                    sent[f"Java, {step}"] = java.send(step, 2 * MESSAGES)
            total = sum([sum(counts.values()) for counts in sent.values()])
            readers.wait_for(total)
            readers.close()
        show(sent)
        again = sum([count > 1 for count in readers.got.values()])
        print(f"{total} acknowledged, {len(readers.got)} consumed")
        print(f"{again} came again: {KILLED} was killed before their offsets were committed")
        return int(len(readers.got) != total)


if __name__ == "__main__":
    if Path(sys.prefix) == environment.ROOT / ".venv":
        sys.exit(main())
    python = str(environment.ensure(""))
    os.execve(python, [python, __file__], dict(os.environ))
