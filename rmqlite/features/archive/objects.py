"""The objects of an archive: their names, their content, and every request for them.

    head                             who archives, under which terms, up to where
    <term>/log/<begin>-<end>-<CRC>   the log's bytes, begin <= physical offset < end; CRC-32
    <term>/state/<end>-<time>        the small files, as they were when the log ended there
    lock                             locked by the broker that archives; only in a folder (file://)

An object below a term is never changed.  A broker that takes an archive over begins a term of its
own at the physical offset up to which both logs are the same: two histories never mix.  The head
is written by conditional put, so that one broker at a time owns the archive; a folder has no such
put, but a lock.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from rmqlite.extras import check_extra
from rmqlite.kernel.store.disk.files import Files, Lock, SystemFiles
from rmqlite.kernel.store.disk.segments import is_numbered, position_name
from rmqlite.kernel.store.opening.file_sizes import Sizes
from rmqlite.kernel.words.errors import StoreDamaged, StoreUnavailable

CHUNK_BYTES: Final = 8 << 20
"""Bytes of one read of the log: to join a piece of smaller ones costs more than to read it."""
STATE_BYTES_MAX: Final = 1 << 30
TRIES: Final = 3
REASON_CHARS_MAX: Final = 300
Version = Mapping[str, str] | None
"""Which head is to be replaced; None: there is none yet."""
_HEAD: Final = "head"
_NAME: Final = re.compile(r"(\d+)/(?:log/(\d{20})-(\d{20})-([0-9a-f]{8})|state/(\d{20})-(\d{13,}))")
_REQUEST: Final = re.compile(r"^.*Error performing .*? - ")
"""The beginning of a reason: address, time and retries."""
SMALL_NAME: Final = re.compile(r"config/\w[\w.-]*|lock")
"""The small files that are archived, and that a restore writes."""
T = TypeVar("T")


class HeadChanged(Exception):
    """Another broker has written the head since it was read."""


class Piece(NamedTuple):
    """An object of the log, by term and physical offsets; crc: of its bytes."""

    term: int
    begin: int
    end: int
    crc: int
    modified_ms: int = 0
    """By the object store's clock."""

    @property
    def name(self) -> str:
        places = f"{position_name(self.begin)}-{position_name(self.end)}"
        return f"{self.term}/log/{places}-{self.crc:08x}"


class ArchivedMoment(NamedTuple):
    """A moment that can be restored: where the log ended, and the broker's time."""

    term: int
    end: int
    at_ms: int

    @property
    def name(self) -> str:
        return f"{self.term}/state/{position_name(self.end)}-{self.at_ms:013d}"


class Term(NamedTuple):
    """A term's number, and the physical offset where its part of the history begins."""

    term: int
    begin: int


@dataclass(frozen=True, slots=True)
class ArchiveHead:
    """Who archives.  terms: the history, the oldest first; each ends where the next one begins."""

    owner: str
    terms: tuple[Term, ...]
    end: int
    at_ms: int

    def encode(self) -> bytes:
        tree = {"owner": self.owner, "terms": self.terms, "end": self.end, "time": self.at_ms}
        return json.dumps(tree).encode()

    @classmethod
    def decode(cls, data: bytes) -> ArchiveHead:
        """Raises ValueError, KeyError, TypeError."""
        tree = json.loads(data)
        terms = tuple(Term(int(term), int(begin)) for term, begin in tree["terms"])
        return cls(str(tree["owner"]), terms, int(tree["end"]), int(tree["time"]))

    @property
    def term(self) -> int:
        return self.terms[-1].term

    def limits(self) -> dict[int, int]:
        """By term the physical offset where its part of the history ends."""
        ends = [each.begin for each in self.terms[1:]] + [1 << 63]
        return dict(zip([each.term for each in self.terms], ends, strict=True))


@dataclass(frozen=True, slots=True)
class State:
    """The store beside its log at one moment: where the log began, and the small files by name."""

    begin: int
    sizes: Sizes
    files: dict[str, bytes]

    def encode(self) -> bytes:
        texts = {name: data.decode(errors="surrogateescape") for name, data in self.files.items()}
        tree = {"begin": self.begin, "sizes": self.sizes, "files": texts}
        return gzip.compress(json.dumps(tree).encode(), 1)

    @classmethod
    def decode(cls, data: bytes) -> State:
        """Raises OSError, EOFError, zlib.error, ValueError, KeyError, TypeError."""
        # A few bytes must not become more than memory has.
        tree = json.loads(gzip.GzipFile(fileobj=BytesIO(data)).read(STATE_BYTES_MAX))
        texts = tree["files"].items()
        files = {str(name): text.encode(errors="surrogateescape") for name, text in texts}
        if not all(map(SMALL_NAME.fullmatch, files)):
            raise ValueError("not the files of a store")
        log_file_bytes, queue_file_bytes = map(int, tree["sizes"])
        return cls(int(tree["begin"]), Sizes(log_file_bytes, queue_file_bytes), files)


@dataclass(frozen=True, slots=True)
class Contents:
    """All pieces and moments in the order of term and place, of one history or of all."""

    pieces: list[Piece] = field(default_factory=list)
    moments: list[ArchivedMoment] = field(default_factory=list)

    def of_head(self, head: ArchiveHead) -> Contents:
        """What belongs to the head's history."""
        limits = head.limits()
        return Contents(
            [each for each in self.pieces if each.begin < limits.get(each.term, 0)],
            [each for each in self.moments if each.end <= limits.get(each.term, -1)],
        )

    def log_end(self, head: ArchiveHead) -> int:
        """The physical offset where the head's history ends."""
        limits = head.limits()
        ends = [min(each.end, limits[each.term]) for each in self.of_head(head).pieces]
        return max([*ends, head.terms[-1].begin])


class ArchiveBucket:
    """The archive at a URL; every method raises StoreUnavailable."""

    def __init__(self, url: str) -> None:
        """Raises ExtraMissing; StoreUnavailable for a URL that no client can be made for."""
        check_extra("archive")
        import obstore
        from obstore.store import from_url

        self.url = url.rstrip("/")
        self._api = obstore
        self._folder = Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None
        more: dict[str, Any] = {"mkdir": True}
        if self._folder is None:
            # A slow bucket needs a minute for the parts of an object; the caller tries again.
            more = {
                "client_options": {"timeout": "60s", "allow_http": True},
                "retry_config": {"max_retries": TRIES, "retry_timeout": timedelta(seconds=30)},
            }
        with self._asked("open", ""):
            self._store = from_url(self.url, **more)

    def lock(self, name: str = "lock") -> Lock | None:
        """Keep other brokers away from a folder.  Raises StoreLocked."""
        return SystemFiles().lock(self._folder / name) if self._folder else None

    async def head(self) -> tuple[ArchiveHead, Version] | None:
        """The head and its version; None: there is none.  Raises StoreDamaged."""
        found = await self.versioned(_HEAD)
        return found and (self._decoded(_HEAD, found[0], ArchiveHead.decode), found[1])

    async def put_head(self, head: ArchiveHead, replaced: Version) -> Version:
        """Replace the head of that version; returns the new one's.  Raises HeadChanged."""
        return await self.put_versioned(_HEAD, head.encode(), replaced)

    async def versioned(self, name: str) -> tuple[bytes, Version] | None:
        """An object that is replaced in place, and its version; None: there is none."""
        with self._asked("read", name):
            try:
                found = await self._api.get_async(self._store, name)
            except FileNotFoundError:
                return None
            return bytes(await found.bytes_async()), self._version(found.meta)

    async def put_versioned(self, name: str, data: bytes, replaced: Version) -> Version:
        """Replace one of that version; returns the new one's.  Raises HeadChanged.

        In a folder it is replaced in any case: a lock keeps others away.
        """
        mode: Any = "create" if replaced is None else replaced
        if self._folder is not None:
            mode = "overwrite"
        errors = self._api.exceptions
        lost = FileNotFoundError, errors.AlreadyExistsError, errors.PreconditionError
        with self._asked("write", name):
            try:
                done = await self._api.put_async(self._store, name, data, mode=mode)
            except lost as error:
                raise HeadChanged from error
        return self._version(done)

    async def contents(self) -> Contents:
        found = Contents()
        with self._asked("list", ""):
            async for rows in self._api.list(self._store):
                for row in rows:
                    if (name := _NAME.fullmatch(row["path"])) is None:
                        continue
                    term, begin, end, crc, at, time = name.groups()
                    if crc:
                        modified_ms = int(row["last_modified"].timestamp() * 1000)
                        places = int(term), int(begin), int(end)
                        found.pieces.append(Piece(*places, int(crc, 16), modified_ms))
                    else:
                        found.moments.append(ArchivedMoment(int(term), int(at), int(time)))
        found.pieces.sort()
        found.moments.sort()
        return found

    async def put(self, name: str, data: bytes | Iterator[bytes]) -> None:
        with self._asked("write", name):
            await self._api.put_async(self._store, name, data, max_concurrency=4)

    async def piece(self, piece: Piece) -> bytes:
        """Raises StoreDamaged for one that is missing or whose bytes are not those of its name."""
        data = await self._get(piece.name)
        length, crc = piece.end - piece.begin, zlib.crc32(data)
        if (len(data), crc) != (length, piece.crc):
            expected = f"{length:,} bytes with CRC-32 {piece.crc:08x}"
            raise self._damage(piece.name, expected, f"{len(data):,} with {crc:08x}")
        return data

    async def piece_end(self, piece: Piece, begin: int, end: int) -> bytes:
        """The bytes begin <= physical offset < end of a piece, whose checksum is not compared."""
        where = {"start": begin - piece.begin, "end": end - piece.begin}
        with self._asked("read", piece.name):
            return bytes(await self._api.get_range_async(self._store, piece.name, **where))

    async def state(self, moment: ArchivedMoment) -> State:
        """Raises StoreDamaged for one that is missing or cannot be read."""
        data = await self._get(moment.name)
        return await asyncio.to_thread(self._decoded, moment.name, data, State.decode)

    async def remove(self, rows: Iterable[Piece | ArchivedMoment]) -> None:
        """All in one request, if the object store knows that; one may be gone already."""
        if names := [each.name for each in rows]:
            with self._asked("remove", names[0]), suppress(FileNotFoundError):
                await self._api.delete_async(self._store, names)

    async def _get(self, name: str) -> bytes:
        with self._asked("read", name):
            try:
                found = await self._api.get_async(self._store, name)
                return bytes(await found.bytes_async())
            except FileNotFoundError as error:
                raise self._damage(name, "an object", "none: it was removed") from error

    def _decoded(self, name: str, data: bytes, decode: Callable[[bytes], T]) -> T:
        try:
            return decode(data)
        except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
            raise self._damage(name, "what a broker has archived", "other bytes") from error

    def _damage(self, name: str, expected: str, found: str) -> StoreDamaged:
        return StoreDamaged(f"{self.url}/{name}", 0, expected, found)

    @staticmethod
    def _version(meta: Mapping[str, Any]) -> Version:
        given = {name: meta[name] for name in ("e_tag", "version")}
        return {name: each for name, each in given.items() if each is not None}

    @contextmanager
    def _asked(self, verb: str, name: str) -> Iterator[None]:
        try:
            yield
        except (self._api.exceptions.BaseError, OSError, ValueError) as error:
            reason = " ".join(str(error).split("\n\n")[0].split())
            reason = _REQUEST.sub("", reason)[:REASON_CHARS_MAX]
            raise StoreUnavailable(verb, f"{self.url}/{name}", reason) from error


def read_log(files: Files, root: Path, file_bytes: int, begin: int, end: int) -> Iterator[bytes]:
    """The bytes begin <= physical offset < end of a store's log, in chunks, from its files."""
    while begin < end:
        start = begin - begin % file_bytes
        path = root / "commitlog" / position_name(start)
        size = min(end - begin, start + file_bytes - begin, CHUNK_BYTES)
        data = files.read(path, begin - start, size)
        if not data:
            raise StoreUnavailable("read", str(path), f"no bytes at {begin - start}")
        yield data
        begin += len(data)


def crc_of(chunks: Iterable[bytes]) -> int:
    crc = 0
    for chunk in chunks:
        crc = zlib.crc32(chunk, crc)
    return crc


def log_begin(files: Files, root: Path) -> int:
    """The physical offset at which a store's log begins, by the names of its files."""
    names = files.names(root / "commitlog")
    return min([int(name) for name in names if is_numbered(name)], default=0)
