"""How a broker stops whose disk is full or fails: its exit code, and what its log says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.brokers import LONG_BODIES, BrokerUnderTest

ROOT: Final = Path(__file__).parents[2]
PROCESS: Final = """
import logging, os, signal, sys, threading
from contextlib import suppress
from pathlib import Path

import grpc

from rmqlite.kernel import compiled
from rmqlite.client import Message, Producer
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.words.errors import Unavailable
from rmqlite.kernel.requests.messages import PullRequest
from rmqlite import serving
from rmqlite.kernel.process import serve
from rmqlite.protocols.native.bytes.rpcs import PULL, rpc_of
from tests.support.files import FOR_GOOD, FaultyFiles

READ = rpc_of(PULL).encode_request(PullRequest("readers", "orders", 0, 100, wait_ms=20_000))
store, flush, operation = sys.argv[1:]
# The compiled form syncs without these files.
compiled.is_on = False
files = FaultyFiles()
serve.SystemFiles = lambda: files

def work(endpoint):
    channel = grpc.insecure_channel(endpoint)
    pull = channel.unary_unary(PULL.path)
    with Producer(endpoint, "senders", retries=0) as producer:
        producer.send(Message("orders", b"acknowledged"))
        # Parked calls and calls that wait for the disk end with the broker.
        pulls = [pull.future(READ) for _ in range(5)] if operation == "sync" else []
        files.fail(operation, times=FOR_GOOD)
        if operation == "sync":
            with suppress(Unavailable):
                producer.send(Message("orders", b"not acknowledged"))
            return
    os.kill(os.getpid(), signal.SIGTERM)

logging.basicConfig(format="%(levelname)s %(message)s")
ports = {"listen_port": 0, "grpc_port": 0, "name_server_port": 0}
sizes = {"mapped_file_size_commit_log": 1 << 20, "max_message_bytes": 1 << 19}
sizes |= {"mapped_file_size_consume_queue": 4_000, "max_hash_slots": 100, "max_index_entries": 500}
config = BrokerConfig(store_path=Path(store), flush_disk_type=flush, **ports, **sizes)
ready = lambda at: threading.Thread(target=work, args=(at.grpc,)).start()
sys.exit(serving.serve(config, ready))
"""


def stopped(folder: Path, flush: str, operation: str) -> tuple[int, list[str]]:
    """Let an operation of the disk fail, then stop; the exit code and the lines of the log."""
    command = [sys.executable, "-c", PROCESS, str(folder), flush, operation]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    lines = ended.stderr.splitlines()
    return ended.returncode, [line for line in lines if not line.startswith("INFO")]


def found(folder: Path) -> list[bytes]:
    broker = BrokerUnderTest(folder, **LONG_BODIES)
    queues = [broker.messages("orders", queue_id) for queue_id in range(4)]
    broker.close()
    return [message.body for queue in queues for message in queue]


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_clean_stop_on_a_full_disk_is_no_failure(tmp_path: Path, flush: str) -> None:
    """The tables are not written, but the log is on disk, of which the next start makes them."""
    code, lines = stopped(tmp_path / "store", flush, "replace")
    assert code == 0, lines
    assert lines[-1].startswith("WARNING the tables cannot be written, the next start will recover")
    assert found(tmp_path / "store") == [b"acknowledged"]


def test_a_failed_sync_stops_the_broker_with_one_plain_line(tmp_path: Path) -> None:
    """Its cause is the disk: the broker's own stack is of no use to an operator."""
    code, lines = stopped(tmp_path / "store", "SYNC_FLUSH", "sync")
    assert code == 1
    assert [line for line in lines if "Traceback" in line] == []
    (told,) = [line for line in lines if line.startswith("CRITICAL the disk has failed")]
    assert "told to fail" in told
    assert [line for line in lines if line.startswith("ERROR")] == []
    assert b"acknowledged" in found(tmp_path / "store")


SIGNALLED: Final = """
import asyncio, signal, sys
from rmqlite.cli.main import main
from rmqlite.kernel.process import serve

change, until_stopped, signalled = signal.signal, serve._Server._until_stopped, []

def changing(number, handler):
    if handler is serve._exit and not signalled:
        signalled.append(number)
        signal.raise_signal(number)
    return change(number, handler)

async def again(self, *arguments):
    asyncio.get_running_loop().call_later(0.05, self._serve_again)
    return await until_stopped(self, *arguments)

signal.signal, serve._Server._until_stopped = changing, again
sys.argv = ["rmqlite", "broker", "--store", sys.argv[1]]
sys.argv += ["--grpc-port", "0", "--listen-port", "0", "--name-server-port", "0"]
main()
"""


def test_a_signal_between_two_runs_ends_the_broker(tmp_path: Path) -> None:
    """It came while a promoted standby began anew, was lost, and the stop waited for ever."""
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the broker starts") == 1
