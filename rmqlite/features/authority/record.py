"""What the authority holds, and what a broker concludes from it.

One record, which is replaced only as a whole, and only by who has seen the present one: so of two
brokers that want it at once one gets it.  Beside it there is a lease, which the master renews.
This module knows neither a clock nor a wire.
"""

from __future__ import annotations

import enum
import json
from dataclasses import asdict, dataclass
from typing import Any, Protocol


class RecordChanged(Exception):
    """The record was written by somebody else since, or the lease is gone."""


@dataclass(frozen=True, slots=True)
class MasterRecord:
    """master: its address.  in_sync: who has all that was acknowledged, the master, too.

    log_id: of the first term of the master's log; empty: not known.
    """

    master: str
    term: int
    in_sync: tuple[str, ...]
    log_id: str

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> MasterRecord:
        """Raises ValueError, KeyError, TypeError."""
        tree = json.loads(data)
        in_sync = tuple(map(str, tree["in_sync"]))
        return cls(str(tree["master"]), int(tree["term"]), in_sync, str(tree["log_id"]))


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """A record as it was read or written.  version: of the register, which compares it.

    is_held: has the lease of its master not run out?
    """

    record: MasterRecord
    version: Any
    is_held: bool


class Register(Protocol):
    """Where the record is.  Every method raises Unavailable, and InvalidValue or StoreDamaged for
    an answer that is none; who calls it sets a time limit."""

    async def read_record(self) -> RecordEntry | None:
        """None: nobody has ever been the master."""
        ...

    async def write_record(
        self, record: MasterRecord, replaced: RecordEntry | None, *, leases: bool
    ) -> RecordEntry:
        """Replace an entry; leases: and begin a lease.  Raises RecordChanged."""
        ...

    async def renew_lease(self, entry: RecordEntry) -> RecordEntry:
        """Let the lease of an own entry begin anew.  Raises RecordChanged."""
        ...

    async def close_register(self) -> None:
        """Let connections go."""
        ...


class Step(enum.Enum):
    """What a broker does about the record."""

    LEAD = "take it, and be the master"
    FOLLOW = "be the standby"
    FORBIDDEN = "neither: the log is another one"


def next_step(entry: RecordEntry | None, own: str, log_id: str, *, is_master: bool) -> Step:
    """own: this broker's address.  is_master: its role until now."""
    if entry is None:
        return Step.LEAD if is_master else Step.FOLLOW
    record = entry.record
    has_log = not record.log_id or record.log_id == log_id
    if record.master == own:
        return Step.LEAD if has_log else Step.FORBIDDEN
    if entry.is_held or own not in record.in_sync:
        return Step.FOLLOW
    return Step.LEAD if has_log else Step.FOLLOW
