"""What somebody copies on the first day, run as the pages have it, in an empty folder.

Only what belongs to the machine differs: the ports are free ones, and the disk may be full.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.broker_processes import OF_ANY_DISK, StartBroker, free_port
from tests.support.documents import ROOT, Page

PAGE_PORT = "8081"
SECURITY = Page.read(ROOT / "rmqlite/features/accounts/SECURITY.md")
RMQLITE = """\
#!/bin/bash
# The command rmqlite; a broker gets settings for any machine.
if [ "$1 $2" = "broker --config" ]; then
    cat "$3" ../settings > here.conf
    set -- broker --config here.conf --listen-port 0 --name-server-port 0 --grpc-port {port}
fi
exec {python} -m rmqlite "$@"
"""


class Terminals:
    """An empty folder and the shells in it; `broker` is whatever the last block started."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "empty"
        self._port = str(free_port())
        self._exports = ""
        for folder in (self._folder, root / "bin"):
            folder.mkdir()
        (root / "settings").write_text("".join(f"{k}={v}\n" for k, v in OF_ANY_DISK.items()))
        command = root / "bin" / "rmqlite"
        command.write_text(RMQLITE.format(port=self._port, python=sys.executable))
        command.chmod(0o755)
        self._environment = {
            "HOME": str(root),
            "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "RMQLITE_ENDPOINT": f"127.0.0.1:{self._port}",
        }

    def run(self, block: str) -> str:
        """The output of a block, all of whose commands succeed, after the exports before it."""
        with self._shell(block) as shell:
            output, _ = shell.communicate(timeout=600)
        assert shell.returncode == 0, f"{block}\n{output}"
        exported = [line for line in block.splitlines() if line.startswith("export ")]
        self._exports += "".join([f"{line}\n" for line in exported])
        return output

    @contextmanager
    def broker(self, block: str) -> Iterator[None]:
        """A block that ends with a broker in the foreground, until Ctrl-C."""
        assert block.splitlines()[-1].startswith("rmqlite broker ")
        with self._shell(block) as shell:
            assert shell.stdout
            begun = next((line for line in shell.stdout if " ready at " in line), "it ended")
            try:
                assert " ready at " in begun
                yield
            finally:
                os.killpg(shell.pid, signal.SIGINT)
            assert shell.stdout.read().splitlines()[-1] == "rmqlite stopped"

    def _shell(self, block: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-e", "-c", (self._exports + block).replace(PAGE_PORT, self._port)],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def test_the_five_minutes_of_the_security_page_work(tmp_path: Path) -> None:
    """Every block, from an empty folder to accounts and TLS; nothing has to be guessed."""
    prepare, start, use, start_tls, use_tls = SECURITY.fences("sh")
    terminals = Terminals(tmp_path)
    assert terminals.run(prepare).splitlines() == ["3 accounts, 0 white addresses", "allowed"]
    with terminals.broker(start):
        assert '{"order": 1}' in terminals.run(use)
        with pytest.raises(AssertionError, match=r"error: .*topic:payments"):
            terminals.run("rmqlite send payments 1")
    with terminals.broker(start_tls):
        assert "MESSAGE ID" in terminals.run(use_tls)


def test_the_example_of_the_first_page_runs_as_it_stands(start_broker: StartBroker) -> None:
    """It is copied before anything else is read."""
    (example,) = Page.read(ROOT / "README.md").fences("python")
    broker = start_broker()
    port = broker.endpoint.rpartition(":")[2]
    ran = subprocess.run(
        [sys.executable, "-c", example.replace(PAGE_PORT, port)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    shown = ran.stdout.splitlines()
    assert shown[1:] == [
        "DONE",
        "('order-3',) b'12.50' failed before: 0",
        "('order-3',) b'12.50' failed before: 1",
    ]
