"""A message that a client of RocketMQ 5 sends is stored as RocketMQ's proxy would store it."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from rmqlite.kernel.records.drafts import fresh
from rmqlite.kernel.records.encoding import encode
from rmqlite.kernel.records.record import read_head, to_message
from rmqlite.kernel.words.compression import COMPRESSED, inflated
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import decode_properties
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.messages import queue_of, takes_long_to_store, zlib_of_gzip
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import definition
from tests.support.rocketmq_v2 import HOST, ID, NOW_MS, drafted, outgoing, refused

Kind = definition.MessageType


def test_a_message_is_stored_with_the_names_of_rocketmq() -> None:
    """So that a client of any protocol consumes it, finds it, and filters it."""
    draft = drafted(
        outgoing(
            b"paid",
            {"shop": "Köln", "n": "3"},
            tag="card",
            keys=["order-17", "user-4"],
            born_host="worker-3",
            born_timestamp=Timestamp(seconds=1_600_000_000, nanos=123_000_000),
            trace_context="00-ab-cd-01",
            message_type=Kind.NORMAL,
        )
    )
    assert decode_properties(draft.properties) == {
        "shop": "Köln",
        "n": "3",
        "KEYS": "order-17 user-4",
        "TAGS": "card",
        "UNIQ_KEY": ID,
        "__BORNHOST": "worker-3",
        "TRACE_CONTEXT": "00-ab-cd-01",
    }
    assert draft._replace(properties=b"") == (
        *("orders", -1, b"", b"paid", 1_600_000_000_123, HOST),
        *(0, 0, 0, b"", ""),
    )


def test_the_smallest_message_has_an_id_and_nothing_else() -> None:
    """Each property takes room of every record."""
    draft = drafted(outgoing())
    assert draft.properties == b"UNIQ_KEY\x01" + ID.encode()
    assert draft.born_timestamp_ms == NOW_MS


@pytest.mark.parametrize("seconds", [0, -5, 1 << 60])
def test_a_message_without_a_birth_was_born_now(seconds: int) -> None:
    """Or with an impossible one."""
    assert drafted(outgoing(born_timestamp=Timestamp(seconds=seconds))).born_timestamp_ms == NOW_MS


@pytest.mark.parametrize("host", ["", "  ", "a\x01b", "x" * 256])
def test_a_host_that_is_no_plain_text_is_left_out(host: str) -> None:
    """It is for people only; the record has the address of the connection anyway."""
    assert drafted(outgoing(born_host=host)).properties == b"UNIQ_KEY\x01" + ID.encode()


@pytest.mark.parametrize(
    ("kind", "fields", "more"),
    [
        (Kind.FIFO, {"message_group": "user-4"}, {"__SHARDINGKEY": "user-4"}),
        (
            Kind.DELAY,
            {"delivery_timestamp": Timestamp(seconds=1_700_000_060, nanos=500_000_001)},
            {"TIMER_DELIVER_MS": "1700000060501"},
        ),
        (
            Kind.DELAY,
            {"delivery_timestamp": Timestamp(seconds=-7)},
            {"TIMER_DELIVER_MS": "0"},
        ),
        (Kind.TRANSACTION, {}, {"TRAN_MSG": "true", "PGROUP": "orders"}),
        (
            Kind.TRANSACTION,
            {"orphaned_transaction_recovery_duration": Duration(seconds=9, nanos=1)},
            {"TRAN_MSG": "true", "PGROUP": "orders", "CHECK_IMMUNITY_TIME_IN_SECONDS": "10"},
        ),
    ],
    ids=str,
)
def test_the_type_of_a_message_becomes_properties(
    kind: definition.MessageType, fields: dict[str, Any], more: dict[str, str]
) -> None:
    """The broker reads them, whichever protocol the message came by."""
    draft = drafted(outgoing(message_type=kind, **fields))
    assert decode_properties(draft.properties) == {"UNIQ_KEY": ID, **more}


def test_all_messages_of_a_group_go_to_one_queue() -> None:
    """Their order is that of a queue; a message without a group goes to any of them."""
    draft = drafted(outgoing(message_type=Kind.FIFO, message_group="user-4"))
    assert draft.queue_id == queue_of("user-4", 4) == zlib.crc32(b"user-4") % 4
    assert queue_of("", 4) == -1
    assert {queue_of(f"user-{number}", 4) for number in range(50)} == {0, 1, 2, 3}


# ---- bodies


CONTENT = b"a body that is long enough to be compressed, " * 20


def stored(body: bytes) -> bytes:
    """What a consumer of RocketMQ 4 reads of a body that is sent as GZIP."""
    draft = drafted(outgoing(body, body_encoding=definition.GZIP))
    assert draft.sys_flag == COMPRESSED
    new = fresh(draft, HOST, queue_id=0)
    encoded = encode(new, queue_offset=0, physical_offset=0, store_timestamp_ms=NOW_MS)
    head = read_head(encoded)
    assert head is not None
    return inflated(to_message(head, encoded)).body


def with_all_of_gzip() -> bytes:
    """A stream whose header has each optional part: extra bytes, a name, a comment and a CRC."""
    plain = gzip.compress(CONTENT, mtime=7)
    head = bytearray(plain[:10])
    head[3] = 2 | 4 | 8 | 16
    optional = b"\x03\x00abc" + b"name\x00" + b"comment\x00"
    crc = zlib.crc32(bytes(head) + optional) & 0xFFFF
    return bytes(head) + optional + crc.to_bytes(2, "little") + plain[10:]


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(CONTENT),
        gzip.compress(CONTENT, 1, mtime=0),
        gzip.compress(b""),
        with_all_of_gzip(),
        zlib.compress(CONTENT),
    ],
    ids=["gzip", "gzip, fast", "empty", "with a name", "zlib"],
)
def test_a_body_that_is_sent_as_gzip_is_read_by_a_client_of_rocketmq_4(body: bytes) -> None:
    """Those clients inflate zlib only; some clients of RocketMQ 5 mean zlib by GZIP."""
    assert stored(body) in (CONTENT, b"")


def test_only_the_frame_of_a_gzip_body_changes() -> None:
    """Compressing it once more would take ten times as long."""
    body = gzip.compress(CONTENT)
    made = zlib_of_gzip(body, 4_096)
    assert made[2:-4] == body[10:-8]
    assert zlib.decompress(made) == CONTENT


def two_streams() -> bytes:
    made = io.BytesIO()
    made.write(gzip.compress(b"a"))
    made.write(gzip.compress(b"b"))
    return made.getvalue()


@pytest.mark.parametrize(
    ("body", "code", "part"),
    [
        (gzip.compress(CONTENT)[:-1], Code.MESSAGE_CORRUPTED, "body must be one whole stream"),
        (gzip.compress(CONTENT) + b"x", Code.MESSAGE_CORRUPTED, "body must be one whole stream"),
        (two_streams(), Code.MESSAGE_CORRUPTED, "body must be one whole stream"),
        (b"\x1f\x8b\x08\x00", Code.MESSAGE_CORRUPTED, "body must be one whole stream"),
        (
            gzip.compress(CONTENT)[:-8] + bytes(8),
            Code.MESSAGE_CORRUPTED,
            "body must be a stream of gzip",
        ),
        (b"\x1f\x8b\x07" + bytes(20), Code.MESSAGE_CORRUPTED, "body must be a stream of gzip"),
        (
            gzip.compress(bytes(4_097)),
            Code.MESSAGE_BODY_TOO_LARGE,
            "body must be at most 4096 bytes when inflated",
        ),
        (
            zlib.compress(bytes(4_097)),
            Code.MESSAGE_BODY_TOO_LARGE,
            "body must be at most 4096 bytes when inflated",
        ),
        (zlib.compress(CONTENT)[:-1], Code.MESSAGE_CORRUPTED, "body must be one whole stream"),
        (b"no stream", Code.MESSAGE_CORRUPTED, "body must be a stream of zlib"),
    ],
    ids=[
        *("cut", "longer", "two", "begun", "another CRC", "unknown", "a bomb"),
        *("a bomb of zlib", "zlib that is cut", "nothing"),
    ],
)
def test_a_body_that_nobody_could_inflate_is_refused(body: bytes, code: Code, part: str) -> None:
    """Its consumers would lose it, and those of RocketMQ 4 all that they pulled with it."""
    with refused(code, part):
        drafted(outgoing(body, body_encoding=definition.GZIP))


def test_every_cut_of_a_gzip_body_is_refused() -> None:
    """Also one in its header."""
    body = with_all_of_gzip()
    for end in range(2, len(body)):
        with pytest.raises(InvalidValue):
            zlib_of_gzip(body[:end], 4_096)


def test_only_a_compressed_body_is_work_for_another_thread() -> None:
    """A switch of threads takes longer than a draft."""
    assert not takes_long_to_store(outgoing(bytes(4_000)))
    assert takes_long_to_store(outgoing(b"x", body_encoding=definition.GZIP))
