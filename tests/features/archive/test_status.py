"""What an operator sees of the archive: status, page, troubles, metrics."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from rmqlite.cli.status import Picture, StatusRound
from rmqlite.cli.top.app import header
from rmqlite.kernel.requests.broker import ArchiveStatus
from rmqlite.protocols.metrics.metrics import GAUGES, Now
from rmqlite.views.broker import cluster_tables, troubles
from tests.support.archives import Archived
from tests.support.broker_answers import STATUS
from tests.support.services import Served, served

BEHIND = ArchiveStatus(
    "s3://bucket/a",
    owner="broker-a-1",
    term=3,
    end=5_000,
    archived_at_ms=STATUS.now_ms - 90_000,
    behind_bytes=2_048,
    behind_since_ms=STATUS.now_ms - 60_000,
    lost_bytes=7,
    trouble="the archive is behind: away",
)


def test_the_row_says_where_the_archive_ends_and_what_it_lacks() -> None:
    """One row, on the page and in `rmqlite status`; none without an archive."""
    assert cluster_tables(STATUS) == []
    (table,) = cluster_tables(replace(STATUS, archives=(BEHIND,)))
    assert [cell.text for cell in table.rows[0].cells] == [
        *("s3://bucket/a", "broker-a-1", "3", "5,000", "1m 30s ago", "2.0 KiB for 1m 0s")
    ]


def test_the_full_screen_says_how_much_is_behind() -> None:
    """In its first line, beside the disk."""
    picture = Picture()
    picture.take(StatusRound(0.0, 0.0, replace(STATUS, archives=(BEHIND,))))
    line = "".join([part.text for part in header(picture, "host:1", 0.0, 160)])
    assert "archive 2.0 KiB behind" in line


def test_the_metrics_tell_how_long_it_is_behind() -> None:
    """The alert rule is about them; without an archive all are 0."""
    values = {}
    for archives in ((), (BEHIND,), (replace(BEHIND, behind_since_ms=0),)):
        now = Now(*[None] * 7)._replace(status=replace(STATUS, archives=archives))  # type: ignore[arg-type]
        values[archives] = [read(now) for name, _, read in GAUGES if name.startswith("archive_")]
    assert [*values.values()] == [[0, 0, 0], [2_048, 60, 7], [2_048, 0, 7]]


def test_a_trouble_is_a_warning_of_the_broker(archived: Archived) -> None:
    """So that status, page and top show it among the others."""

    async def asked(broker: Served, _: asyncio.Task[None]) -> None:
        broker.service.archives = lambda: (BEHIND,)
        status = await broker.service.status()
        assert status.archives == (BEHIND,)
        assert BEHIND.trouble in [each.text for each in troubles(status, (), ())]

    served(archived.under_test, asked)
