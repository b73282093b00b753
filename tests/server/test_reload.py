"""SIGHUP: keys that take effect at once, keys that need a start, and files that are refused."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from rmqlite.kernel.config.config import BrokerConfig, load_config
from rmqlite.kernel.process.loops import Reload
from rmqlite.kernel.requests.broker import LevelsChange
from tests.support.brokers import BrokerUnderTest
from tests.support.files import ForgetfulFiles
from tests.support.messages import delayed


class Started:
    """A broker that was started with a file, and what it logs."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self._caplog = caplog
        self.files = ForgetfulFiles()
        self.broker = BrokerUnderTest(
            folder / "store", files=self.files, message_delay_level="1s 5s"
        )
        self._conf = folder / "broker.conf"
        self.write()
        self.reload = Reload(self._load(), self._load, self.broker.broker.levels)

    def _load(self) -> BrokerConfig:
        return load_config(self._conf)

    def write(self, **keys: str) -> None:
        """Write the file with other values for these keys."""
        lines = {"messageDelayLevel": "1s 5s"} | keys
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    def read(self) -> list[tuple[str, str]]:
        """Read the file; return the lines of the log."""
        self._caplog.clear()
        self.reload.read()
        return [(each.levelname, each.getMessage()) for each in self._caplog.records]

    @property
    def table(self) -> str:
        return self.broker.store.levels.current.text


@pytest.fixture
def started(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Started:
    return Started(tmp_path, caplog)


def test_an_edited_table_is_in_force_at_once(started: Started) -> None:
    """One line has the old and the new levels; pending messages keep their times."""
    started.broker.send(delayed("old", 2))
    started.write(messageDelayLevel="1s 9s")
    assert started.read() == [
        ("INFO", "delay levels changed by=broker.conf before='1s 5s' after='1s 9s'")
    ]
    (new,) = started.broker.send(delayed("new", 2))
    assert new.deliver_at_ms == started.broker.clock.now_ms() + 9_000
    started.broker.clock.forward(5_000)
    assert started.broker.deliver() == 1


def test_a_file_that_says_nothing_new_changes_nothing(started: Started) -> None:
    """Nor does it undo what an administrator has set since."""
    assert started.read() == [
        ("INFO", "configuration read again, the delay levels stay levels='1s 5s'")
    ]
    started.broker.broker.levels.change(LevelsChange("1s 7s"))
    assert started.read() == [
        ("INFO", "configuration read again, the delay levels stay levels='1s 7s'")
    ]
    assert started.table == "1s 7s"


def test_a_table_that_takes_something_away_counts_and_is_warned_of(started: Started) -> None:
    """The file is what the operator wrote down, but a word that was lost there is noticed."""
    started.broker.send(delayed("waits", 2))
    started.write(messageDelayLevel="1s")
    assert started.read() == [
        ("INFO", "delay levels changed by=broker.conf before='1s 5s' after='1s'"),
        (
            "WARNING",
            "the new table of delay levels removes level 2 (messages that wait there: 1)",
        ),
    ]
    assert started.table == "1s"


def test_other_keys_are_named_in_one_warning(started: Started) -> None:
    """The log names the keys that need a start; the levels take effect all the same."""
    started.write(messageDelayLevel="2s 5s", maxPullWait="5000", fileReservedTime="1")
    assert started.read()[1:] == [
        (
            "WARNING",
            "these keys take effect at the next start keys=fileReservedTime,maxPullWait",
        )
    ]
    assert started.table == "2s 5s"


@pytest.mark.parametrize(
    "keys", [{"messageDelayLevel": "1s  5s"}, {"fileReservedTime": "never"}, {"unknown": "1"}]
)
def test_a_file_that_cannot_be_used_changes_nothing(started: Started, keys: dict[str, str]) -> None:
    """Not even its good lines take effect."""
    started.write(**{"messageDelayLevel": "9s", **keys})
    ((level, said),) = started.read()
    assert level == "ERROR"
    assert "broker.conf:" in said
    assert started.table == "1s 5s"


def test_without_a_file_there_is_nothing_to_read(
    started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so; SIGHUP does not end the process."""
    caplog.clear()
    Reload(BrokerConfig(), None, started.broker.broker.levels).read()
    assert [each.getMessage() for each in caplog.records] == [
        "the broker was started without a configuration file, SIGHUP reads none"
    ]


def test_each_time_that_it_is_asked_it_reads(started: Started) -> None:
    """A signal that comes while it reads is not lost."""

    async def main() -> None:
        asked = asyncio.Event()
        running = asyncio.create_task(started.reload.run(asked))
        for levels in ("3s", "4s"):
            started.write(messageDelayLevel=levels)
            asked.set()
            while asked.is_set():
                await asyncio.sleep(0)
            assert started.table == levels
        running.cancel()

    asyncio.run(main())
