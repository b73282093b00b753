"""The record in the archive: an object of its own, written by conditional put as the head is.

An object store has no leases.  So the master writes the object anew to renew its lease, and it is
held until whoever looks has seen no change for as long as the object says.  In a folder (file://)
a lock file stands for the conditional put.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import uuid4

from rmqlite.features.archive.objects import ArchiveBucket, HeadChanged, Version
from rmqlite.features.authority.record import MasterRecord, RecordChanged, RecordEntry
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import InvalidValue, StoreLocked, StoreUnavailable

OBJECT: Final = "authority"
LOCK: Final = "authority.lock"
LOCK_TRIES: Final = 50
LOCK_PAUSE_S: Final = 0.01


class AuthorityObject(NamedTuple):
    """The object.  mark: drawn for each write, so that each changes it."""

    record: MasterRecord
    lease_ms: int
    mark: str

    def encode(self) -> bytes:
        tree = json.loads(self.record.encode())
        return json.dumps({"record": tree, "lease_ms": self.lease_ms, "mark": self.mark}).encode()

    @classmethod
    def decode(cls, data: bytes) -> AuthorityObject:
        """Raises ValueError, KeyError, TypeError."""
        tree = json.loads(data)
        record = MasterRecord.decode(json.dumps(tree["record"]).encode())
        return cls(record, int(tree["lease_ms"]), str(tree["mark"]))


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """mark: of the object; version: the object store's."""

    mark: str
    version: Version


class BucketRegister:
    """entry.version is an ObjectVersion."""

    def __init__(
        self, bucket: ArchiveBucket, lease_ms: int, elapsed: Callable[[], float] = elapsed_s
    ) -> None:
        self._bucket = bucket
        self._lease_ms = lease_ms
        self._elapsed_s = elapsed
        self._seen = ("", 0.0)
        """The last mark, and when it was seen first."""

    async def read_record(self) -> RecordEntry | None:
        found = await self._found()
        if found is None:
            return None
        written, version = found
        now_s = self._elapsed_s()
        if written.mark != self._seen[0]:
            self._seen = (written.mark, now_s)
        is_held = (now_s - self._seen[1]) * 1000 < max(written.lease_ms, self._lease_ms)
        return RecordEntry(written.record, ObjectVersion(written.mark, version), is_held)

    async def write_record(
        self,
        record: MasterRecord,
        replaced: RecordEntry | None,
        *,
        leases: bool,  # noqa: ARG002
    ) -> RecordEntry:
        """Each one is a renewal here."""
        written = AuthorityObject(record, self._lease_ms, uuid4().hex)
        async with self._alone(replaced):
            before = replaced.version.version if replaced else None
            try:
                version = await self._bucket.put_versioned(OBJECT, written.encode(), before)
            except HeadChanged as error:
                raise RecordChanged from error
        return RecordEntry(record, ObjectVersion(written.mark, version), is_held=True)

    async def renew_lease(self, entry: RecordEntry) -> RecordEntry:
        return await self.write_record(entry.record, entry, leases=True)

    async def close_register(self) -> None:
        """Nothing stays open."""

    async def _found(self) -> tuple[AuthorityObject, Version] | None:
        found = await self._bucket.versioned(OBJECT)
        if found is None:
            return None
        try:
            return AuthorityObject.decode(found[0]), found[1]
        except (ValueError, KeyError, TypeError) as error:
            rule = f"what a broker has written to {self._bucket.url}/{OBJECT}"
            raise InvalidValue("authority", found[0][:100], rule) from error

    @asynccontextmanager
    async def _alone(self, replaced: RecordEntry | None) -> AsyncIterator[None]:
        """In a folder: inside it nobody else writes, and the object is the one to replace."""
        for _ in range(LOCK_TRIES):
            try:
                lock = self._bucket.lock(LOCK)
                break
            except StoreLocked:
                await asyncio.sleep(LOCK_PAUSE_S)
        else:
            raise StoreUnavailable("lock", f"{self._bucket.url}/{LOCK}", "others hold it")
        try:
            if lock is not None:
                found = await self._found()
                mark = replaced.version.mark if replaced else ""
                if (found[0].mark if found else "") != mark:
                    raise RecordChanged
            yield
        finally:
            if lock is not None:
                lock.release()
