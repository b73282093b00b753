"""One record's bytes: pinned by what RocketMQ wrote, and there and back again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rmqlite.kernel import compiled
from rmqlite.kernel.pulling import Records
from rmqlite.kernel.records import encoding, record
from rmqlite.kernel.records.completion import completion_of, topic_ahead, wait_queue_left
from rmqlite.kernel.records.queue_entry import ENTRY
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.store.log import raw_records
from rmqlite.kernel.words.message import KEYS, TAGS, decode_properties, encode_properties, pack_host
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from rmqlite.kernel.words.property_string import PropertyString
from tests.support.forms import needs_compiled
from tests.support.stores import new_record
from tests.support.thinned import part_of

GOLDEN = bytes.fromhex(
    "0000007a daa320a7 060bb6a6 00000000 00000007 0000000000000000 0000000000000000 00000000"
    "0000018bcfe56800 0a000001000004d2 000001a1f8e3d996 0a00000200002a9f 00000000"
    "0000000000000000 00000006 626f64792d30 06 546f70696341"
    "0013 4b455953016b65793102544147530154616741"
)
GOLDEN_RECORD = new_record(
    "body-0",
    "TopicA",
    properties={KEYS: "key1", TAGS: "TagA"},
    flag=7,
    born_timestamp_ms=1_700_000_000_000,
    born_host=pack_host("10.0.0.1:1234"),
    store_host=pack_host("10.0.0.2:10911"),
)
GOLDEN_STORED_MS = 0x1A1F8E3D996
HOSTS = some.one_of(
    some.tuples(some.ip_addresses(v=4).map(str), some.integers(0, 65_535)),
    some.tuples(some.ip_addresses(v=6).map("[{}]".format), some.integers(0, 65_535)),
).map(lambda pair: f"{pair[0]}:{pair[1]}")
TEXT = some.text(
    some.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1
)


def encode(new: NewRecord, **place: int) -> bytes:
    at = {"queue_offset": 0, "physical_offset": 0, "store_timestamp_ms": 1, **place}
    return encoding.encode(new, **at)


def test_a_record_has_the_bytes_that_rocketmq_writes() -> None:
    """G1: RocketMQ 4.9.8 opens what we write."""
    assert encode(GOLDEN_RECORD, store_timestamp_ms=GOLDEN_STORED_MS) == GOLDEN


def test_a_record_that_rocketmq_wrote_is_read() -> None:
    """G1 again: we open what it wrote."""
    head = record.read_head(GOLDEN)
    assert head is not None
    assert record.has_sound_body(head, GOLDEN)
    message = record.to_message(head, GOLDEN)
    assert message.topic == "TopicA"
    assert message.body == b"body-0"
    assert message.flag == 7
    assert message.properties == {KEYS: "key1", TAGS: "TagA"}
    assert message.born_host == "10.0.0.1:1234"
    assert message.store_host == "10.0.0.2:10911"
    assert message.offset_message_id == "0A00000200002A9F0000000000000000"


def test_a_blank_says_how_much_is_left() -> None:
    """G2: what stands at position 976 of a file of 1024 bytes."""
    assert record.encode_blank(48) == bytes.fromhex("00000030 cbd43194")


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        ("TagA", 2598919),
        ("TagO", 2598933),
        ("TagD", 2598922),
        ("T1", 2653),
        ("T2", 2654),
        ("退款", 1170238),
        ("cancelled", 476588369),
    ],
)
def test_a_tags_code_is_javas_hash(tags: str, code: int) -> None:
    """G4: RocketMQ filters by it before it looks at a message."""
    assert record.tags_code(encode_properties({KEYS: "k", TAGS: tags})) == code


def test_a_tags_code_is_signed_and_of_utf16_units() -> None:
    """Java's char has 16 bits and its int wraps; only the sum of both gives its hash."""
    assert record.tags_hash("\U0001f600") == 31 * 0xD83D + 0xDE00
    assert record.tags_hash("polygenelubricants") == -(2**31)


def test_a_record_without_tags_has_code_zero() -> None:
    """G4: nor with a property whose name only ends like it."""
    assert record.tags_code(b"") == 0
    assert record.tags_code(encode_properties({"MYTAGS": "TagA"})) == 0


@given(
    body=some.binary(max_size=300),
    properties=some.dictionaries(TEXT, TEXT, max_size=5),
    hosts=some.tuples(HOSTS, HOSTS),
    numbers=some.tuples(*[some.integers(-(2**31), 2**31 - 1)] * 2, some.integers(0, 2**31 - 1)),
    longs=some.tuples(*[some.integers(0, 2**63 - 1)] * 4),
)
def test_a_record_survives_the_way_to_disk_and_back(
    body: bytes,
    properties: dict[str, str],
    hosts: tuple[str, str],
    numbers: tuple[int, int, int],
    longs: tuple[int, int, int, int],
) -> None:
    """Every field, both address families, any text."""
    flag, reconsume_times, queue_id = numbers
    new = new_record(
        body,
        queue_id=queue_id,
        properties=properties,
        flag=flag,
        reconsume_times=reconsume_times,
        born_host=pack_host(hosts[0]),
        store_host=pack_host(hosts[1]),
        completes=longs[3],
    )
    place = dict(
        zip(("queue_offset", "physical_offset", "store_timestamp_ms"), longs, strict=False)
    )
    data = b"before" + encode(new, **place) + b"behind"
    head = record.read_head(data, 6)
    assert head is not None
    assert record.has_sound_body(head, data)
    message = record.to_message(head, data)
    assert message.body == body
    assert message.properties == properties
    assert (pack_host(message.born_host), pack_host(message.store_host)) == (
        new.born_host,
        new.store_host,
    )
    assert (message.flag, message.reconsume_times, message.queue_id) == numbers
    assert message.prepared_transaction_offset == longs[3]
    assert {
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "store_timestamp_ms": message.store_timestamp_ms,
    } == place
    assert message.store_size == len(data) - 12


def test_a_part_of_a_record_is_none() -> None:
    """A tail may be torn at any byte."""
    for length in range(len(GOLDEN)):
        assert record.read_head(GOLDEN[:length]) is None, length


@pytest.mark.parametrize("position", [*range(8), *range(84, 88), 94, 101, 102])
def test_lengths_that_do_not_add_up_are_no_record(position: int) -> None:
    """Size, magic and the three lengths hold each other; any bit of them gives it away."""
    for bit in range(8):
        flipped = bytearray(GOLDEN)
        flipped[position] ^= 1 << bit
        assert record.read_head(bytes(flipped)) is None, bit


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "orders\0"])
def test_a_topic_that_cannot_be_a_folder_is_no_record(topic: str) -> None:
    """Recovery would write outside of the store, or take a torn topic for another one."""
    assert record.read_head(encode(new_record("x", topic))) is None
    assert record.read_head(encode(new_record("x", queue_id=-1))) is None


def test_a_changed_body_does_not_fit_its_crc() -> None:
    """Damage is told by the CRC where the layout cannot tell."""
    flipped = bytearray(GOLDEN)
    flipped[90] ^= 1
    head = record.read_head(bytes(flipped))
    assert head is not None
    assert not record.has_sound_body(head, bytes(flipped))


def entries(*rows: tuple[int, int], code: int = 0) -> bytes:
    return b"".join([ENTRY.pack(offset, size, code) for offset, size in rows])


@needs_compiled
@pytest.mark.parametrize("position", range(len(GOLDEN)))
def test_the_fast_look_agrees_with_the_plain_one(position: int) -> None:
    """Whatever byte has changed, no client gets a record that the plain form would not give."""
    for changed in (0, 1, 0x2F, 0x80, 0xFF, GOLDEN[position] ^ 1, GOLDEN[position]):
        data = b"before" + GOLDEN[:position] + bytes([changed]) + GOLDEN[position + 1 :] + b"after"
        head = record.read_head(data, 6)
        is_plain = (
            head is not None
            and (head.physical_offset, head.size) == (0, len(GOLDEN))
            and len(head.born_host) + len(head.store_host) == 16
            and head.sys_flag & record.TRANSACTION_TYPE != record.ROLLBACK
            and record.has_sound_body(head, data)
        )
        look, entry = compiled.loops.whole_records, entries((0, len(GOLDEN)))
        assert look(data, -6, entry) == (data[6:-5] if is_plain else None)
        for end in range(6, 6 + len(GOLDEN), 7):
            assert look(data[:end], -6, entry) is None
        if is_plain:
            (read,) = Records.whole(1, data[6:-5])
            assert (read.encoded, read.head) == (data[6:-5], record.read_head(data[6:-5]))


@needs_compiled
def test_the_fast_look_gives_all_records_or_none() -> None:
    """One that is damaged, or not there, leaves all to the plain form, which judges each."""
    size = len(GOLDEN)
    look = compiled.loops.whole_records
    assert look(GOLDEN, 0, entries((0, size), (0, size))) == GOLDEN * 2
    for offset, length in ((1, size), (-1, size), (0, size - 1), (0, -1), (0, 0), (1 << 62, size)):
        assert look(GOLDEN, 0, entries((0, size), (offset, length))) is None
    assert look(GOLDEN, 0, b"") is None
    assert look(GOLDEN, 0, entries((0, size)) + b"torn") == GOLDEN


@needs_compiled
@settings(max_examples=part_of(500))
@given(
    some.lists(some.tuples(some.integers(0, 40), some.integers(1, 30)), max_size=9),
    some.integers(0, 200),
    some.integers(1, 9),
    some.integers(1, 90),
)
def test_the_reads_of_the_log_are_those_of_the_plain_form(
    steps: list[tuple[int, int]], readable_end: int, messages_max: int, bytes_max: int
) -> None:
    """As many entries, and neighbours read together; steps: how far behind the last each begins."""
    rows, end = [], 0
    for gap, size in steps:
        rows.append((end + gap, size))
        end += gap + size
    chosen: list[tuple[int, int]] = []
    for row in rows[:messages_max]:
        fits = not chosen or sum(size for _, size in [*chosen, row]) <= bytes_max
        if sum(row) > readable_end or not fits:
            break
        chosen.append(row)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raw_records, "READ_GAP_BYTES_MAX", 20)
        patch.setattr(raw_records, "READ_BYTES_MAX", 50)
        reads = [(begin, end, len(near)) for begin, end, near in raw_records.neighbours(chosen)]
    limits = (readable_end, 7, messages_max, bytes_max, 20, 50)
    later = entries((0, 1), code=8)
    assert compiled.loops.log_reads(entries(*rows, code=7) + later, *limits) == reads


@needs_compiled
@pytest.mark.parametrize("row", [(-1, 100), (0, 0), (0, -1), (2**63 - 1, 1), (2**63 - 9, 10)])
def test_entries_that_point_nowhere_are_left_to_the_plain_form(row: tuple[int, int]) -> None:
    """A damaged queue may hold any number."""
    assert compiled.loops.log_reads(entries((0, 5), row), 2**63 - 1, 0, 9, 9, 9, 9) is None


def test_an_empty_body_has_crc_zero() -> None:
    """As RocketMQ writes it."""
    assert record.body_crc(b"") == 0


@pytest.mark.parametrize(
    ("encoded", "pairs"),
    [
        (b"TAGS\x01a\x02", {"TAGS": "a"}),
        (b"a\x01\x02b\x01c\x02\x01d", {"b": "c"}),
        (b"", {}),
        (b"no-separator", {}),
    ],
)
def test_property_strings_of_older_brokers_are_read(encoded: bytes, pairs: dict[str, str]) -> None:
    """With a separator at the end; pairs without key or value are dropped (reference §1.4)."""
    assert decode_properties(encoded) == pairs


def test_every_reader_takes_the_last_of_several_pairs() -> None:
    """RocketMQ puts them into a map: else both would deliver the same record elsewhere."""
    first = encode_properties(
        {"TAGS": "a", "DELAY": "1", "REAL_TOPIC": "t", "REAL_QID": "1", "RESCHEDULED_FROM": "7"}
    )
    last = encode_properties(
        {"TAGS": "b", "DELAY": "2", "REAL_TOPIC": "u", "REAL_QID": "2", "RESCHEDULED_FROM": "8"}
    )
    for encoded in (last, first + b"\x02" + last, first + b"\x02" + last + b"\x02FIRED\x01"):
        properties = PropertyString(encoded)
        assert record.tags_code(encoded) == record.tags_hash("b")
        assert record.delay_level(properties) == wait_queue_left("orders", properties) == 2
        assert record.destination(properties) == ("u", 2)
        assert topic_ahead(properties) == "u"
        assert wait_queue_left(SCHEDULE_TOPIC, properties) == 8
        assert completion_of("orders", properties).value == "delivered"
