"""The compiled loops; a result of None means that the plain form does the work."""

from collections.abc import Callable, Sequence
from typing import Any, Final

INTERFACE: Final[int]

Packed = tuple[bytearray, bytes, bytes]
"""Records, one behind the other, without their places; a ROW of each; and their KEYs."""

def batch_spans(body: bytes, messages_max: int, /) -> bytes | tuple[int, int]:
    """A SPAN of each message in the body of a batch; see wire/remoting/batch.py.

    If the batch is wrong: the number of the message that breaks a rule, and where it begins.
    """

def pack_batch(
    body: bytes,
    spans: bytes,
    head: bytes,
    topic: bytes,
    common: bytes,
    ending: bytes,
    prefix: int,
    now_ms: int,
    delay_ms_max: int,
    body_bytes_max: int,
    properties_bytes_max: int,
    record_bytes_max: int,
    keys_max: int,
    /,
) -> Packed | None:
    """The records of messages in one buffer.

    head: the header that they share; size, CRC, flag and body length are set for each.  common,
    ending: parts that end each property string.  prefix: the hash of the topic before each key.
    now_ms: if it is not 0, each message has to ask for an instant, at most delay_ms_max later.
    """

def pack_records(records: list[Any], /) -> tuple[Packed, list[tuple[str, int]]] | None:
    """New records, and the topic and queue id of each queue that their rows number."""

def pack_drafts(
    drafts: list[Any],
    targets: dict[str, tuple[bytes, bytes]],
    schedule_topic: str,
    levels: int,
    timers_topic: str,
    now_ms: int,
    delay_ms_max: int,
    store_host: bytes,
    body_bytes_max: int,
    properties_bytes_max: int,
    record_bytes_max: int,
    keys_max: int,
    /,
) -> tuple[Packed, list[tuple[str, int]], bytes] | None:
    """The records of drafts, those that wait with the others.

    targets: by topic how each property string ends, and what comes before the queue id in the
    string of a message that waits.  levels: how many delay levels there are.  now_ms, delay_ms_max:
    for messages that ask for an instant.  Returns the queues that the rows number, and a byte for
    each draft: the level at which it waits, 127 if it waits for an instant, or 0.
    """

def pack_deliveries(
    reads: list[tuple[int, bytes, int]],
    entries: bytes,
    topic: bytes,
    queue_id: int,
    level: int,
    /,
) -> tuple[Packed, list[tuple[str, int, int, int, int]]] | None:
    """The records that deliver those behind the entries of a wait queue.

    reads: a physical offset, the log's bytes from there on, and how many of the next records lie
    in them.  topic, queue_id, level: of the wait queue, and its number.  The rows number the queues
    of the list: topic, queue id, how many records go there, the length of the longest body and of
    the longest record.
    """

def place(
    data: bytearray,
    rows: bytes,
    keys: bytes,
    first_row: int,
    first_byte: int,
    begin: int,
    end_max: int,
    timestamp_ms: int,
    queues: list[tuple[int, int, int]],
    /,
) -> tuple[int, int, list[int], list[bytes], list[int], list[int]]:
    """Write the places into packed records from a row on, which begins at first_byte of data.

    begin: the physical offset of the first.  It stops at the first record that would end behind
    end_max.  queues: queue id, next queue offset and due time of each, 0 for one in which nothing
    waits.  Returns the number of records and of bytes, the physical offsets, the entries of each
    queue, and hashes and physical offsets of the keys.  Raises ValueError for rows that are not
    those of the data.
    """

def enter_keys(
    image: bytearray,
    hashes: Sequence[int],
    places: Sequence[int],
    times: Sequence[int],
    slots: int,
    begin_ms: int,
    number: int,
    dirty: set[int],
    touch: Callable[[int], None],
    /,
) -> tuple[bytes, int]:
    """Write the numbers of new entries into the slots in an index file's image.

    hashes, places, times: of the keys; their physical offsets and timestamps.  number: of the
    first entry.  touch: is called for each page that changes and is not in dirty.  Returns the
    entries, and how many slots are no longer empty.
    """

def read_frames(
    data: bytes | memoryview,
    at: int,
    commands: list[Any],
    most: int,
    frame_bytes_max: int,
    header_bytes_max: int,
    command: type[Any],
    /,
) -> int:
    """Append the Commands of the whole frames from a place on, until there are most of them.

    Returns where it stopped: at the end, or at a frame that is not whole, or whose header is out of
    the ordinary.  command: the class.
    """

def make_draft(
    ext: dict[str, str], body: bytes, born_host: bytes, draft: type[Any], /
) -> Any | None:
    """The Draft of a single send of RocketMQ's protocol.  ext: with the short names.

    draft: its class.
    """

def read_sends(
    request: bytes, messages_max: int, reserved: frozenset[str], /
) -> tuple[str, int, int, int, str, list[str], bytes, bytes] | None:
    """A SendRequest of rmqlite.v1 whose messages have one topic, and one delay or all an instant.

    Topic, queue id, time of birth, delay level, delay; the message ids; the request with property
    strings behind it, and a SPAN of each message in there.  reserved: names of properties that no
    message may have.
    """

def write_results(
    topic: str,
    queue_id: int,
    queue_offset: int,
    message_ids: list[str],
    physical_offsets: list[int],
    deliver_at_ms: int | list[int],
    store_host: str,
    /,
) -> bytes:
    """A SendResponse of rmqlite.v1: the SendResults of a SentBatch."""

def copied(object: Any, slots: tuple[Any, ...], slot: Any, value: Any, /) -> Any:
    """A copy of an object with a value in one slot.  slots: descriptors of all of its fields."""

def write_sends(
    messages: tuple[Any, ...], producer_group: str, queue_id: int, born_at_ms: int, /
) -> bytes | None:
    """A SendRequest of rmqlite.v1 with these Messages."""

def write_kept(records: bytes, count: int, field: int, /) -> bytes | None:
    """So many records as KeptMessages of rmqlite.v1, each in a repeated field of this number."""

def read_results(answer: bytes, result: type[Any], /) -> tuple[Any, ...] | None:
    """The results of a SendResponse of rmqlite.v1.  result: the class SendResult."""

def read_pull(
    answer: bytes, message: type[Any], slots: tuple[Any, ...], /
) -> tuple[int, int, int, int, tuple[Any, ...]] | None:
    """A PullResponse of rmqlite.v1: status, next, min and max offset, and the messages.

    message: the class StoredMessage.  slots: the descriptors of its fields, in their order.
    """

def log_reads(
    entries: bytes,
    end_max: int,
    code_max: int,
    count_max: int,
    bytes_max: int,
    gap_max: int,
    read_max: int,
    /,
) -> list[tuple[int, int, int]] | None:
    """The reads that bring the records of the first entries: begin, end, how many of them.

    It stops at an entry whose record ends behind end_max, whose tags code is above code_max, or
    that would be one more than count_max or bytes_max, of which the first may be longer.  gap_max,
    read_max: records that are no further apart are read together, so many bytes at once.
    """

def whole_records(data: bytes, base: int, entries: bytes, /) -> bytes | None:
    """The records behind entries, one behind the other: ordinary ones, whose bodies' CRCs fit.

    data: bytes of the log from the physical offset base on.
    """

class Syncs:
    """What the loop and the thread that syncs share; it is a capsule."""

def sync_new() -> tuple[Syncs, int]:
    """And the descriptor of an eventfd, which is readable when a sync is over."""

def sync_put(syncs: Syncs, fd: int, /) -> None:
    """Sync a descriptor, which stays open until then; -1: sync_run() returns after it."""

def sync_run(syncs: Syncs, /) -> None:
    """In a thread: sync what sync_put() hands over, without the interpreter."""

def sync_take(syncs: Syncs, /) -> tuple[int, float] | None:
    """The errno of the sync that is over, 0 for none, and its seconds; None if none is over."""
