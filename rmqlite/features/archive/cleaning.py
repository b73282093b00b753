"""Removes from an archive what no moment of archiveRetention needs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from rmqlite.features.archive.objects import (
    ArchiveBucket,
    ArchivedMoment,
    ArchiveHead,
    Contents,
    Piece,
)
from rmqlite.kernel.words.errors import StoreDamaged

CLEAN_MS: Final = 3_600_000
"""How often it is done, if something is archived; the moments of so long a time all stay."""
THIN_MS: Final = 600_000
"""Of older moments one in so long a time stays."""
_HOUR_MS: Final = 3_600_000


async def clean(bucket: ArchiveBucket, head: ArchiveHead, now_ms: int, hours: int) -> None:
    """Remove moments older than so many hours, but not the last one, and what only they need.

    Objects outside of the head's history are removed when they are so old.  Raises
    StoreUnavailable.
    """
    everything, old_ms = await bucket.contents(), now_ms - hours * _HOUR_MS
    kept, begin = thinned(everything.of_head(head).moments, now_ms, old_ms), 0
    while kept and not begin:
        try:
            begin = (await bucket.state(kept[0])).begin or 1
        except StoreDamaged:
            # Nobody can restore it.
            del kept[0]
    await bucket.remove(await asyncio.to_thread(_needless, everything, head, kept, begin, old_ms))


def _needless(
    everything: Contents, head: ArchiveHead, kept: list[ArchivedMoment], begin: int, old_ms: int
) -> list[Piece | ArchivedMoment]:
    """begin: where the log of the oldest moment kept begins."""
    own = everything.of_head(head)
    moments, pieces = {*own.moments} - {*kept}, {*_doubled(own.pieces)}
    pieces |= {each for each in own.pieces if each.end <= begin}
    others = {each for each in everything.moments if each.at_ms < old_ms} - {*own.moments}
    left = {each for each in everything.pieces if each.modified_ms < old_ms} - {*own.pieces}
    return [*moments, *pieces, *others, *left]


def thinned(moments: Sequence[ArchivedMoment], now_ms: int, old_ms: int) -> list[ArchivedMoment]:
    """The moments that stay, the oldest first."""
    kept = {}
    for each in moments:
        is_recent = each.at_ms >= now_ms - CLEAN_MS
        kept[each.at_ms if is_recent else each.at_ms // THIN_MS] = each
    return [each for each in kept.values() if each.at_ms >= old_ms] or [*moments[-1:]]


def _doubled(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """The pieces that one object was to replace when the broker was killed."""
    reached = (0, 0)
    for each in sorted(pieces, key=lambda piece: (piece.term, piece.begin, -piece.end)):
        if (each.term, each.end) <= reached:
            yield each
        else:
            reached = (each.term, each.end)
