"""The record in etcd: a key, and a second one that is there while the master's lease lasts.

To renew the lease changes no key, so etcd keeps no history of it.
"""

from __future__ import annotations

from rmqlite.features.authority.record import MasterRecord, RecordChanged, RecordEntry
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.protocols.etcd import Etcd, EtcdKeys


class EtcdRegister:
    """entry.version is the revision of the record's key."""

    def __init__(self, etcd: Etcd, lease_ms: int) -> None:
        self._etcd = etcd
        self._ttl_s = -(-lease_ms // 1000)
        self._lease = 0

    async def read_record(self) -> RecordEntry | None:
        keys = await self._etcd.read_keys()
        return _entry(keys) if keys.value is not None else None

    async def write_record(
        self, record: MasterRecord, replaced: RecordEntry | None, *, leases: bool
    ) -> RecordEntry:
        lease = await self._etcd.grant(self._ttl_s) if leases else 0
        before = replaced.version if replaced else 0
        revision = await self._etcd.replace(record.encode(), before, lease)
        if not revision:
            raise RecordChanged
        self._lease = lease or self._lease
        return RecordEntry(record, revision, is_held=True)

    async def renew_lease(self, entry: RecordEntry) -> RecordEntry:
        if not await self._etcd.keep_alive(self._lease):
            raise RecordChanged
        keys = await self._etcd.read_keys()
        if (keys.revision, keys.lease) != (entry.version, self._lease):
            raise RecordChanged
        return entry

    async def close_register(self) -> None:
        await self._etcd.close_channels()


def _entry(keys: EtcdKeys) -> RecordEntry:
    value = keys.value or b""
    try:
        return RecordEntry(MasterRecord.decode(value), keys.revision, is_held=keys.lease != 0)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidValue("authority", value[:100], "a record of rmqlite's in etcd") from error
