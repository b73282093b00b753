"""A standby that is away, a master that comes back, junk on the wire."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from typer.testing import CliRunner

from rmqlite.cli.main import app
from rmqlite.client.admin_client import AdminClient
from rmqlite.client.credentials import Credentials
from rmqlite.client.producer import Producer
from rmqlite.features.standby.tails import records_in, tails_of
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import Refused, RmqliteError, Unavailable
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.native.replication import FOLLOW, FollowerFrame
from rmqlite.protocols.shared.signing import Signer
from rmqlite.store_tools.check import check
from rmqlite.testing import BrokerProcess
from tests.support.certificates import keys_of, made
from tests.support.eventually import eventually
from tests.support.standbys import (
    Pair,
    bodies_of,
    is_master,
    log_bytes,
    replication,
    wait_for_copy,
)

TOPIC = "orders"
ONLY_HERE = b"x" * 480_000


def test_a_master_whose_standby_hangs_acknowledges_nothing(pair: Pair) -> None:
    """Its connection stays open; one copy is not what inSyncReplicas=2 promises."""
    os.kill(pair.second.pid, signal.SIGSTOP)
    try:
        with Producer(pair.first.endpoint, "shop", retries=0) as producer:
            # It may be stored, or refused before; acknowledged it is not.
            with pytest.raises(Unavailable, match="the standby is away"):
                producer.send(Message(TOPIC, b"too early"))
            with pytest.raises(Unavailable, match="the standby is away"):
                producer.send(Message(TOPIC, b"refused at once"))
        assert "the standby is away" in replication(pair.first).trouble
        assert bodies_of(pair.first, TOPIC) == []
    finally:
        os.kill(pair.second.pid, signal.SIGCONT)
    wait_for_copy(pair.first)
    with Producer(pair.first.endpoint, "shop") as producer:
        producer.send(Message(TOPIC, b"with two copies"))
    # What was stored on one disk is on both now.
    assert bodies_of(pair.first, TOPIC)[-1] == b"with two copies"
    assert b"refused at once" not in bodies_of(pair.first, TOPIC)


def test_a_master_that_comes_back_lays_aside_what_only_it_has(pair: Pair) -> None:
    """Two logs of the same length and another history would otherwise be taken for one."""
    with Producer(pair.first.endpoint, "shop", retries=0) as producer:
        producer.send(Message(TOPIC, b"on both"))
        os.kill(pair.second.pid, signal.SIGSTOP)
        # More than lies in the buffers of the connection, which the standby reads later.
        for each in [producer.send_async(Message(TOPIC, ONLY_HERE)) for _ in range(8)]:
            with pytest.raises(Unavailable):
                each.result()
    pair.first.kill()
    os.kill(pair.second.pid, signal.SIGCONT)
    promoted(pair.second)
    with Producer(pair.second.endpoint, "shop") as producer:
        for number in range(5):
            producer.send(Message(TOPIC, b"%d" % number * 200_000))
    # Its broker.conf says that it is the master.
    first = pair.first
    first.start()
    assert "another broker is the master" in (first.folder / "broker.log").read_text("utf-8")
    eventually(lambda: has_two_copies(pair.second), "there are two copies again")
    first.kill()
    pair.second.kill()
    assert log_bytes(first) == log_bytes(pair.second)
    (tail,) = tails_of(first.store)
    assert ONLY_HERE in [bytes(each.body) for each in records_in(tail)]
    assert len(tail.message_ids) == tail.records
    printed = CliRunner().invoke(app, ["store", "tails", str(first.store), "--export"])
    bodies = [json.loads(line)["body"] for line in printed.stdout.splitlines()]
    assert bodies.count(ONLY_HERE.decode()) >= 1
    first.start()
    assert replication(first).role == "SLAVE"
    first.stop()
    assert not list(check(first.store))


def test_a_switch_loses_no_message_of_a_client_that_knows_both(pair: Pair) -> None:
    """Two switches while it sends: each message is there, in the order in which it was sent."""
    with Producer(pair.endpoints, "shop", send_timeout_ms=60_000) as producer:
        for number in range(60):
            producer.send(Message(TOPIC, b"%d" % number), queue_id=0)
            if number in (20, 40):
                with AdminClient(pair.endpoints) as admin:
                    master = admin.switch()
                eventually(partial(is_master, master), "the other one is the master")
                wait_for_copy(pair.first if number == 40 else pair.second)
    assert list(dict.fromkeys(bodies_of(pair.first, TOPIC))) == [b"%d" % n for n in range(60)]


def test_both_brokers_restart_in_their_roles(pair: Pair) -> None:
    """A SIGTERM of the master hands over; who was promoted stays the master."""
    with Producer(pair.endpoints, "shop") as producer:
        producer.send(Message(TOPIC, b"before"))
        pair.first.stop()
        producer.send(Message(TOPIC, b"at the other one"))
        pair.second.kill()
        pair.second.start()
        pair.first.start()
        wait_for_copy(pair.second)
        assert replication(pair.first).role == "SLAVE"
        producer.send(Message(TOPIC, b"after"))
    assert len(bodies_of(pair.second, TOPIC)) == 3


def test_a_standby_behind_retention_says_so_and_starts_anew(tmp_path: Path) -> None:
    """The master does not wait for it, and has removed what comes next; an operator is told."""
    every_hour = ";".join(f"{hour:02d}" for hour in range(24))
    with Pair(
        tmp_path,
        inSyncReplicas="1",
        fileReservedTime="1",
        cleanResourceInterval="100",
        deleteWhen=every_hour,
    ) as pair:
        pair.second.kill()
        with Producer(pair.first.endpoint, "shop") as producer:
            for number in range(6):
                producer.send(Message(TOPIC, b"%d" % number * 400_000))
        files = sorted((pair.first.store / "commitlog").iterdir())
        for path in files:
            os.utime(path, (0, 0))
        eventually(lambda: not files[1].exists(), "what it lacks is removed")
        pair.second.start()
        eventually(lambda: "remove its store" in replication(pair.second).trouble, "it says so")
        pair.second.stop()
        shutil.rmtree(pair.second.store)
        pair.second.start()
        wait_for_copy(pair.first)
        pair.second.kill()
        pair.first.kill()
        assert log_bytes(pair.first) == log_bytes(pair.second)


def test_a_standby_is_not_promoted_beside_a_living_master(shared: Pair) -> None:
    """Two masters would acknowledge different messages."""
    with (
        AdminClient(shared.second.endpoint) as admin,
        pytest.raises(Refused, match="living master"),
    ):
        admin.promote()


def test_junk_frames_concern_nobody_else(shared: Pair) -> None:
    """A call with junk, with a wrong length of files, or with forged acknowledgements ends."""
    hello = FollowerFrame(address="forged:1", log_file_bytes=1 << 20)
    for frames in (
        [b"\xff" * 1000],
        [b""],
        [FollowerFrame(log_file_bytes=5).to_bytes()],
        [hello._replace(end=10**9).to_bytes()],
        [hello.to_bytes(), FollowerFrame(synced_end=1 << 60).to_bytes()],
        [hello.to_bytes(), b"\xff"],
    ):
        assert talked(shared.first, frames) in {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "OK"}
    wait_for_copy(shared.first)
    with Producer(shared.first.endpoint, "shop") as producer:
        producer.send(Message(TOPIC, b"after junk"))
    assert replication(shared.first).peer == shared.second.endpoint


def test_only_an_account_with_the_right_may_follow_by_tls(tmp_path: Path) -> None:
    """Who follows reads every message, and is waited for; a former master follows by TLS, too,
    and all this through gRPC workers."""
    accounts, keys = tmp_path / "accounts.yml", made(tmp_path / "keys")
    accounts.write_text(
        "accounts:\n"
        "- {accessKey: the-standby, secretKey: secret-of-it, admin: true}\n"
        "- {accessKey: the-reader, secretKey: secret-too, defaultTopicPerm: PUB|SUB}\n"
    )
    accounts.chmod(0o600)
    about: dict[str, Any] = {"aclEnable": "true", "aclFile": str(accounts)}
    about |= {"masterAccount": "the-standby", "grpcWorkers": "1"}
    ca = (keys / "ca.pem").read_text()
    admins = Credentials("the-standby", "secret-of-it", ca=ca)
    about |= keys_of(keys)
    with Pair(tmp_path, credentials=admins, **about) as pair:
        hello = FollowerFrame(address="a:1", log_file_bytes=1 << 20).to_bytes()
        tls = grpc.ssl_channel_credentials(ca.encode())
        assert talked(pair.first, [hello], tls=tls) == "PERMISSION_DENIED"
        signed = Signer("the-reader", "secret-too").metadata(FOLLOW, wall_ms())
        assert talked(pair.first, [hello], signed, tls) == "PERMISSION_DENIED"
        endpoints = ",".join(f"tls://{each}" for each in pair.endpoints.split(","))
        with (
            Producer(endpoints, "shop", send_timeout_ms=60_000, credentials=admins) as producer,
            AdminClient(endpoints, credentials=admins) as admin,
        ):
            producer.send(Message(TOPIC, b"before"))
            for master in (pair.second, pair.first):
                assert admin.switch() == master.endpoint
                producer.send(Message(TOPIC, b"with two copies"))
                wait_for_copy(master, admins)

        def follows_by_tls() -> bool:
            try:
                found = replication(pair.second, admins)
            except Unavailable:
                # It copies before its workers have started.
                return False
            return found.peer == f"tls://{pair.first.endpoint}"

        eventually(follows_by_tls, "the former master follows by TLS")


def has_two_copies(master: BrokerProcess) -> bool:
    status = replication(master)
    return status.is_connected and not status.behind_bytes and not status.alone_since_ms


def promoted(standby: BrokerProcess) -> None:
    """Promote it when it no longer hears the master."""

    def is_done() -> bool:
        with AdminClient(standby.endpoint) as admin:
            try:
                admin.promote()
            except Refused as error:
                return "is the master" in str(error)
            except RmqliteError:
                return False
        return False

    eventually(is_done, "the standby is the master")


def talked(
    broker: BrokerProcess,
    frames: list[bytes],
    signed: Any = (),
    tls: grpc.ChannelCredentials | None = None,
) -> str:
    """The status of a call with these frames."""

    def asked() -> Iterator[bytes]:
        yield from frames

    at = broker.endpoint
    with grpc.secure_channel(at, tls) if tls else grpc.insecure_channel(at) as channel:
        call: Any = cast("Any", channel.stream_stream(FOLLOW))(asked(), timeout=30, metadata=signed)
        try:
            for _ in call:
                pass
        except grpc.RpcError:
            pass
        return str(call.code().name)
