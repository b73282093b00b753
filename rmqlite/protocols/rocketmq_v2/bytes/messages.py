"""A message that is sent becomes a draft; a record becomes the message that a client receives.

The properties of a draft have the names of RocketMQ, so that a client of any protocol consumes it.
A user's properties are those that RocketMQ does not reserve: what a consumer gets as such it can
send again.

Bodies: a client of this protocol knows GZIP only, and some clients mean zlib's format by it,
others gzip's own.  So what is sent in gzip's format is stored in zlib's, which all clients of
RocketMQ 4 read; and what was compressed by anybody is received inflated, unless it is too long.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from binascii import crc32
from typing import Final, NamedTuple

from rmqlite.features.transactions.requests import TransactionEnd, TransactionQuestion
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.record import Head, read_head
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.words.compression import CODEC, COMPRESSED, readable
from rmqlite.kernel.words.errors import InvalidValue, MessageTooLarge
from rmqlite.kernel.words.limits import INT32_MAX, INT64_MAX
from rmqlite.kernel.words.message import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    KEY_SEPARATOR,
    KEYS,
    MESSAGE_GROUP,
    ORIGIN_MESSAGE_ID,
    ORIGIN_QUEUE_ID,
    ORIGIN_QUEUE_OFFSET,
    PGROUP,
    START_DELIVER_TIME,
    TAGS,
    TIMER_ASKED,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TRAN_MSG,
    UNIQ_KEY,
    encode_properties,
    offset_message_id,
    unpack_host,
)
from rmqlite.kernel.words.names import group_of, is_retry
from rmqlite.kernel.words.property_string import number_of
from rmqlite.protocols.pb.rocketmq_v2 import definition_pb2 as definition
from rmqlite.protocols.pb.rocketmq_v2 import service_pb2 as service
from rmqlite.protocols.rocketmq_v2.bytes import rules
from rmqlite.protocols.rocketmq_v2.bytes.codes import OK, Code, broken, refusal_of
from rmqlite.protocols.rocketmq_v2.bytes.rules import BORN_HOST, RESERVED, TRACE_CONTEXT

GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_TAIL_BYTES: Final = 8
_ZLIB_HEAD: Final = b"\x78\x9c"
INFLATED_BYTES_MAX: Final = 4 << 20
"""A body of more bytes is not inflated for a client: that takes 10 ms, and Node gets no more."""
LONG_BODY_BYTES: Final = 256 << 10
"""A longer body takes a millisecond, and a compressed one of any length up to 30."""
_UNIQ_KEY = UNIQ_KEY.encode()
_KEYS = KEYS.encode()
_TAGS = TAGS.encode()
_MESSAGE_GROUP = MESSAGE_GROUP.encode()
_DELAY = DELAY.encode()
_TRAN_MSG = TRAN_MSG.encode()
_BORN_HOST = BORN_HOST.encode()
_TRACE_CONTEXT = TRACE_CONTEXT.encode()
_TIMER_OUT_MS = TIMER_OUT_MS.encode()
_TIMER_DELIVER_MS = TIMER_DELIVER_MS.encode()
_START_DELIVER_TIME = START_DELIVER_TIME.encode()
_ORIGIN_MESSAGE_ID = ORIGIN_MESSAGE_ID.encode()
_ORIGIN_QUEUE_ID = ORIGIN_QUEUE_ID.encode()
_ORIGIN_QUEUE_OFFSET = ORIGIN_QUEUE_OFFSET.encode()
_DLQ_ORIGIN_TOPIC = DLQ_ORIGIN_TOPIC.encode()
_DLQ_ORIGIN_MESSAGE_ID = DLQ_ORIGIN_MESSAGE_ID.encode()
_RESERVED_BYTES: Final = frozenset(name.encode() for name in RESERVED)
_DELAYS: Final = frozenset(name.encode() for name in (*TIMER_ASKED, DELAY))
_ZLIB: Final = (0x000, 0x300)
"""The codec bits of zlib."""
_ID: Final = re.compile("([0-9A-F]{1,16})-([0-9A-F]{1,16})")


class SendRules(NamedTuple):
    """What the broker's configuration allows: of a body, and how long a message may wait."""

    body_bytes_max: int
    delay_ms_max: int


def queue_of(message_group: str, write_queues: int) -> int:
    """The queue of all messages of a group; -1, any queue, for messages without one."""
    return crc32(message_group.encode()) % write_queues if message_group else -1


def draft_of(
    message: definition.Message,
    topic: str,
    allowed: SendRules,
    *,
    write_queues: int,
    born_host: bytes,
    now_ms: int,
) -> Draft:
    """The draft of a message to a topic with so many queues.

    born_host: of the connection, packed; now_ms: on the broker's clock.  Raises Refusal.
    """
    system = message.system_properties
    kind = rules.message_type(system)
    body, sys_flag = _stored_body(message, allowed.body_bytes_max)
    group = system.message_group
    if group:
        rules.check_message_group(group)
    born_ms = rules.timestamp_ms(system.born_timestamp)
    return Draft(
        topic,
        queue_of(group, write_queues),
        _property_string(message, kind, topic, allowed.delay_ms_max, now_ms),
        body,
        born_ms if born_ms and born_ms > 0 else now_ms,
        born_host,
        0,
        sys_flag,
    )


def _stored_body(message: definition.Message, bytes_max: int) -> tuple[bytes, int]:
    """The body as it is stored, and its sys flag."""
    body, encoding = message.body, message.system_properties.body_encoding
    rules.check_body(len(body), bytes_max)
    if encoding in (definition.IDENTITY, definition.ENCODING_UNSPECIFIED):
        return body, 0
    if encoding != definition.GZIP:
        raise broken(Code.MESSAGE_CORRUPTED, "body_encoding", encoding, "IDENTITY or GZIP")
    try:
        if body.startswith(GZIP_MAGIC):
            body = zlib_of_gzip(body, bytes_max)
        else:
            check_zlib(body, bytes_max)
    except InvalidValue as error:
        raise refusal_of(error) from None
    return body, COMPRESSED


def _property_string(
    message: definition.Message, kind: int, topic: str, delay_ms_max: int, now_ms: int
) -> bytes:
    system = message.system_properties
    rules.check_message_id(system.message_id)
    pairs: dict[str, str] = {}
    user = message.user_properties
    if user:
        rules.check_user_properties(user)
        pairs.update(user)
    if system.keys:
        rules.check_keys(system.keys)
        pairs[KEYS] = KEY_SEPARATOR.join(system.keys)
    tag = system.tag
    if tag:
        rules.check_tag(tag)
        pairs[TAGS] = tag
    own = encode_properties(pairs)
    rules.check_properties_size(len(own))
    pairs = {UNIQ_KEY: system.message_id}
    if system.message_group:
        pairs[MESSAGE_GROUP] = system.message_group
    if kind == rules.DELAY:
        due_ms = rules.delivery_ms(system.delivery_timestamp, now_ms, delay_ms_max)
        pairs[TIMER_DELIVER_MS] = str(due_ms)
    elif kind == rules.TRANSACTION:
        # Its topic stands for its producer's group: these clients have no such groups.
        pairs |= {TRAN_MSG: "true", PGROUP: topic}
        if system.HasField("orphaned_transaction_recovery_duration"):
            spared_s = rules.recovery_s(system.orphaned_transaction_recovery_duration)
            pairs[CHECK_IMMUNITY_TIME_IN_SECONDS] = str(spared_s)
    host = rules.born_host_of(system.born_host)
    if host:
        pairs[BORN_HOST] = host
    if system.trace_context:
        rules.check_trace_context(system.trace_context)
        pairs[TRACE_CONTEXT] = system.trace_context
    more = encode_properties(pairs)
    return own + b"\x02" + more if own else more


def takes_long_to_store(message: definition.Message) -> bool:
    """Should another thread make the draft?  Only a body in gzip's format is worked on."""
    return message.system_properties.body_encoding == definition.GZIP


def takes_long_to_read(record: Record) -> bool:
    """Should another thread make the message?  It inflates the body, and makes its digest."""
    head = record.head
    is_long = head.body_end - head.body_position > LONG_BODY_BYTES
    return is_long or bool(head.sys_flag & COMPRESSED)


def write_message(
    message: definition.Message,
    record: Record,
    topic: str,
    *,
    receipt_handle: str = "",
    attempt: int = 1,
    namespace: str = "",
) -> None:
    """Write a record into an empty message, such as that of an answer, as a consumer gets it.

    topic: the one that it was sent to, in that namespace of the request.  attempt: 1 for the first
    delivery.  Field by field: a constructor takes three times as long.
    """
    head, pairs = record.head, record.properties.pairs
    message.topic.name = topic
    if namespace:
        message.topic.resource_namespace = namespace
    system = message.system_properties
    message.body, system.body_encoding = _received_body(record)
    digest = system.body_digest
    digest.type = definition.MD5
    digest.checksum = hashlib.md5(message.body, usedforsecurity=False).hexdigest().upper()
    rules.write_timestamp(system.born_timestamp, head.born_timestamp_ms)
    rules.write_timestamp(system.store_timestamp, head.store_timestamp_ms)
    system.store_host = unpack_host(head.store_host)
    system.delivery_attempt = max(1, attempt)
    if receipt_handle:
        system.receipt_handle = receipt_handle
    _write_place(system, head, pairs)
    _write_type(system, head, pairs)
    _write_texts(system, head, pairs)
    if not pairs.keys() <= _RESERVED_BYTES:
        user = message.user_properties
        for name, value in pairs.items():
            if name not in _RESERVED_BYTES:
                user[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")


def _received_body(record: Record) -> tuple[bytes, definition.Encoding]:
    """The body as it is transmitted."""
    body, sys_flag = record.body, record.head.sys_flag
    if not sys_flag & COMPRESSED:
        return body, definition.IDENTITY
    found = readable(body, sys_flag, INFLATED_BYTES_MAX)
    if found.is_whole and found.body is not body:
        return found.body, definition.IDENTITY
    is_gzip = body.startswith(GZIP_MAGIC) or (not found.is_whole and sys_flag & CODEC in _ZLIB)
    # Nobody could read the body if it were called GZIP, and its client would lose others, too.
    return body, definition.GZIP if is_gzip else definition.IDENTITY


def _write_place(
    system: definition.SystemProperties, head: Head, pairs: dict[bytes, bytes]
) -> None:
    """Message id, queue and queue offset; a retry has those of the record that failed first."""
    message_id = pairs.get(_UNIQ_KEY)
    queue_id, queue_offset = head.queue_id, head.queue_offset
    if message_id is None and group_of(head.topic) is not None:
        message_id = pairs.get(_ORIGIN_MESSAGE_ID)
    if is_retry(head.topic):
        queue_id = _number(pairs.get(_ORIGIN_QUEUE_ID), queue_id)
        queue_offset = _number(pairs.get(_ORIGIN_QUEUE_OFFSET), queue_offset)
    if message_id is None:
        system.message_id = offset_message_id(unpack_host(head.store_host), head.physical_offset)
    else:
        system.message_id = message_id.decode("utf-8", "replace")
    system.queue_id, system.queue_offset = min(queue_id, INT32_MAX), queue_offset


def _write_type(system: definition.SystemProperties, head: Head, pairs: dict[bytes, bytes]) -> None:
    """The type, the message group, and when it was due."""
    group = pairs.get(_MESSAGE_GROUP)
    if group is not None:
        system.message_group = group.decode("utf-8", "replace")
    is_delayed = _is_delayed(head, pairs)
    if pairs.get(_TRAN_MSG) == b"true":
        system.message_type = definition.TRANSACTION
    elif is_delayed:
        system.message_type = definition.DELAY
    elif group is not None:
        system.message_type = definition.FIFO
    else:
        system.message_type = definition.NORMAL
    if is_delayed:
        due = pairs.get(_TIMER_OUT_MS) or pairs.get(_TIMER_DELIVER_MS)
        due_ms = number_of(due or pairs.get(_START_DELIVER_TIME))
        if due_ms is not None:
            rules.write_timestamp(system.delivery_timestamp, due_ms)


def _is_delayed(head: Head, pairs: dict[bytes, bytes]) -> bool:
    """Did its producer ask for a delay?  A retry has waited, too, and a dead letter may have."""
    if pairs.keys().isdisjoint(_DELAYS) or group_of(head.topic) is not None:
        return False
    level = pairs.get(_DELAY)
    return level is None or len(pairs.keys() & _DELAYS) > 1 or bool(number_of(level))


def _write_texts(
    system: definition.SystemProperties, head: Head, pairs: dict[bytes, bytes]
) -> None:
    host = pairs.get(_BORN_HOST)
    if host is None:
        system.born_host = unpack_host(head.born_host).rpartition(":")[0].strip("[]")
    else:
        system.born_host = host.decode("utf-8", "replace")
    tag = pairs.get(_TAGS)
    if tag is not None:
        system.tag = tag.decode("utf-8", "replace")
    keys = pairs.get(_KEYS)
    if keys is not None:
        system.keys.extend(filter(None, keys.decode("utf-8", "replace").split(KEY_SEPARATOR)))
    context = pairs.get(_TRACE_CONTEXT)
    if context is not None:
        system.trace_context = context.decode("utf-8", "replace")
    origin_topic, origin_id = pairs.get(_DLQ_ORIGIN_TOPIC), pairs.get(_DLQ_ORIGIN_MESSAGE_ID)
    if origin_topic is not None and origin_id is not None:
        system.dead_letter_queue.topic = origin_topic.decode("utf-8", "replace")
        system.dead_letter_queue.message_id = origin_id.decode("utf-8", "replace")


def _number(value: bytes | None, default: int) -> int:
    found = number_of(value)
    return default if found is None else found


def transaction_id(queue_offset: int, physical_offset: int) -> str:
    """The id of the transaction of a half message."""
    return f"{queue_offset:X}-{physical_offset:X}"


def offsets_of(text: str) -> tuple[int, int]:
    """The inverse of transaction_id().  Raises Refusal."""
    found = _ID.fullmatch(text)
    offsets = (int(found[1], 16), int(found[2], 16)) if found else (-1, -1)
    if not 0 <= min(offsets) <= max(offsets) <= INT64_MAX:
        rule = "the id that the answer to the send has, unchanged"
        raise broken(Code.INVALID_TRANSACTION_ID, "transaction_id", text, rule)
    return offsets


def end_of(request: service.EndTransactionRequest) -> TransactionEnd | None:
    """What a producer asks for; None if it does not know yet how the transaction ends.

    Raises Refusal.
    """
    topic = rules.topic_of(request.topic)
    queue_offset, physical_offset = offsets_of(request.transaction_id)
    if request.resolution == definition.TRANSACTION_RESOLUTION_UNSPECIFIED:
        return None
    if request.resolution not in (definition.COMMIT, definition.ROLLBACK):
        raise broken(Code.BAD_REQUEST, "resolution", request.resolution, "COMMIT or ROLLBACK")
    is_commit = request.resolution == definition.COMMIT
    return TransactionEnd(topic, queue_offset, physical_offset, is_commit)


def recover_command(question: TransactionQuestion) -> service.TelemetryCommand:
    """The command that asks a producer how the transaction of a half message ends."""
    head = read_head(question.record)
    assert head is not None
    command = service.TelemetryCommand(status=OK)
    asked = command.recover_orphaned_transaction_command
    asked.transaction_id = transaction_id(question.queue_offset, question.physical_offset)
    write_message(asked.message, Record(head, question.record), head.topic)
    return command


def zlib_of_gzip(body: bytes, inflated_bytes_max: int) -> bytes:
    """A body in gzip's format in that of zlib, which all of RocketMQ's clients read.

    Only the frame changes: the compressed bytes stay.  Raises MessageTooLarge if it inflates to
    more, and InvalidValue if it is no whole stream of gzip.
    """
    content = _content(body, "gzip", 16 + zlib.MAX_WBITS, inflated_bytes_max)
    deflated = body[_gzip_head_bytes(body) : -_GZIP_TAIL_BYTES]
    return _ZLIB_HEAD + deflated + zlib.adler32(content).to_bytes(4, "big")


def check_zlib(body: bytes, inflated_bytes_max: int) -> None:
    """The same rules for a body in zlib's format."""
    _content(body, "zlib", zlib.MAX_WBITS, inflated_bytes_max)


def _content(body: bytes, name: str, window_bits: int, bytes_max: int) -> bytes:
    stream = zlib.decompressobj(window_bits)
    try:
        content = stream.decompress(body, bytes_max + 1)
    except zlib.error as error:
        raise InvalidValue("body", f"{len(body)} bytes", f"a stream of {name}: {error}") from None
    if len(content) > bytes_max:
        rule = f"at most {bytes_max} bytes when inflated"
        raise MessageTooLarge("body", f"more than {bytes_max} bytes", rule)
    if not stream.eof or stream.unused_data:
        raise InvalidValue("body", f"{len(body)} bytes", f"one whole stream of {name}")
    return content


def _gzip_head_bytes(body: bytes) -> int:
    """The length of a valid header: RFC 1952, section 2.3."""
    flags, size = body[3], 10
    if flags & 4:
        size += 2 + int.from_bytes(body[size : size + 2], "little")
    for text in (8, 16):
        # The name of a file, and a comment; each ends with a zero.
        if flags & text:
            size = body.index(0, size) + 1
    return size + (2 if flags & 2 else 0)
