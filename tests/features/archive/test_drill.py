"""The page's drill, word for word, and SIGKILLs, each with a restore elsewhere."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

import pytest

from rmqlite.client import AdminClient, Message, Producer
from rmqlite.kernel.words.clock import pause_s
from rmqlite.store_tools.reader import MessageFilter, StoreReader
from rmqlite.testing import BrokerProcess, broker
from tests.support.archives import log_of, restored
from tests.support.broker_processes import OF_ANY_DISK, free_port
from tests.support.documents import ROOT
from tests.support.eventually import eventually

PAGE: Final = ROOT / "rmqlite/features/archive/README.md"
ROUNDS: Final = 4


@pytest.mark.long
def test_the_drill_of_the_page(tmp_path: Path) -> None:
    """Lose the disk, restore, go on: as an operator types it, with ports that are free here."""
    text = PAGE.read_text("utf-8")
    (script,) = re.findall(r"## The drill.*?```sh\n(.*?)```", text, re.DOTALL)
    port = free_port()
    lines = {"grpcPort": port, "listenPort": free_port(), "nameServerPort": free_port()}
    settings = {**lines, **OF_ANY_DISK}
    (tmp_path / "broker.conf").write_text("".join([f"{k}={v}\n" for k, v in settings.items()]))
    command = tmp_path / "bin" / "rmqlite"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m rmqlite "$@"\n')
    command.chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "RMQLITE_ENDPOINT": f"127.0.0.1:{port}",
    }
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(
            ["bash", "-ec", script],
            cwd=tmp_path,
            env=env,
            stdout=said,
            stderr=said,
            process_group=0,
        )
        try:
            code = process.wait(150)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    found = (tmp_path / "said").read_text()
    assert code == 0, found
    after = found[found.index("restored ") :]
    assert "the first" in after
    assert "waits" in after
    assert "owns file:" in after
    assert "the archive is behind" not in after


def test_a_killed_broker_is_restored_elsewhere(tmp_path: Path, is_long: bool) -> None:
    """The log is the beginning of the lost one, and as long as the archive said before the kill."""
    random, url = Random(45), f"file://{tmp_path}/archive"
    settings = {**OF_ANY_DISK, "archiveUrl": url, "archiveIntervalMs": "100"}
    running = BrokerProcess(tmp_path / "broker", settings)
    for number in range(ROUNDS if is_long else 1):
        running.start()
        endpoint = running.endpoint
        with Producer(endpoint, "senders") as producer, AdminClient(endpoint) as admin:
            for _ in range(random.randrange(5, 60)):
                producer.send(Message("orders", bytes(random.randrange(20_000)), delay_level=1))
            pause_s(random.random() / 2)
            (archive,) = admin.broker_status().archives
        running.kill()
        end = restored(url, tmp_path / f"{number}")
        assert end >= archive.end
        lost = log_of(running.store)
        assert log_of(tmp_path / f"{number}")[:end] == lost[:end]


def test_what_was_cancelled_or_delivered_stays_so(tmp_path: Path) -> None:
    """A timer that was cancelled before the loss does not come, a delivered one not again."""
    url = f"file://{tmp_path}/archive"
    with broker(tmp_path / "lost", archiveUrl=url, archiveIntervalMs=100) as lost:
        with Producer(lost.endpoint, "senders") as producer:
            sent = [
                producer.send(Message("orders", body, deliver_after=after))
                for body, after in ((b"delivered", "10s"), (b"cancelled", "1h"), (b"waits", "1h"))
            ]
        with AdminClient(lost.endpoint) as admin:
            admin.schedule.cancel(sent[1].message_id)
            lost.advance(seconds=11)
            end = admin.broker_status().log_max_offset

            def is_archived() -> bool:
                return admin.broker_status().archives[0].end >= end

            eventually(is_archived, "everything is archived")
        lost.kill()
    (tmp_path / "again").mkdir()
    assert restored(url, tmp_path / "again" / "store") >= end
    with broker(tmp_path / "again") as again:
        again.advance(hours=2)
    with StoreReader(tmp_path / "again" / "store") as reader:
        found = [each.body for each in reader.messages(MessageFilter(topic="orders"))]
    assert found == [b"delivered", b"waits"]
