"""What the service manager is sent, and that nothing depends on it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqlite.kernel.process.loops import READY, notify, reloading

VARIABLE = "NOTIFY_SOCKET"


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(10)
        yield listening


def test_a_state_is_one_datagram(
    manager: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of systemd's sd_notify()."""
    manager.bind(str(tmp_path / "notify"))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "notify"))
    notify(READY)
    assert manager.recv(4_096) == b"READY=1"
    notify(reloading())
    state, _, since = manager.recv(4_096).decode().partition("\nMONOTONIC_USEC=")
    assert state == "RELOADING=1"
    assert int(since) > 0


def test_an_abstract_address_begins_with_an_at(
    manager: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's manager often has one."""
    name = f"rmqlite-test{tmp_path}"
    manager.bind(f"\0{name}")
    monkeypatch.setenv(VARIABLE, f"@{name}")
    notify(READY)
    assert manager.recv(4_096) == b"READY=1"


def test_without_a_manager_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Most brokers are started by hand."""
    monkeypatch.delenv(VARIABLE, raising=False)
    notify(READY)
    assert not caplog.records


def test_a_manager_that_is_gone_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker serves all the same."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone"))
    notify(READY)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "state='READY=1' error=" in record.getMessage()
