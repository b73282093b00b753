"""Who may write to an archive: one broker at a time, whose log goes on where the archive ends.

Each start of a broker begins a term, where both logs are the same.  So what a process may still
write that owned the archive before lies outside of its history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from rmqlite.features.archive.objects import (
    CHUNK_BYTES,
    ArchiveBucket,
    ArchiveHead,
    HeadChanged,
    Piece,
    Term,
    Version,
    log_begin,
    read_log,
)
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.store.disk.files import Files, SystemFiles
from rmqlite.kernel.store.log.checksums import MARK_BYTES, mark_position
from rmqlite.kernel.store.opening.file_sizes import sizes_of
from rmqlite.kernel.store.opening.recovery import PROGRESS_TABLE
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.words.errors import StoreUnavailable

OWNER_TABLE: Final = "archive.json"
_REMEDY: Final = "if this broker shall go on with it, start it once with --take-over"


class NotOwner(Exception):
    """This broker may not archive: another one owns the archive, or it has another history."""


class OwnLog(NamedTuple):
    """A store's folder and the length of its log files, and an end of its log that is on disk."""

    files: Files
    root: Path
    file_bytes: int
    end: int


async def claim(
    bucket: ArchiveBucket, own: OwnLog, owner: str, now_ms: int, *, takes_over: bool = False
) -> tuple[ArchiveHead, Version]:
    """Begin a term where the archive ends; returns the head, and its version.

    takes_over: from any owner, and where both logs are still the same, else with the whole log.
    Raises NotOwner, HeadChanged, StoreUnavailable, StoreDamaged.
    """
    found, contents = await bucket.head(), await bucket.contents()
    term = max([0, *[p.term for p in contents.pieces], *[m.term for m in contents.moments]])
    terms, begin, version = [], log_begin(own.files, own.root), None
    if found is not None:
        head, version = found
        term = max(term, head.term)
        end = contents.log_end(head)
        same = min(end, own.end)
        is_same = await _is_same(bucket, contents.of_head(head).pieces, own, same)
        if not takes_over and head.owner != owner:
            raise NotOwner(f"it belongs to {head.owner}, and this broker is {owner}; {_REMEDY}")
        if not takes_over and not (is_same and same == end):
            sentence = f"its log up to {end:,} is not the beginning of this broker's"
            raise NotOwner(f"{sentence}, which ends at {own.end:,}; {_REMEDY}")
        if is_same:
            used = {each.term for each in contents.of_head(head).pieces}
            terms = [each for each in head.terms if each.begin < same and each.term in used]
            begin = same
    claimed = ArchiveHead(owner, (*terms, Term(term + 1, begin)), begin, now_ms)
    return claimed, await bucket.put_head(claimed, version)


async def _is_same(bucket: ArchiveBucket, pieces: Sequence[Piece], own: OwnLog, end: int) -> bool:
    """Is the archive's log before a physical offset the store's?

    Compared are the last bytes that both have.  Records name their time and their place: another
    history has other bytes.
    """
    for piece in pieces:
        if piece.begin < end <= piece.end:
            begin = max(piece.begin, log_begin(own.files, own.root), end - CHUNK_BYTES)
            if begin >= end:
                return True
            archived = await bucket.piece_end(piece, begin, end)
            try:
                found = b"".join(read_log(own.files, own.root, own.file_bytes, begin, end))
            except StoreUnavailable:
                return False
            places = begin, own.file_bytes
            return _without_marks(archived, *places) == _without_marks(found, *places)
    return not pieces


def _without_marks(data: bytes, begin: int, file_bytes: int) -> bytes:
    """Bytes of the log from begin on; a power cut may bring back an older mark of a full file."""
    found = bytearray(data)
    for start in range(begin - begin % file_bytes, begin + len(data), file_bytes):
        at = start + mark_position(file_bytes) - begin
        mark = slice(max(0, at), max(0, at + MARK_BYTES))
        found[mark] = bytes(len(found[mark]))
    return bytes(found)


def owner_of(files: Files, root: Path, broker_name: str) -> str:
    """The name under which a store archives; made at the first time."""
    path = root / "config" / OWNER_TABLE
    known = tables.load(files, path)
    if known is None:
        known = {"owner": f"{broker_name}-{uuid4().hex[:8]}"}
        files.replace(path, tables.encode(known), keep_previous=True)
    return str(known["owner"])


def take_over(config: BrokerConfig, now_ms: int) -> str:
    """Make the store's broker, which does not run, the archive's owner; returns a sentence.

    Raises StoreLocked, StoreUnavailable, StoreDamaged, ExtraMissing.
    """
    files, root, bucket = SystemFiles(), config.store_path, ArchiveBucket(config.archive_url)
    files.make_folder(root / "config")
    with ExitStack() as locked:
        locked.callback(files.lock(root / "lock").release)
        if lock := bucket.lock():
            locked.callback(lock.release)
        persisted = tables.load(files, root / "config" / PROGRESS_TABLE) or {}
        end = int(persisted.get("physicalOffset", 0))
        own = OwnLog(files, root, sizes_of(files, root, config).log_file_bytes, end)
        owner = owner_of(files, root, config.broker_name)
        try:
            head, _ = asyncio.run(claim(bucket, own, owner, now_ms, takes_over=True))
        except HeadChanged as error:
            raise StoreUnavailable("take over", bucket.url, "it was written meanwhile") from error
    return f"{owner} owns {bucket.url} from physical offset {head.end:,} on"
