"""What an operator sees of both brokers: command line, page, metrics."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.request import urlopen

from typer.testing import CliRunner, Result

from rmqlite.cli.main import app
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import free_port
from tests.support.standbys import Pair, is_master


def test_both_brokers_show_both_copies(tmp_path: Path) -> None:
    """And a promotion and a switch by hand say what they have done."""
    web, metrics = free_port(), free_port()
    with Pair(tmp_path) as pair:
        assert json.loads(shown(pair.first))[0]["role"] == "SYNC_MASTER"
        (seen,) = json.loads(shown(pair.second))
        assert (seen["role"], seen["is_connected"], seen["behind_bytes"]) == ("SLAVE", True, 0)
        assert "living master" in run("standby", "promote", "-e", pair.second.endpoint).stderr
        switched = run("standby", "switch", "-e", pair.endpoints)
        assert switched.stdout == f"{pair.second.endpoint} is the master now\n"
        pair.first.kill()
        settings = pair.settings(pair.first) | {"webPort": str(web), "metricsPort": str(metrics)}
        with BrokerProcess(pair.first.folder, settings) as first:
            assert not is_master(first.endpoint)
            assert b"SLAVE" in urlopen(f"http://127.0.0.1:{web}/", timeout=60).read()
            text = urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=60).read().decode()
            for name in ("standby_behind_bytes", "standby_behind_seconds", "one_copy_seconds"):
                assert f"\nrmqlite_{name} " in text
            status = run("status", "-e", first.endpoint)
            assert (status.exit_code, "SLAVE" in status.stdout) == (0, True)


def shown(broker: BrokerProcess) -> str:
    return run("standby", "show", "--json", "-e", broker.endpoint).stdout


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)
