"""rmqlite.testing.broker(): a clock that moves, kills, restarts, starts that fail, and ends."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from rmqlite.client import (
    CONSUME_SUCCESS,
    RECONSUME_LATER,
    AdminClient,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
)
from rmqlite.kernel.words.errors import BrokerUnreachable, InvalidValue
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.protocols.native.bytes.messages import SendResult
from rmqlite.testing import BrokerProcess, broker, broker_process
from tests.support.eventually import eventually

WAIT_MS: Final = 60_000


def send(running: BrokerProcess, body: bytes, **how: str) -> SendResult:
    with Producer(running.endpoint, "senders") as producer:
        return producer.send(Message("orders", body, **how))  # type: ignore[arg-type]


def bodies(running: BrokerProcess, sent: SendResult, wait_ms: int = 0) -> list[bytes]:
    """What is in the topic where this message comes."""
    with PullConsumer(running.endpoint, "readers", timeout_ms=2 * WAIT_MS) as consumer:
        pulled = consumer.pull("orders", sent.queue_id, 0, wait_ms=wait_ms)
    return [each.body for each in pulled.messages]


def test_two_hours_pass_at_once_and_no_message_is_early(tmp_path: Path) -> None:
    """For both kinds of waits: a level, and a timer; a second before its time none has come."""
    with broker(tmp_path / "broker") as running:
        by = [send(running, b"l", delay_level=18), send(running, b"t", deliver_after="2h")]  # type: ignore[arg-type]
        before = running.now()
        assert running.advance(hours=1, minutes=59, seconds=30) - before >= timedelta(seconds=7170)
        assert [bodies(running, each) for each in by] == [[], []]
        with AdminClient(running.endpoint) as admin:
            assert len(list(admin.schedule.pending())) == 2
        running.advance(seconds=30.0)
        found = {body for each in by for body in bodies(running, each, WAIT_MS)}
        assert found == {b"l", b"t"}
    assert "suspended" not in running.log_end()


def test_a_consumer_gets_its_retries_when_the_clock_moves(tmp_path: Path) -> None:
    """The usual test of a user: a listener that fails is called again, with its own delay."""
    attempts: list[int] = []

    def listener(message: StoredMessage) -> object:
        attempts.append(message.reconsume_times)
        return RECONSUME_LATER if len(attempts) < 3 else CONSUME_SUCCESS

    with (
        broker(tmp_path / "broker") as running,
        PushConsumer(running.endpoint, "workers") as consumer,
    ):
        consumer.subscribe("orders", "*")
        consumer.listen(listener)  # type: ignore[arg-type]
        consumer.start()
        send(running, b"fails twice")
        for attempt in range(3):
            eventually(lambda: len(attempts) > attempt, f"attempt {attempt}")  # noqa: B023
            with AdminClient(running.endpoint) as admin:
                waits = attempt < 2
                eventually(lambda: bool([*admin.schedule.pending()]) == waits, "it waits")  # noqa: B023
            running.advance(seconds=29 if attempt else 9)
            assert len(attempts) == attempt + 1
            running.advance(minutes=1)
    assert attempts == [0, 1, 2]


def test_all_that_waits_is_delivered_now(tmp_path: Path) -> None:
    """Levels, timers and retries; the clock stays where it is, and nothing comes again."""
    with (
        BrokerProcess(tmp_path, {}) as running,
        Producer(running.endpoint, "app") as producer,
        SimpleConsumer(running.endpoint, "worker") as consumer,
    ):
        producer.send(Message("orders", b"failed"))
        consumer.subscribe("orders")
        consumer.fail(consumer.receive(wait="20s"))
        producer.send(Message("orders", b"level", delay_level=18))
        producer.send(Message("orders", b"timer", deliver_after="300d"))
        before = running.now()
        assert running.deliver_now() == 3
        found: list[bytes] = []
        while len(found) < 3:
            some = consumer.receive(10, wait="20s")
            assert some, found
            consumer.ack(some)
            found += [each.body for each in some]
        assert sorted(found) == [b"failed", b"level", b"timer"]
        assert running.now() - before < timedelta(minutes=30)
        assert running.deliver_now() == 0


def test_a_sigkill_and_a_restart_keep_messages_address_and_clock(tmp_path: Path) -> None:
    """Else a client in the test would never find the broker again, nor its messages in time."""
    with broker(tmp_path / "broker") as running:
        stored = send(running, b"stored")
        waiting = send(running, b"waits", deliver_after="48h")
        moved = running.advance(days=1)
        addresses = (running.endpoint, running.remoting, running.name_server)
        running.kill()
        with pytest.raises(BrokerUnreachable, match="does not run"):
            running.advance(days=1)
        running.restart()
        assert (running.endpoint, running.remoting, running.name_server) == addresses
        assert moved < running.now() < moved + timedelta(hours=12)
        assert bodies(running, stored) == [b"stored"]
        running.restart()
        assert moved < running.now() < moved + timedelta(hours=12)
        running.advance(days=1)
        eventually(lambda: b"waits" in bodies(running, waiting), "the message of two days")


@pytest.mark.parametrize("is_forked", [False, True])
def test_a_broker_that_does_not_start_shows_its_log(tmp_path: Path, is_forked: bool) -> None:
    """The reason, in the error: the test's folder may be gone when somebody looks."""
    wrong = BrokerProcess(tmp_path / "broker", {"maxTopics": "many"}, is_forked=is_forked)
    with pytest.raises(BrokerUnreachable, match=r"broker.conf:5: maxTopics='many'"):
        wrong.start()


def test_a_broker_has_the_environment_of_its_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it is forked of a process that began before; and so in a process that forks."""
    with broker(tmp_path / "one"):
        pass
    monkeypatch.setenv("RMQLITE_OF_THIS_TEST", "x")
    with broker(tmp_path / "other") as running:
        assert b"RMQLITE_OF_THIS_TEST=x" in Path(f"/proc/{running.pid}/environ").read_bytes()
        child = os.fork()
        if not child:
            with broker(tmp_path / "child") as of_child:
                os._exit(not of_child.endpoint)
        assert os.waitpid(child, 0)[1] == 0
        running.restart()


def test_an_error_shows_the_brokers_log(tmp_path: Path) -> None:
    """A failed test without pytest's fixture; and what the broker says when it dies itself."""

    def killed_by_somebody() -> None:
        with broker(tmp_path / "broker") as running:
            os.kill(running.pid, signal.SIGKILL)
            running.now()

    with pytest.raises(BrokerUnreachable, match=r"(?s)does not answer: .*ready at") as caught:
        killed_by_somebody()
    assert "ready at 127.0.0.1:" in caught.value.__notes__[0]


def test_the_clock_moves_forward_only(tmp_path: Path) -> None:
    """A broker's time never goes back."""
    with broker(tmp_path / "broker") as running, pytest.raises(InvalidValue, match="goes back"):
        running.advance(hours=-1)


def test_brokers_beside_each_other_have_nothing_in_common() -> None:
    """Each has its own ports, store and clock; a temporary folder ends with its broker."""
    with ExitStack() as stack:
        one, other = [stack.enter_context(broker(autoCreateTopicEnable=True)) for _ in range(2)]
        sent = [send(each, b"x", deliver_after="1h") for each in (one, other)]
        one.advance(hours=1)
        assert bodies(one, sent[0], WAIT_MS) == [b"x"]
        assert bodies(other, sent[1]) == []
        folders = [one.folder, other.folder]
        assert [each.exists() for each in folders] == [True, True]
    assert [each.exists() for each in folders] == [False, False]


def test_a_port_that_somebody_took_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the choice of a port and the broker's start any program may take it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = [taken.getsockname()[1]]
        free_port = broker_process.free_port
        monkeypatch.setattr(
            broker_process, "free_port", lambda: ports.pop() if ports else free_port()
        )
        with broker(tmp_path / "broker") as running:
            assert not ports
            assert running.remoting != f"127.0.0.1:{taken.getsockname()[1]}"


IMPORTS: Final = """
import sys
from rmqlite.testing.movable_broker import load_modules, run

load_modules()
before = {*sys.modules}
code = run(sys.argv[1], "0")
print(code, *sorted({*sys.modules} - before), flush=True)
"""


def test_a_template_has_the_modules_of_its_brokers(tmp_path: Path) -> None:
    """Each of three hundred brokers of a run of the tests imported 356 modules: 0.5 s each."""
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"storePathRootDir={tmp_path / 'store'}\n"
        + "".join([f"{port}=0\n" for port in broker_process.PORTS])
    )
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", IMPORTS, str(conf)]
    with theirs, subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.PIPE) as ran:
        theirs.close()
        with ours:
            assert ours.recv(1_000)
        assert ran.stdout is not None
        assert ran.stdout.read().splitlines()[-1] == b"0"


DIES: Final = """
import os, signal, sys
from pathlib import Path
from rmqlite.testing import BrokerProcess

for name in ("started", "forked"):
    BrokerProcess(Path(sys.argv[1], name), {}, is_forked=name == "forked").start()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_broker_ends_when_the_test_s_process_dies(tmp_path: Path) -> None:
    """After a SIGKILL nobody else would stop it; it closes its store."""
    ran = subprocess.run([sys.executable, "-c", DIES, tmp_path])
    assert ran.returncode == -9
    for folder in (tmp_path / "started", tmp_path / "forked"):
        log = folder / "broker.log"
        eventually(lambda: "rmqlite stopped\n" in log.read_text(), "it ends")  # noqa: B023
        assert not (folder / "store" / "abort").exists()


def test_a_process_with_many_open_files_has_brokers(tmp_path: Path) -> None:
    """select() knows no file descriptor above 1,023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4_096), hard))
    with ExitStack() as stack:
        for _ in range(1_100):
            stack.enter_context(open(os.devnull))
        with BrokerProcess(tmp_path / "broker", {}) as broker:
            broker.advance(hours=1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_processes_of_one_run_choose_other_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a look at a port and the broker's start, another one's test took it."""
    found: list[int] = []
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    for worker in ("gw0", "gw1", "gw2"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        found += broker_process._ports.__wrapped__()
    assert len(found) == len({*found}) == 12_000
    monkeypatch.delenv("PYTEST_XDIST_WORKER")
    assert {*broker_process._ports.__wrapped__()} == {*found}
