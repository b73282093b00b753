"""The demo of README's one command, run as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def demo(kept: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orders.demo", "--keep", kept],
        env={"PYTHONPATH": str(ROOT / "examples"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_the_demo_accounts_for_every_order(tmp_path: Path) -> None:
    """README's one command does what it says: its own check decides the exit code."""
    kept = tmp_path / "kept"
    ran = demo(kept)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "every order is accounted for exactly once" in ran.stdout
    assert "\x1b" not in ran.stdout
    assert f"--store {os.path.relpath(kept / 'store')} " in ran.stdout
    assert list((kept / "store" / "commitlog").iterdir())
    # What is there stays as it is.
    assert "File exists" in demo(kept).stderr


@pytest.mark.long
def test_a_cluster_of_three_goes_on_without_one() -> None:
    """The example of several brokers: it checks that no acknowledged message is missing."""
    ran = subprocess.run(
        [sys.executable, "-c", "import cluster, sys; sys.exit(cluster.main())"],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "160 acknowledged, 160 consumed" in ran.stdout


def test_a_standby_takes_over_and_its_clients_go_on() -> None:
    """The example of two brokers: the first one is killed, and its disk is gone."""
    ran = subprocess.run(
        [sys.executable, "-c", "import standby, sys; sys.exit(standby.main())"],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "it lacks 0 bytes" in ran.stdout
    assert "200 acknowledged, 200 consumed" in ran.stdout
