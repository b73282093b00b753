"""The compiled form of batches and deliveries, beside its plain twin: the same bytes and answers.

Without a C compiler there is only the plain form, and nothing to compare.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from rmqlite.kernel import compiled
from rmqlite.kernel.compiled import ROW, SPAN
from rmqlite.kernel.records.drafts import Draft, fresh
from rmqlite.kernel.records.packed import Packed
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.sends.calls import DraftCall, Outcome, Stored
from rmqlite.kernel.words.errors import RmqliteError, StoreUnavailable
from rmqlite.kernel.words.message import Message, pack_host
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from rmqlite.protocols.remoting.bytes.batch import BatchItem, read_batch, write_batch
from tests.support.brokers import BODY_BYTES_MAX, LONG_BODIES, BrokerUnderTest
from tests.support.files import FOR_GOOD, FaultyFiles
from tests.support.forms import OTHER, needs_compiled, same_in_both
from tests.support.messages import TOPIC, create_topic, received, send_back
from tests.support.sends import BORN_HOST
from tests.support.steps import done
from tests.support.thinned import part_of

pytestmark = needs_compiled

NAMES = ("KEYS", "TAGS", "UNIQ_KEY", "WAIT", "XKEYS", "KEYSX")
ODD_NAMES = ("DELAY", "CLUSTER", "TRAN_MSG", "REAL_QID", "REAL_TOPIC")
VALUES = ("", "a", "order-1 order-2", " two  blanks ", "7F00000100014E0B23A1", "\x01", "\0")
ODD_VALUES = ("Größe", "2", TOPIC)
USUAL_PAIRS = some.tuples(some.sampled_from(NAMES), some.sampled_from(VALUES))
ODD_PAIRS = some.tuples(
    some.sampled_from(NAMES + ODD_NAMES), some.sampled_from(VALUES + ODD_VALUES)
)


def strings(pairs: some.SearchStrategy[tuple[str, str]]) -> some.SearchStrategy[bytes]:
    return some.builds(
        lambda pairs, end: "\x02".join(map("\x01".join, pairs)).encode() + end,
        some.lists(pairs, max_size=5),
        some.sampled_from((b"", b"", b"\x02", b"\x02\x02", b"\x01", b"\xff")),
    )


def items(pairs: some.SearchStrategy[tuple[str, str]]) -> some.SearchStrategy[BatchItem]:
    bodies = some.sampled_from((b"x", b"order", b"x" * 700))
    flags = some.sampled_from((0, 7, -1))
    return some.builds(BatchItem, flag=flags, body=bodies, properties=strings(pairs))


BATCHES = some.lists(items(USUAL_PAIRS), min_size=1, max_size=6) | some.lists(
    items(ODD_PAIRS), min_size=1, max_size=2
)
USUAL = [
    BatchItem(0, b"one", b"UNIQ_KEY\x017F01\x02KEYS\x01order-1 order-2\x02TAGS\x01TagA"),
    BatchItem(3, b"two", b"TAGS\x01TagB\x02UNIQ_KEY\x017F02\x02"),
]


def call_of(batch: list[BatchItem], **changes: Any) -> DraftCall:
    body = write_batch(batch)
    shared = Draft(TOPIC, 1, b"WAIT\x01true", body, 17, BORN_HOST, 0, 0x304, 2)
    return DraftCall((shared._replace(spans=read_batch(body), **changes),))


def send(broker: BrokerUnderTest, calls: list[DraftCall]) -> list[object]:
    """One at a time: of several calls, the packed ones are stored last."""
    return [told(each) for call in calls for each in done(broker.broker.drafts.send([call]))]


def told(outcome: Outcome) -> object:
    if isinstance(outcome, RmqliteError):
        return type(outcome), str(outcome)
    return outcome._replace(physical_offsets=tuple(outcome.physical_offsets))


# ---- batches


@given(some.lists(BATCHES, min_size=1, max_size=3))
@example([USUAL])
def test_both_forms_store_a_batch_as_the_same_bytes(batches: list[list[BatchItem]]) -> None:
    """Log, queues, index, progress and answers, whatever a client puts into its properties."""
    same_in_both(lambda broker: send(broker, [call_of(batch) for batch in batches]))


SINGLE_PAIRS = some.tuples(
    some.sampled_from((*NAMES, "DELAY", "WAIT")), some.sampled_from(("a", "3", "1", "0", "true"))
)
SINGLES = some.builds(
    Draft,
    topic=some.sampled_from((TOPIC,) * 6 + (OTHER, "new", "no topic", "%RETRY%workers")),
    queue_id=some.sampled_from((0, 0, 0, 3, -1, 99)),
    properties=strings(SINGLE_PAIRS) | strings(SINGLE_PAIRS) | strings(ODD_PAIRS),
    body=some.sampled_from((b"x", b"order", b"x" * 700, b"")),
    born_timestamp_ms=some.just(17),
    born_host=some.sampled_from((BORN_HOST,) * 6 + (bytes(20),)),
    flag=some.sampled_from((0, 7, -1)),
    sys_flag=some.sampled_from((0, 0x304, 0, 4, -1)),
    reconsume_times=some.sampled_from((0, 2)),
    spans=some.just(b""),
    delay=some.just(""),
)


def single(topic: str, queue_id: int, properties: bytes) -> DraftCall:
    return DraftCall((Draft(topic, queue_id, properties, b"order", 17, BORN_HOST),))


@given(some.lists(SINGLES, min_size=1, max_size=8))
def test_both_forms_store_a_single_message_as_the_same_bytes(drafts: list[Draft]) -> None:
    """With a delay or without one, whatever a client puts into it."""

    def scenario(broker: BrokerUnderTest) -> object:
        # The queues are there, and the first two levels have one.
        for each in (b"", b"DELAY\x011\x02WAIT\x01true", b"DELAY\x012"):
            send(broker, [single(TOPIC, 0, each), single(OTHER, 0, each)])
        answers = send(broker, [DraftCall((draft,)) for draft in drafts])
        pending = {level: dict(each) for level, each in broker.store.progress.pending.items()}
        return answers, pending

    same_in_both(scenario)


def test_single_messages_of_many_queues_and_levels_are_one_append() -> None:
    """Those that wait and those that do not."""
    usual = [
        b"KEYS\x01k\x02WAIT\x01true",
        b"DELAY\x011\x02WAIT\x01true",
        b"WAIT\x01true\x02DELAY\x013",
    ]
    calls = [
        single(topic, queue_id, usual[number % 3])
        for number in range(60)
        for topic, queue_id in ((TOPIC, number % 4), (OTHER, number % 3))
    ]

    def scenario(broker: BrokerUnderTest) -> object:
        for call in calls:
            send(broker, [call])
        together = [told(each) for each in done(broker.broker.drafts.send(calls))]
        pending = {level: dict(each) for level, each in broker.store.progress.pending.items()}
        return together, pending

    same_in_both(scenario)


def test_calls_that_arrive_together_are_stored_in_their_order() -> None:
    """Single messages, batches, and what is left to the plain form; each with its own outcome."""
    odd = (b"TRAN_MSG\x01no", b"DELAY\x010", "KEYS\x01Größe".encode())
    calls = [single(TOPIC, 0, odd[number % 3] if number > 250 else b"") for number in range(300)]
    calls[7] = DraftCall((Draft(TOPIC, 0, b"", b"", 17, BORN_HOST),))
    calls[9::20] = [call_of(USUAL)] * len(calls[9::20])
    calls[11::30] = [single(TOPIC, -1, b"")] * len(calls[11::30])

    def scenario(broker: BrokerUnderTest) -> object:
        send(broker, [single(TOPIC, queue_id, b"") for queue_id in range(4)])
        together = [told(each) for each in done(broker.broker.drafts.send(calls))]
        places = [[*each.physical_offsets] for each in together if isinstance(each, Stored)]
        assert places == sorted(places)
        return together

    same_in_both(scenario)


def test_messages_to_queues_without_a_file_are_left_to_the_plain_form() -> None:
    """A queue takes a while to make, so a step has few of them; a level that is no level, too."""
    calls = [single(TOPIC, queue_id, b"DELAY\x010") for queue_id in range(4)]
    calls += [single(TOPIC, queue_id, b"XDELAY\x01a") for queue_id in range(4)]
    same_in_both(lambda broker: [told(each) for each in done(broker.broker.drafts.send(calls))])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"properties": b""},
        {"properties": b"CLUSTER\x01other"},
        {"queue_id": -1},
        {"queue_id": 99},
        {"topic": "made-on-demand"},
        {"topic": "no topic"},
        {"topic": SCHEDULE_TOPIC},
        {"topic": "%RETRY%workers"},
        {"topic": "Größe"},
        {"born_host": bytes(20)},
    ],
    ids=str,
)
def test_what_a_batch_says_of_all_its_messages_is_treated_alike(changes: dict[str, Any]) -> None:
    """Also what is refused: the sentence is the plain form's."""
    same_in_both(lambda broker: send(broker, [call_of(USUAL, **changes)] * 3))


@pytest.mark.parametrize(
    "odd",
    [
        BatchItem(0, b"", b""),
        BatchItem(0, bytes(BODY_BYTES_MAX + 1), b""),
        BatchItem(0, b"x", b"a\x01" + bytes(32_740)),
        BatchItem(0, b"x", b"KEYS\x01" + b"k " * 10_001),
    ],
    ids=["no body", "long body", "long properties", "many keys"],
)
def test_a_batch_with_one_message_too_large_is_refused_alike(odd: BatchItem) -> None:
    """As a whole: none of its messages is stored."""
    (answer,) = same_in_both(lambda broker: send(broker, [call_of([*USUAL, odd])]))
    assert not isinstance(answer, Stored)


def test_packed_records_go_on_in_the_next_file() -> None:
    """With the blank and the mark between them, at every distance from a file's end."""
    batch = [BatchItem(0, bytes(size), b"KEYS\x01k") for size in (9_000, 1, 30_000)] * 5

    def scenario(broker: BrokerUnderTest) -> object:
        answers = []
        for size in range(0, 4_000, 250):
            send(broker, [call_of([BatchItem(0, bytes(size + 1), b"")])])
            answers += send(broker, [call_of(batch)])
        assert broker.store.end > 3 * broker.store.log_file_bytes
        return answers

    same_in_both(scenario)


def test_what_is_ordinary_is_packed(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise all other tests here would compare the plain form with itself."""
    create_topic(under_test, TOPIC)
    create_topic(under_test, OTHER)
    usual, waits = single(TOPIC, 1, b""), single(TOPIC, 0, b"DELAY\x011\x02WAIT\x01true")
    # The queues are there.
    send(under_test, [call_of(USUAL), usual, waits])
    delay(under_test, 3)
    sizes: list[int] = []
    append_packed = under_test.store.append_packed

    def noted(packed: Sequence[Packed]) -> None:
        sizes.extend(map(len, packed))
        append_packed(packed)

    def refused(_: object) -> None:
        raise AssertionError("the plain form has made the records")

    monkeypatch.setattr(under_test.store, "append_packed", noted)
    monkeypatch.setattr(under_test.store, "append", refused)
    done(under_test.broker.drafts.send([call_of(USUAL), usual, waits, usual]))
    under_test.clock.forward(1_000)
    under_test.deliver_slice()
    assert sizes == [5, 5]


@pytest.mark.parametrize("where", ["commitlog", "consumequeue"])
def test_packed_records_are_stored_all_or_none(tmp_path: Path, where: str) -> None:
    """The disk fails within a file roll; afterwards the same batch goes in."""
    files = FaultyFiles()
    broker = BrokerUnderTest(tmp_path / "store", files=files, **LONG_BODIES)
    create_topic(broker, TOPIC)
    batch = call_of([BatchItem(0, bytes(80_000), b"KEYS\x01k")] * 6)
    # The second batch crosses the end of the log file.
    send(broker, [call_of(USUAL), batch])
    end = broker.store.end
    files.fail("write", where=lambda path: where in path.parts, times=FOR_GOOD)
    (outcome,) = done(broker.broker.drafts.send([batch]))
    assert isinstance(outcome, StoreUnavailable)
    files.heal()
    assert broker.store.end == end
    (outcome,) = done(broker.broker.drafts.send([batch]))
    assert not isinstance(outcome, Exception)
    assert outcome.queue_offset == 8
    broker.crash()
    broker.open()
    assert len(broker.messages(TOPIC, 1)) == 14
    broker.close()


# ---- other appends


def put(broker: BrokerUnderTest, *news: NewRecord) -> list[tuple[int, ...]] | type[Exception]:
    """What the store says of new records, or why it does not take them."""
    try:
        return [tuple(at) for at in broker.store.append(news)]
    except (RmqliteError, struct.error, OverflowError) as error:
        return type(error)


@given(
    some.lists(strings(ODD_PAIRS), min_size=1, max_size=4),
    some.sampled_from((TOPIC, "Größe", "%RETRY%workers", SCHEDULE_TOPIC, "x" * 127, "x" * 128)),
    some.sampled_from((0, 1, 2**31 - 1, -1)),
    some.sampled_from((bytes(8), bytes(20))),
    some.sampled_from((0, 7, -1, 2**31)),
    some.sampled_from((0, 999, -1, 2**63)),
)
def test_both_forms_append_new_records_as_the_same_bytes(
    properties: list[bytes], topic: str, queue_id: int, host: bytes, number: int, completes: int
) -> None:
    """Also what no caller makes: a number that has no room in its field."""

    def scenario(broker: BrokerUnderTest) -> object:
        said: list[object] = []
        for each in properties:
            draft = Draft(topic, queue_id, each, b"order", 17, host, number, number & 0xFF, 3)
            new = fresh(draft, pack_host("1.2.3.4:5"), completes=completes)
            other = fresh(Draft(OTHER, 0, each, b"x", 17, BORN_HOST), BORN_HOST)
            said += [put(broker, new, other, new), put(broker, other), put(broker, new)]
        return said

    same_in_both(scenario)


@pytest.mark.parametrize("before", [0, 1])
def test_a_record_longer_than_a_file_is_refused_alike(before: int) -> None:
    """It would go on from file to file for ever."""

    def scenario(broker: BrokerUnderTest) -> object:
        small, large = [
            fresh(Draft(OTHER, 0, b"KEYS\x01k", bytes(size), 17, BORN_HOST), BORN_HOST)
            for size in (100, broker.store.log_file_bytes)
        ]
        said = [put(broker, *[small] * before, large, small), put(broker, small)]
        return said, broker.store.end

    same_in_both(scenario)


def test_many_queues_of_one_append_are_alike() -> None:
    """More than the compiled form counts."""

    def scenario(broker: BrokerUnderTest) -> object:
        news = [
            fresh(Draft(TOPIC, number % 300, b"KEYS\x01k", b"x", 17, BORN_HOST), BORN_HOST)
            for number in range(700)
        ]
        return put(broker, *news), put(broker, *news[:200]), put(broker)

    same_in_both(scenario)


def test_what_a_broker_does_with_a_failed_message_is_alike() -> None:
    """A retry that comes again, and a dead letter; beside them a tag that is not of ASCII."""

    def scenario(broker: BrokerUnderTest) -> object:
        message = received(
            broker, message_id="A", keys="k1 k2", tags="TagA", properties={"color": "red"}
        )
        for level in (0, -1):
            send_back(broker, message, delay_level=level)
        broker.send(
            Message(TOPIC, b"waits", delay_level=5, message_id="B"),
            Message(TOPIC, b"Zeit", tags="Größe", message_id="C"),
        )
        broker.clock.forward(100_000)
        return deliver(broker)

    same_in_both(scenario)


# ---- deliveries


def delay(broker: BrokerUnderTest, count: int, properties: bytes = b"", level: int = 1) -> None:
    """Delayed messages, to both topics and several queues."""
    own = b"\x02".join([b"DELAY\x01%d" % level, *([properties] if properties else [])])
    for number in range(count):
        topic = (TOPIC, TOPIC, OTHER)[number % 3]
        draft = Draft(topic, number % 4, own, b"x" * (1 + number % 7), 17, BORN_HOST)
        done(broker.broker.drafts.send([DraftCall((draft,))]))


def deliver(broker: BrokerUnderTest) -> list[tuple[int | None, int, int]]:
    """All that is due, and what the schedule says of it after each slice."""
    said = []
    for _ in range(20):
        due_ms = broker.deliver_slice()
        schedule = broker.broker.schedule
        said.append((due_ms, schedule.delivered, schedule.undeliverable))
        if due_ms is None or due_ms > broker.clock.now_ms():
            break
    late = broker.broker.wait_queues.lateness(1)
    return [*said, (due_ms, late.count, late.max_ms)]


@given(some.lists(strings(ODD_PAIRS), max_size=4), some.integers(1, 5))
def test_both_forms_deliver_the_same_bytes(properties: list[bytes], slice_max: int) -> None:
    """Destination, keys, tags, and the end that completes the scheduled record."""

    def scenario(broker: BrokerUnderTest) -> object:
        for each in properties:
            delay(broker, 2, each)
            broker.clock.forward(10)
        delay(broker, 4)
        broker.clock.forward(1_000)
        delay(broker, 2)
        said = deliver(broker)
        broker.sync()
        pulled = [broker.pull(topic, 0, 0).messages for topic in (TOPIC, OTHER)]
        return said, pulled, broker.broker.wait_queues.status()

    same_in_both(scenario, deliver_batch_max=slice_max)


@pytest.mark.seeds(5, 40)
def test_both_forms_deliver_a_damaged_log_alike(seed: int) -> None:
    """A byte of the log or of the queue is another one; no message blocks those behind it."""

    def scenario(broker: BrokerUnderTest) -> object:
        random = Random(seed)
        delay(broker, 8, b"KEYS\x01k\x02TAGS\x01TagA")
        folder = broker.config.store_path
        log = folder / "commitlog" / f"{0:020d}"
        queue = folder / "consumequeue" / SCHEDULE_TOPIC / "0" / f"{0:020d}"
        path, end = random.choice([(log, broker.store.end), (queue, 160)])
        with path.open("r+b") as file:
            file.seek(random.randrange(end))
            file.write(bytes([random.randrange(256)]))
        broker.clock.forward(1_000)
        return deliver(broker)

    # One byte of it says when a message is due; then some of them may still wait.
    same_in_both(scenario, deliver_batch_max=3)


# ---- hostile numbers


@settings(max_examples=part_of(300))
@given(some.lists(some.tuples(*[some.integers(-3, 60)] * 5), max_size=4), some.data())
def test_spans_outside_of_their_body_are_not_read(
    spans: list[tuple[int, ...]], data: some.DataObject
) -> None:
    """No caller makes such; but memory is not Python's here."""
    body = data.draw(some.binary(max_size=50))
    packed = b"".join(SPAN.pack(*span) for span in spans) + data.draw(some.binary(max_size=1))
    batch = Draft(TOPIC, 0, b"", body, 17, BORN_HOST, spans=packed)
    limits = (BORN_HOST, 99, 99, 999, 9)
    compiled.loops.pack_drafts([batch], {TOPIC: (b"", b"")}, "s", 18, "t", 1, 99, *limits)


@settings(max_examples=part_of(300))
@given(some.binary(max_size=200), some.integers(-(2**63), 2**63 - 1), some.binary(max_size=100))
def test_a_slice_of_any_bytes_is_none(data: bytes, base: int, entries: bytes) -> None:
    """Entries of a damaged queue point anywhere."""
    for count in (-1, 1, 5):
        reads = [(base, data, count)] * 2
        found = compiled.loops.pack_deliveries(reads, entries, b"orders", 0, 1)
        assert found is None


@pytest.mark.parametrize(
    ("rows", "first", "byte"),
    [
        ((91, 0, 0), 0, 1),
        ((92, 0, 0), 0, 0),
        ((91, 1, 0), 0, 0),
        ((87, 0, 0), 0, 0),
        ((91, 0, 0), -1, 0),
        ((91, 0, 0), 0, -1),
        ((91, 0, 0), 0, 2**40),
    ],
)
def test_rows_that_are_not_those_of_the_data_are_refused(
    rows: tuple[int, int, int], first: int, byte: int
) -> None:
    """Nothing is written behind the data."""
    data = bytearray(91)
    with pytest.raises(ValueError, match="rows"):
        compiled.loops.place(data, ROW.pack(*rows), b"", first, byte, 0, 999, 1, [(0, 0, 0)])
    assert data == bytes(91)
