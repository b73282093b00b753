"""The broker command: what it prints, its exit codes, and its ready file."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rmqlite import __version__
from rmqlite.cli.broker import remove_ready_file, write_ready_file
from rmqlite.cli.main import app
from rmqlite.client import AdminClient, Message, Producer, PullConsumer
from rmqlite.kernel.config.config import KEYS, BrokerConfig, parse_config
from rmqlite.kernel.words.clock import pause_s
from rmqlite.kernel.words.errors import BrokerUnreachable, MessageTooLarge, StoreUnavailable
from rmqlite.store_tools.check import check
from rmqlite.testing import BrokerProcess
from tests.support.command_processes import run_command
from tests.support.golden import unpack_golden

CONF = Path(__file__).resolve().parents[2] / "conf" / "broker.conf"


def test_a_ready_file_is_renamed_into_place(tmp_path: Path) -> None:
    """Whoever waits for the name to appear can read all of it at once."""
    ready = tmp_path / "ready"
    write_ready_file(ready, "127.0.0.1:1234")
    assert ready.read_text() == "127.0.0.1:1234\n"
    assert [path.name for path in tmp_path.iterdir()] == ["ready"]


def test_an_old_ready_file_is_removed_and_a_missing_one_is_fine(tmp_path: Path) -> None:
    """A killed broker leaves its file behind; it names an endpoint that nobody listens to."""
    ready = tmp_path / "ready"
    ready.write_text("old")
    remove_ready_file(ready)
    remove_ready_file(ready)
    assert not ready.exists()


def test_a_ready_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """A script would wait for it for ever."""
    with pytest.raises(StoreUnavailable, match="cannot write"):
        write_ready_file(tmp_path / "missing" / "ready", "x")


FREE_PORTS = ("--listen-port", "0", "--grpc-port", "0", "--name-server-port", "0")


def broker_process(store: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rmqlite", "broker", "--store", str(store)]
    return subprocess.Popen(
        [*command, *FREE_PORTS, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_broker_says_when_it_is_ready_and_when_it_has_stopped(tmp_path: Path) -> None:
    """Two lines for people, a file for scripts; SIGTERM is a clean end."""
    store, ready = tmp_path / "store", tmp_path / "ready"
    with broker_process(store, "--ready-file", str(ready)) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(f"rmqlite {__version__} ready at 127.0.0.1:")
        assert line.endswith(f"store {store}, SYNC_FLUSH\n")
        # The line comes first: the file appears a moment later, or was there already.
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "rmqlite stopped\n"
    assert process.returncode == 0
    assert not ready.exists()


@contextmanager
def stopped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Also after a failure: leaving Popen's own context waits for the end."""
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("streams", ["> /dev/full 2> /dev/full", "<&- >&- 2>&-"])
def test_a_broker_runs_without_a_place_for_its_lines(tmp_path: Path, streams: str) -> None:
    """A full disk or closed streams: its lines are lost, and nothing else."""
    store, ready = tmp_path / "store", tmp_path / "ready"
    command = [sys.executable, "-m", "rmqlite", "broker", "--store", str(store), *FREE_PORTS]
    text = f"exec {shlex.join([*command, '--ready-file', str(ready)])} {streams}"
    with subprocess.Popen(["bash", "-c", text]) as process, stopped(process):
        while not ready.exists():
            assert process.poll() is None
            pause_s(0.02)
        # Else a library's line would go into the first file that was opened.
        opened = [Path(f"/proc/{process.pid}/fd/{each}").readlink() for each in range(3)]
        assert not [each for each in opened if each.is_relative_to(tmp_path)]
        with Producer(ready.read_text().split()[0], "makers") as producer:
            producer.send(Message("orders", b"a"))
    assert process.returncode == 0
    assert list(check(store)) == []


def test_a_second_broker_on_a_store_is_refused(tmp_path: Path) -> None:
    """One line that says what to do; the first one is not disturbed."""
    with broker_process(tmp_path) as first:
        assert first.stdout is not None
        first.stdout.readline()
        second = run_command("broker", "--store", str(tmp_path), *FREE_PORTS)
        assert second.returncode == 1
        assert f"error: {tmp_path}" in second.stderr
        assert "Traceback" not in second.stderr
        first.send_signal(signal.SIGINT)
        assert first.communicate()[0] == "rmqlite stopped\n"
    assert first.returncode == 0


def test_a_broker_whose_output_nobody_reads_goes_on(tmp_path: Path) -> None:
    """`rmqlite broker | head -1` must not end, nor fail, the broker."""
    with broker_process(tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert "BrokenPipe" not in process.stderr.read()
    assert process.returncode == 0


def test_a_broker_starts_on_rocketmqs_store_with_the_sizes_of_its_files(tmp_path: Path) -> None:
    """A conf that names only the folder; what would not fit into a log file is refused."""
    shutil.move(unpack_golden(tmp_path) / "clean", tmp_path / "broker" / "store")
    with BrokerProcess(tmp_path / "broker", {}) as broker:
        with Producer(broker.endpoint, "senders") as producer:
            with pytest.raises(MessageTooLarge) as caught:
                producer.send(Message("orders", bytes(1_000_000)))
            assert caught.value.field == "body"
            rule = "at most 983032 bytes in a store whose log files have 1048576 bytes"
            assert caught.value.rule == rule
            sent = producer.send(Message("orders", bytes(900_000)))
        with PullConsumer(broker.endpoint, "readers") as consumer:
            pulled = consumer.pull("orders", sent.queue_id, sent.queue_offset)
            assert [len(message.body) for message in pulled.messages] == [900_000]
        broker.stop()
    assert list(check(broker.store)) == []
    sizes = {path.stat().st_size for path in (broker.store / "commitlog").iterdir()}
    assert sizes == {1 << 20}


@pytest.mark.parametrize("is_new", [True, False])
def test_only_a_new_store_needs_log_files_for_the_largest_message(
    tmp_path: Path, is_new: bool
) -> None:
    """One that exists keeps its files, whatever maxMessageSize says."""
    keys = {"mappedFileSizeCommitLog": str(1 << 20)}
    if not is_new:
        with BrokerProcess(tmp_path / "broker", keys | {"maxMessageSize": "65536"}) as broker:
            with Producer(broker.endpoint, "senders") as producer:
                producer.send(Message("orders", b"one"))
            broker.stop()
        with BrokerProcess(tmp_path / "broker", keys) as broker:
            broker.stop()
        return
    process = BrokerProcess(tmp_path / "broker", keys)
    with pytest.raises(BrokerUnreachable):
        process.start()
    said = (tmp_path / "broker" / "broker.log").read_text()
    assert "broker.conf:5: mappedFileSizeCommitLog='1048576'" in said
    assert "at least maxMessageSize + 65544, that is 4259848" in said
    assert "Traceback" not in said


def test_a_broker_that_others_can_reach_needs_the_operators_word(tmp_path: Path) -> None:
    """Refused by line and key; once allowed, the log and rmqlite status say what others can do."""
    keys = {"bindAddress": "0.0.0.0"}
    process = BrokerProcess(tmp_path / "broker", keys)
    with pytest.raises(BrokerUnreachable):
        process.start()
    log = tmp_path / "broker" / "broker.log"
    assert "broker.conf:5: bindAddress='0.0.0.0': a loopback address" in log.read_text()
    with BrokerProcess(tmp_path / "broker", keys | {"allowUnauthenticated": "true"}) as broker:
        with AdminClient(broker.endpoint) as admin:
            (sentence,) = admin.broker_status().warnings
        result = CliRunner().invoke(app, ["status", "--endpoint", broker.endpoint])
        assert sentence in result.stdout
        broker.stop()
    assert f"WARNING rmqlite.kernel.process.serve {sentence}" in log.read_text()


def test_the_configuration_that_is_printed_explains_every_key() -> None:
    """Who has only the wheel has no other place to read it; it is the repository's own file."""
    ran = CliRunner().invoke(app, ["broker", "--print-config"])
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout == CONF.read_text("utf-8")
    assert parse_config(ran.stdout) == BrokerConfig()
    assert all(f"\n{key}=" in ran.stdout for key in KEYS.values())


def test_a_configuration_that_is_missing_says_where_to_get_one(tmp_path: Path) -> None:
    """The first thing that fails for somebody who copies a command from a page."""
    ran = CliRunner().invoke(app, ["broker", "--config", str(tmp_path / "none.conf")])
    assert ran.exit_code == 1
    assert "rmqlite broker --print-config" in ran.stderr
