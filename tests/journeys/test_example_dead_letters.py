"""examples/dead_letters.py as its docstring says it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from runpy import run_path

import pytest

from rmqlite.kernel.words.clock import wall_ms
from tests.support.broker_processes import StartBroker
from tests.support.dead_letters import dead_letter_store

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "dead_letters.py"


def test_what_died_of_one_reason_is_sent_again_once(
    tmp_path: Path,
    start_broker: StartBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of ten letters two died of it; the second time there is nothing left to send."""
    dead_letter_store(tmp_path / "broker" / "store", 300, begins_ms=wall_ms() - 60_000, every_ms=1)
    endpoint = start_broker().endpoint
    command = [sys.executable, str(SCRIPT), endpoint]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    assert done.stdout.startswith("shop: 300 open\n  150 'ConnectionError: payment service")

    def run(*words: str) -> str:
        """What the script prints; in this process, which has its modules."""
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
        run_path(str(SCRIPT), run_name="__main__")
        return capsys.readouterr().out

    sent = run(endpoint, "no such article", "1000")
    assert sent.startswith("shop: sending 60 back to shop as job r-")
    assert sent.endswith("shop: 60 sent, 0 sent before, 0 refused\n")
    assert run(endpoint, "no such article") == ""
    assert run(endpoint).startswith("shop: 240 open\n")
