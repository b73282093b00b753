"""A command that systemd, Kubernetes, `timeout` or ssh ends removes what it has begun."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.golden import unpack_golden

BACKUP = """
import signal, sys
from rmqlite.cli.main import main
from rmqlite.store_tools.moving.backup import Backup

def wait(*_):
    print("begun", flush=True)
    signal.pause()

Backup.check = wait
sys.argv[0] = "rmqlite"
main()
"""
EXPORT = """
import signal, sys
from pathlib import Path
from rmqlite.cli.main import ended_by_signals
from rmqlite.cli.output.writing import written_bytes

with ended_by_signals(), written_bytes(Path(sys.argv[1])):
    print("begun", flush=True)
    while True:
        signal.pause()
"""


def begun(code: str, *arguments: object, ignored: tuple[int, ...] = ()) -> subprocess.Popen[str]:
    """Run a program until it says that it has begun."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    if ignored:
        # Not by preexec_fn: the child of a process with gRPC may abort before it.
        numbers = " ".join([str(int(each)) for each in ignored])
        command = ["sh", "-c", f"trap '' {numbers}; exec \"$@\"", "sh", *command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_backup_that_is_ended_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """A part that is left refuses the backup of each later night."""
    store = unpack_golden(tmp_path) / "clean"
    target = tmp_path / "night"
    with begun(BACKUP, "store", "backup", target, store) as process:
        assert Path(f"{target}.part").is_dir()
        process.send_signal(number)
        # Whoever sent it sees that it was the end.
        assert process.wait(60) == -number
    assert not list(tmp_path.glob("night*"))


def test_a_file_that_is_not_whole_is_removed(tmp_path: Path) -> None:
    """A hangup that nohup has the process ignore ends nothing."""
    with begun(EXPORT, tmp_path / "all.jsonl", ignored=(signal.SIGHUP,)) as process:
        assert list(tmp_path.iterdir())
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM
    assert not list(tmp_path.iterdir())
