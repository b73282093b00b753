"""RocketMQ 5 with its proxy for the gRPC clients, both in one process beside a name server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support import toolchains
from tests.support.broker_processes import free_port
from tests.support.java_server import name_server, port_with_vip, running, server_command
from tests.support.programs import Program

POM: Final = toolchains.ROOT / "tests" / "journeys" / "rocketmq" / "proxy" / "pom.xml"
VERSION: Final = "5.3.3"


class Proxy(NamedTuple):
    """endpoint: of the gRPC clients.  pid: of the process that is broker and proxy."""

    endpoint: str
    name_server: str
    broker: str
    pid: int

    def make_topics(self, admin: Program, *topics: str, queues: int = 4) -> None:
        """Topics for messages of every type.  admin: a program of RocketMQ 5's Java client."""
        for topic in topics:
            line = f"updateTopic -b {self.broker} -t {topic} -r {queues} -w {queues}"
            line += f" -a +message.type=MIXED -n {self.name_server}"
            printed = admin.mqadmin(*line.split())
            assert "success" in printed, printed


@contextmanager
def proxy(folder: Path, **changes: Any) -> Iterator[Proxy]:
    """changes: keys of broker.conf.  Raises what toolchains.classpath() raises."""
    folder.mkdir(parents=True, exist_ok=True)
    paths, port = toolchains.classpath(POM), port_with_vip()
    grpc_port = free_port()
    with name_server(folder / "names") as names:
        settings = {
            "brokerName": "broker-a",
            "brokerClusterName": "DefaultCluster",
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": names,
            "listenPort": port,
            "haListenPort": free_port(),
            "storePathRootDir": folder / "store",
            "storePathCommitLog": folder / "store" / "commitlog",
            "diskMaxUsedSpaceRatio": 99,
            "flushDiskType": "SYNC_FLUSH",
            "waitTimeMillsInSendQueue": 20_000,
            "recallMessageEnable": "true",
            "enablePropertyFilter": "true",
            "enableMixedMessageType": "true",
            **changes,
        }
        command = server_command(folder, paths, "broker", settings, "-Xms1g", "-Xmx1g")
        command = _of_proxy(folder, command, "local", grpc_port, names)
        command += ["-bc", str(folder / "broker.conf")]
        with running(command, folder, folder / "proxy.log", grpc_port) as process:
            yield Proxy(f"127.0.0.1:{grpc_port}", names, f"127.0.0.1:{port}", process.pid)


@contextmanager
def proxy_before(folder: Path, name_servers: str) -> Iterator[str]:
    """A proxy in front of brokers that these name servers know; the endpoint of its clients."""
    folder.mkdir(parents=True, exist_ok=True)
    paths, grpc_port = toolchains.classpath(POM), free_port()
    command = server_command(folder, paths, "broker", {}, "-Xms512m", "-Xmx512m")
    command = _of_proxy(folder, command, "cluster", grpc_port, name_servers)
    with running(command, folder, folder / "proxy.log", grpc_port):
        yield f"127.0.0.1:{grpc_port}"


def _of_proxy(folder: Path, command: list[str], mode: str, grpc_port: int, names: str) -> list[str]:
    """The command of a proxy, from that of a broker of RocketMQ."""
    own = {"proxyMode": mode.upper(), "grpcServerPort": grpc_port, "namesrvAddr": names}
    own |= {"remotingListenPort": free_port(), "useEndpointPortFromRequest": True}
    own |= {"rocketMQClusterName": "DefaultCluster", "proxyName": "proxy"}
    (folder / "proxy.json").write_text(json.dumps(own))
    (folder / "home" / "conf" / "rmq.proxy.logback.xml").write_text("<configuration/>\n")
    of_proxy = ["org.apache.rocketmq.proxy.ProxyStartup", "-pm", mode]
    of_proxy += ["-pc", str(folder / "proxy.json")]
    return [*command[: command.index("-c") - 1], *of_proxy]
