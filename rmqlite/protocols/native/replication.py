"""The call Replication.Follow: its frames as values, and the standby's end of it.

A frame is small or has at most FRAME_BYTES_MAX of the log, so gRPC needs no more memory than the
window, which both brokers keep.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.config.table_shapes import ConsumerOffsetsTable, validated
from rmqlite.kernel.service.access import Access
from rmqlite.kernel.store.tables.tables import Tree
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import InvalidValue, RmqliteError
from rmqlite.kernel.words.json_tree import WrongValue
from rmqlite.protocols.grpc.to_master import channel_to_master
from rmqlite.protocols.pb import rmqlite_pb2 as pb
from rmqlite.protocols.shared.codec import parsed
from rmqlite.protocols.shared.signing import Signer
from rmqlite.protocols.shared.status import (
    ERROR_METADATA,
    error_from_metadata,
    error_from_status,
)

FOLLOW: Final = "/rmqlite.v1.Replication/Follow"
FRAME_BYTES_MAX: Final = 1 << 20
FRAME_ROOM_BYTES: Final = 16 << 20
"""The most bytes of a frame with all committed offsets."""
OFFSETS_BYTES_MAX: Final = 64 << 20
TERMS_MAX: Final = 1_000
Read = Callable[[], Awaitable[bytes | None]]
Write = Callable[[bytes], Awaitable[object]]


class LogTerm(NamedTuple):
    """A start of a broker as the master.  start: where the log ended then.  id: drawn."""

    number: int
    start: int
    id: str


class FollowerFrame(NamedTuple):
    """What a standby says.  The first five, and url, are only in its first frame."""

    address: str = ""
    end: int = 0
    terms: Sequence[LogTerm] = ()
    log_id: str = ""
    log_file_bytes: int = 0
    synced_end: int = 0
    has_taken_over: bool = False
    url: str = ""

    def to_bytes(self) -> bytes:
        terms = [pb.ReplicationTerm(**each._asdict()) for each in self.terms]
        fields = self._asdict() | {"terms": terms}
        data: bytes = pb.FollowRequest(**fields).SerializeToString()
        return data


class MasterFrame(NamedTuple):
    """What a master says; the proto says what each field is."""

    offset: int = 0
    data: bytes = b""
    term: int = 0
    synced_end: int = 0
    now_ms: int = 0
    min_offset: int = 0
    offsets: bytes = b""
    hands_over: bool = False
    log_id: str = ""
    log_file_bytes: int = 0
    is_alone: bool = False

    def to_bytes(self) -> bytes:
        frame = pb.FollowResponse(**self._asdict())
        frame.crc = zlib.crc32(self.data)
        data: bytes = frame.SerializeToString()
        return data


def read_follower(data: bytes) -> FollowerFrame:
    """Raises InvalidValue."""
    found = parsed(pb.FollowRequest, data)
    if len(found.terms) > TERMS_MAX:
        raise InvalidValue("terms", len(found.terms), f"at most {TERMS_MAX}")
    terms = [LogTerm(each.number, each.start, each.id) for each in found.terms]
    values = [getattr(found, name) for name in FollowerFrame._fields]
    return FollowerFrame(*values)._replace(terms=terms)


def read_master(data: bytes) -> MasterFrame:
    """Raises InvalidValue, also if the bytes of the log have another CRC."""
    found = parsed(pb.FollowResponse, data)
    if zlib.crc32(found.data) != found.crc:
        raise InvalidValue("data", f"{len(found.data)} bytes", f"bytes with CRC {found.crc:#010x}")
    return MasterFrame(*[getattr(found, name) for name in MasterFrame._fields])


def pack_offsets(tree: Tree) -> bytes:
    """Committed offsets, as consumerOffset.json has them, for a frame."""
    return zlib.compress(json.dumps(tree).encode(), 1)


def unpack_offsets(body: bytes) -> Tree:
    """The same back.  Raises InvalidValue."""
    try:
        text = zlib.decompressobj().decompress(body, OFFSETS_BYTES_MAX)
        tree: Tree = validated(ConsumerOffsetsTable, json.loads(text)).model_dump(by_alias=True)
    except (ValueError, zlib.error, WrongValue) as error:
        raise InvalidValue("offsets", f"{len(body)} bytes", f"committed offsets: {error}") from None
    return tree


@asynccontextmanager
async def followed(config: BrokerConfig, access: Access) -> AsyncIterator[tuple[Read, Write]]:
    """A call to the master.  Raises RmqliteError, at its end too, which says why it has ended."""
    async with channel_to_master(config, FRAME_ROOM_BYTES) as channel:
        call: Any = channel.stream_stream(FOLLOW)(metadata=_signed(config, access))

        async def read() -> bytes | None:
            data: Any = await call.read()
            return None if data is grpc.aio.EOF else data

        try:
            yield read, call.write
        except grpc.aio.AioRpcError as error:
            raise _why(error, config.master_address) from error
        except (grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            # The call had ended before a frame was written.
            raise error_from_status("UNAVAILABLE", config.master_address) from error
        finally:
            call.cancel()


def _signed(config: BrokerConfig, access: Access) -> tuple[tuple[str, str], ...]:
    """Raises ConfigInvalid."""
    key = config.master_account
    if not key:
        return ()
    account = access.accounts.accounts.get(key) if access.accounts else None
    if account is None:
        raise config.refusal("master_account", "the access key of an account")
    return Signer(key, account.secret_text).metadata(FOLLOW, wall_ms())


def _why(error: grpc.aio.AioRpcError, address: str) -> RmqliteError:
    for key, value in error.trailing_metadata() or ():
        if key == ERROR_METADATA and isinstance(value, bytes):
            return error_from_metadata(value)
    return error_from_status(error.code().name, f"{address}: {error.details()}")
