"""What is cut off a log is on disk elsewhere before."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqlite.features.standby import tails
from rmqlite.features.standby.role import SLAVE, BrokerRole, role_of, save_role
from rmqlite.features.standby.tails import cut_tail, records_in, tails_of
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.words.errors import Refused, StoreUnavailable
from rmqlite.kernel.words.message import Message
from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerUnderTest

COMMON, ONLY_HERE = 5, 40


def with_tail(folder: Path) -> BrokerConfig:
    """A store that must lose its last messages at the next start."""
    broker = BrokerUnderTest(folder)
    broker.send(*[Message("orders", b"%d" % number) for number in range(COMMON)])
    end = broker.store.end
    broker.send(*[Message("orders", bytes(1 + number * 700)) for number in range(ONLY_HERE)])
    broker.close()
    save_role(broker.config, BrokerRole(SLAVE, "other:1", cut_at=end))
    return broker.config.model_copy(update={"broker_role": SLAVE, "master_address": "other:1"})


def log_of(config: BrokerConfig) -> list[bytes]:
    return [path.read_bytes() for path in sorted((config.store_path / "commitlog").iterdir())]


def test_a_long_tail_is_copied_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be as long as the log, and memory is not."""
    config = with_tail(tmp_path / "store")
    monkeypatch.setattr("rmqlite.kernel.store.log.log_walk.WINDOW_BYTES", 3_000)
    monkeypatch.setattr(tails, "WINDOW_BYTES", 2_000)
    cut_tail(config)
    (tail,) = tails_of(config.store_path)
    bodies = [bytes(each.body) for each in records_in(tail)]
    assert bodies == [bytes(1 + number * 700) for number in range(ONLY_HERE)]
    assert (tail.records, len(tail.message_ids)) == (ONLY_HERE, ONLY_HERE)
    broker = BrokerUnderTest(config.store_path)
    assert [each.body for each in broker.messages("orders")] == [b"%d" % n for n in range(COMMON)]
    broker.close()
    assert not list(check(config.store_path))


def test_a_full_disk_cuts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a copy these messages would be lost; the next start tries again."""
    config = with_tail(tmp_path / "store")
    before = log_of(config)

    class FullFiles(SystemFiles):
        def write(self, path: Path, position: int, data: bytes) -> None:  # noqa: ARG002
            raise StoreUnavailable("write to", str(path), "no space left on device")

    with monkeypatch.context() as full:
        full.setattr(tails, "SystemFiles", FullFiles)
        with pytest.raises(StoreUnavailable):
            cut_tail(config)
    assert log_of(config) == before
    assert not list((config.store_path / "tails").iterdir())
    cut_tail(config)
    assert len(tails_of(config.store_path)) == 1
    assert role_of(config).cut_at == -1


def test_a_list_that_nobody_could_read_again_cuts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limit is named, and checked before anything is cut."""
    config = with_tail(tmp_path / "store")
    before = log_of(config)
    monkeypatch.setattr(tails, "IDS_BYTES_MAX", 100)
    with pytest.raises(Refused, match="at most 100 bytes"):
        cut_tail(config)
    assert log_of(config) == before
    assert not list((config.store_path / "tails").iterdir())
