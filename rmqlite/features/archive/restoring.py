"""The log and the small files of one archived moment, downloaded into the folder of a new store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.features.archive.objects import (
    ArchiveBucket,
    ArchivedMoment,
    ArchiveHead,
    Piece,
    State,
)
from rmqlite.kernel.store.commit_log import CommitLog
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.segments import Segments
from rmqlite.kernel.words.errors import InvalidValue, StoreDamaged

PARALLEL: Final = 8
"""Objects that are downloaded at the same time."""
EVER: Final = 1 << 62


class Until(NamedTuple):
    """What is wanted of the log: records that end at or before a physical offset, and were stored
    before a time."""

    physical_offset: int = EVER
    time_ms: int = EVER


class Span(NamedTuple):
    """A part of an object: begin <= physical offset < end."""

    piece: Piece
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What is downloaded.  limit: where its log ends; records behind the moment may follow, as far
    as they are wanted.  last: the newest moment.  archive_end: where the archive's log ends.
    """

    until: Until
    moment: ArchivedMoment
    state: State
    spans: tuple[Span, ...]
    limit: int
    last: ArchivedMoment
    archive_end: int

    @property
    def log_bytes(self) -> int:
        return sum([span.end - span.begin for span in self.spans])


def moments_at(url: str) -> list[ArchivedMoment]:
    """Every moment that the archive remembers, the oldest first.

    Raises InvalidValue for a URL without an archive, StoreUnavailable, StoreDamaged, ExtraMissing.
    """

    async def listed() -> list[ArchivedMoment]:
        bucket = ArchiveBucket(url)
        return (await bucket.contents()).of_head(await _head(bucket)).moments

    return asyncio.run(listed())


def planned(url: str, until: Until) -> RestorePlan:
    """The newest moment that is wanted, or the newest at all.

    Raises as moments_at(), StoreDamaged also if an object that is needed is missing.
    """
    return asyncio.run(_planned(ArchiveBucket(url), until))


async def _planned(bucket: ArchiveBucket, until: Until) -> RestorePlan:
    head, everything = await _head(bucket), await bucket.contents()
    own = everything.of_head(head)
    wanted = [m for m in own.moments if m.end <= until.physical_offset and m.at_ms < until.time_ms]
    if not wanted:
        rule = "a time or a physical offset that the archive has, see --list"
        raise InvalidValue("--until", min(until), rule)
    moment, archive_end = wanted[-1], everything.log_end(head)
    later = [each.end for each in own.moments if each.end > moment.end]
    limit = moment.end if until == Until() else min([*later, archive_end])
    state = await bucket.state(moment)
    spans = _covering(bucket.url, head, own.pieces, state.begin, limit)
    return RestorePlan(until, moment, state, spans, limit, own.moments[-1], archive_end)


def download(
    url: str, plan: RestorePlan, files: Files, root: Path, report: Callable[[int, int], None]
) -> int:
    """Write the log below root; returns where it ends.  report: is called with bytes and total.

    Raises StoreUnavailable, and StoreDamaged for an object with other bytes than it was written
    with.
    """
    return asyncio.run(_download(ArchiveBucket(url), plan, files, root, report))


async def _download(
    bucket: ArchiveBucket,
    plan: RestorePlan,
    files: Files,
    root: Path,
    report: Callable[[int, int], None],
) -> int:
    segments = Segments(files, root / "commitlog", plan.state.sizes.log_file_bytes)
    left, done = iter(plan.spans), 0
    if plan.spans:
        # The objects come in any order, and a log has no gaps.
        for start in range(plan.state.begin, plan.limit, plan.state.sizes.log_file_bytes):
            segments.ensure(start)

    async def work() -> None:
        nonlocal done
        for piece, begin, end in left:
            data = await bucket.piece(piece)
            segments.write(begin, data[begin - piece.begin : end - piece.begin])
            done += end - begin
            report(done, plan.log_bytes)

    await asyncio.gather(*[work() for _ in range(PARALLEL)])
    for path in segments.take_unsynced():
        files.sync(path)
    return _cut(files, root, plan)


def _cut(files: Files, root: Path, plan: RestorePlan) -> int:
    """End the log behind its last record that is wanted."""
    end = plan.moment.end
    if plan.limit > end:
        log = CommitLog(files, root / "commitlog", plan.state.sizes.log_file_bytes)
        log.end = plan.limit
        for record in log.walk(end):
            is_late = record.head.store_timestamp_ms >= plan.until.time_ms
            if is_late or record.end > plan.until.physical_offset:
                break
            end = record.end
        # With the mark in the file, which says how far the log was on disk.
        Segments(files, root / "commitlog", log.segment_bytes).cut(end)
    return end


async def _head(bucket: ArchiveBucket) -> ArchiveHead:
    if (found := await bucket.head()) is None:
        raise InvalidValue("URL", bucket.url, "the archiveUrl of a broker")
    return found[0]


def _covering(
    url: str, head: ArchiveHead, pieces: Sequence[Piece], begin: int, end: int
) -> tuple[Span, ...]:
    """The objects with the log's bytes begin <= n < end."""
    found, at, limits = [], begin, head.limits()
    for piece in sorted(pieces, key=lambda each: (each.begin, -each.end)):
        upto = min(piece.end, limits[piece.term], end)
        if piece.begin <= at < upto:
            found.append(Span(piece, at, upto))
            at = upto
    if at < end:
        raise StoreDamaged(f"{url}/log", at, f"objects up to {end:,}", "none that begins there")
    return tuple(found)
