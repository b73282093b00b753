"""An archive beside a broker under test: archive by hand, restore, compare."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from rmqlite.features.archive.archiving import Archiving
from rmqlite.features.archive.objects import ArchiveBucket, ArchiveHead, Contents
from rmqlite.features.archive.restoring import Until, download, planned
from rmqlite.kernel.requests.broker import ArchiveStatus
from rmqlite.kernel.words.message import Message
from rmqlite.store_tools.moving.new_store import NewStore
from tests.support.brokers import LONG_BODIES, BrokerUnderTest

NEWEST: Final = Until()
TOPIC: Final = "orders"


class Archived:
    """A broker whose archiving goes on when attempt() is called; leave its `with` at the end."""

    def __init__(self, folder: Path, url: str, **changes: Any) -> None:
        self.url = url
        self.under_test = BrokerUnderTest(folder, archive_url=url, **(LONG_BODIES | changes))
        self.archiving = self.under_test.broker[Archiving]

    def __enter__(self) -> Archived:
        return self

    def __exit__(self, *_: object) -> None:
        self.archiving.close_archive()
        self.under_test.store.release()

    def send(self, *bodies: str, topic: str = TOPIC) -> None:
        for number, body in enumerate(bodies):
            self.under_test.send(Message(topic, body.encode()), queue_id=number % 4)
        self.under_test.sync()

    def attempt(self) -> ArchiveStatus:
        """Archive once; the state behind it."""
        asyncio.run(self.archiving.attempt())
        return self.archiving.status()

    def restart(self) -> None:
        """Stop the broker, and start it again on its store."""
        self.archiving.close_archive()
        self.under_test.restart()
        self.archiving = self.under_test.broker[Archiving]

    @property
    def end(self) -> int:
        return self.under_test.store.end

    def queue_ends(self, topic: str) -> list[int]:
        """The next queue offset of each queue."""
        queues = [self.under_test.store.queue(topic, each) for each in range(4)]
        return [queue.max_offset if queue else 0 for queue in queues]

    @property
    def log(self) -> bytes:
        return log_of(self.under_test.config.store_path)


def head_of(url: str) -> ArchiveHead:
    found = asyncio.run(ArchiveBucket(url).head())
    assert found is not None
    return found[0]


def contents_of(url: str) -> Contents:
    return asyncio.run(ArchiveBucket(url).contents())


def restored(url: str, target: Path, until: Until = NEWEST) -> int:
    """Make a sound store of the archive; returns where its log ends."""
    plan = planned(url, until)
    with NewStore(target) as made:
        made.make_part(plan.log_bytes)
        end = download(url, plan, made.disk, made.part, lambda _done, _total: None)
        made.complete(plan.state.files, end, plan.state.sizes)
        _, found = made.check(lambda _done, _total: None)
        assert found == []
        made.keep()
    return end


def log_of(root: Path) -> bytes:
    """The bytes of all log files; those before the first one are zeros."""
    paths = sorted((root / "commitlog").iterdir())
    return bytes(int(paths[0].name)) + b"".join([path.read_bytes() for path in paths])
