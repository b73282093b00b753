"""The page's runbook, word for word, with stand-ins for RocketMQ's own scripts."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Final

from rmqlite.client import AdminClient, Message, Producer
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import free_port
from tests.support.documents import ROOT
from tests.support.rocketmq_slaves import copied_log, slaves_store
from tests.support.standbys import SMALL

PAGE: Final = ROOT / "rmqlite/features/ha/README.md"
CONF: Final = "brokerId=1\nbrokerRole=SLAVE\nmessageDelayLevel=1s 5s\n"


def script(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_the_runbook_of_the_page(tmp_path: Path) -> None:
    """As an operator types it: RocketMQ is started as the master, with the level of the timers."""
    (text,) = re.findall(
        r"## The slave takes over.*?```sh\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL
    )
    port = free_port()
    with BrokerProcess(tmp_path / "ours", {**SMALL, "haListenPort": str(port)}) as broker:
        with Producer(broker.endpoint, "shop") as producer:
            sent = producer.send(Message("orders", b"timer", deliver_after=timedelta(hours=1)))
        with AdminClient(broker.endpoint) as admin:
            log = copied_log(port, admin.broker_status().log_max_offset)
    slaves_store(tmp_path / "store", log, 1 << 20, {})
    script(tmp_path / "bin" / "mqshutdown", "touch stopped")
    script(tmp_path / "bin" / "mqbroker", "cp conf/broker.conf started")
    script(tmp_path / "bin" / "rmqlite", f'exec {shlex.quote(sys.executable)} -m rmqlite "$@"')
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "broker.conf").write_text(CONF)
    env = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    env["PATH"] = f"{tmp_path / 'bin'}:{env['PATH']}"
    subprocess.run(["bash", "-ec", text + "wait\n"], cwd=tmp_path, env=env, check=True, timeout=120)
    assert (tmp_path / "stopped").exists()
    role, levels = (tmp_path / "started").read_text().split("messageDelayLevel=")
    assert role == "brokerId=0\nbrokerRole=ASYNC_MASTER\n"
    assert levels.endswith(" 2h 2d\n"), "the last one is that of the timers"
    folder = tmp_path / "again"
    folder.mkdir()
    (tmp_path / "store").rename(folder / "store")
    with BrokerProcess(folder, SMALL) as again, AdminClient(again.endpoint) as admin:
        (waiting,) = admin.schedule.pending()
        assert (waiting.message_id, waiting.deliver_at_ms) == (sent.message_id, sent.deliver_at_ms)
