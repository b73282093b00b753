"""rmqlite dlq import: which lines of an export become which messages, and how it ends."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from rmqlite.broker.redrive.judge import new_properties
from rmqlite.cli.dlq.export_rows import json_lines, message_of, row_in, row_of
from rmqlite.errors import InvalidValue, MessageTooLarge, Refused
from rmqlite.message import RESERVED_PROPERTIES, decode_properties, message_properties
from rmqlite.requests.bulk import BulkAnswer, BulkRequest, Refusal, RefusedAt
from rmqlite.requests.letters import UNREADABLE
from rmqlite.store.records.record import read_head
from rmqlite.store.records.stored import Record
from tests.cli.conftest import Run
from tests.support.fake_broker import FakeBroker
from tests.support.fake_dead_letters import HOSTILE, letter_of, record, stored


def line(number: int, body: bytes = b"x", /, **changes: Any) -> bytes:
    """What dlq export writes for a letter, with some columns changed."""
    message = stored(record(number, body, RETRY_TOPIC="orders", region="eu"))
    (text,) = json_lines([row_of(letter_of(message), message)]).splitlines()
    tree = json.loads(text)
    assert set(changes) <= set(tree)
    return json.dumps(tree | changes).encode() + b"\n"


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    path = tmp_path / "letters.jsonl"
    path.write_bytes(b"".join([line(n, f"body {n}".encode()) for n in range(3)]))
    return path


def takes_all(broker: FakeBroker) -> None:
    broker.answers["ScheduleBulk"] = lambda request: BulkAnswer(len(request.bodies))


def test_a_letter_becomes_the_message_that_a_redrive_would_send() -> None:
    """Same id and same properties but for the job: so neither sends what the other has sent."""
    data = record(7, b"\xff\x00", RETRY_TOPIC="orders", region="eu", REDRIVEN_TIMES="1")
    message = stored(data)
    row = row_in(json_lines([row_of(letter_of(message, redriven_before=1), message)]))
    made = message_of(row)
    assert (made.topic, made.body, made.tags, made.keys) == (
        "orders",
        b"\xff\x00",
        "A",
        ("order-7",),
    )
    assert not RESERVED_PROPERTIES & set(made.properties)
    head = read_head(data)
    assert head is not None
    sent = decode_properties(
        new_properties(Record(head, data), "%DLQ%billing:0:7", "job", made.message_id).encoded
    )
    assert sent.pop("REDRIVEN_BY") == "job"
    assert message_properties(made) == sent
    assert made.message_id == "redrive:%DLQ%billing:0:7"


def test_a_compressed_body_is_sent_as_its_producer_gave_it() -> None:
    """The export inflates it; a body that it could not inflate has no meaning without its mark."""
    packed = stored(record(1, zlib.compress(b"order" * 9), sys_flag=0x1))
    row = row_in(json_lines([row_of(letter_of(packed), packed)]))
    assert message_of(row).body == b"order" * 9
    strange = stored(record(1, b"not zlib", sys_flag=0x1))
    with pytest.raises(InvalidValue, match="body_is_compressed"):
        message_of(row_in(json_lines([row_of(letter_of(strange), strange)])))


def test_an_empty_body_and_a_lost_one_are_refused(
    run: Run, broker: FakeBroker, tmp_path: Path
) -> None:
    """A Java consumer fails at the one; the other is only the sentence that it is lost."""
    lost = {"group": "SCHEDULE_CONSUMER", "origin_topic": ""}
    properties = {"FAILURE_REASON": UNREADABLE}
    file = tmp_path / "letters.jsonl"
    file.write_bytes(
        line(1, b"")
        + line(2, UNREADABLE.encode(), properties=properties, **lost)
        + line(3, b"kept", properties={}, **lost)
    )
    takes_all(broker)
    result = run("dlq", "import", str(file), "--to-topic", "rescued", "--yes", "--json")
    tree = json.loads(result.stdout)
    assert (result.exit_code, tree["sent"], tree["refused"]) == (1, 1, 2)
    assert broker.asked["ScheduleBulk"][0].bodies == (b"kept",)
    empty, unreadable = [each["reason"] for each in tree["reasons"]]
    assert "at least 1 byte" in empty
    assert "content of this letter is lost" in unreadable


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"\n", "line="),
        (b"group,queue_id\n", "a JSON line as dlq export writes it"),
        (b"[" * 100_000, "a JSON line as dlq export writes it"),
        (b"[]\n", "line="),
        (b"{}\n", "line="),
        (line(0, origin_topic=""), "--to-topic"),
        (line(0, origin_topic="%RETRY%billing"), "--to-topic"),
        (line(0, origin_topic="SCHEDULE_TOPIC_XXXX"), "the broker's own"),
        (line(0, origin_topic="a b"), "topic='a b'"),
        (line(0, group="a b"), "group='a b'"),
        (line(0, queue_id="0"), "queue_id='0' is not allowed: int"),
        (line(0, queue_offset=-1), "queue_offset='-1'"),
        (line(0, queue_offset=True), "queue_offset='True'"),
        (line(0, keys=[1]), "keys="),
        (line(0, keys=["a b"]), "keys='a b'"),
        (line(0, properties={"region": 1}), "properties['region'] must be str, not int"),
        (line(0, properties={"region": "\x02"}), "control characters"),
        (line(0, tags="\ud800"), "tags="),
        (line(0, body="\ud800"), "body="),
        (line(0, body="0g", body_encoding="hex"), "body='0g'"),
    ],
)
def test_a_line_that_is_no_letter_is_refused_with_the_rule(text: bytes, said: str) -> None:
    """A file may be cut off, edited, or not an export at all."""
    with pytest.raises(Refused) as caught:
        message_of(row_in(text))
    assert said in str(caught.value)


def test_letters_are_sent_in_bulk(run: Run, broker: FakeBroker, letters: Path) -> None:
    """One call for many letters; each has its id, its topic and its body."""
    takes_all(broker)
    result = run("dlq", "import", str(letters), "--yes")
    assert (result.exit_code, result.stdout) == (0, "3 sent, 0 redriven before, 0 refused\n")
    (request,) = broker.asked["ScheduleBulk"]
    assert isinstance(request, BulkRequest)
    assert request.topics == ("orders",)
    assert request.bodies == (b"body 0", b"body 1", b"body 2")
    assert request.message_ids == tuple([f"redrive:%DLQ%billing:0:{n}" for n in range(3)])


def test_a_topic_may_be_named_for_all_letters(run: Run, broker: FakeBroker, letters: Path) -> None:
    """Also for those that do not say where they were sent; with a rate in small calls."""
    takes_all(broker)
    letters.write_bytes(letters.read_bytes() + line(3, origin_topic=""))
    how = ("--yes", "--to-topic", "inspection", "--rate", "1000")
    assert run("dlq", "import", str(letters), *how).exit_code == 0
    (request,) = broker.asked["ScheduleBulk"]
    assert request.topics == ("inspection",)
    wrong = run("dlq", "import", str(letters), "--yes", "--to-topic", "")
    assert wrong.exit_code == 2


def test_a_dry_run_counts_and_sends_nothing(run: Run, broker: FakeBroker, letters: Path) -> None:
    """What was redriven when the export was made stays out; so does what cannot be sent."""
    nowhere = [line(n, origin_topic="") for n in (3, 4)]
    redriven = line(5, redriven_by="r-1")
    letters.write_bytes(letters.read_bytes() + b"".join(nowhere) + redriven)
    result = run("dlq", "import", str(letters), "--dry-run")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "TO TOPIC  WOULD BE SENT",
        "orders                3",
        "3 would be sent, 1 redriven before, 2 refused",
        "REFUSED  SUCH AS",
        "2        line 4",
        "  topic='' is not allowed: a topic that users send to: name one with --to-topic",
    ]
    assert not broker.asked["ScheduleBulk"]
    tree = json.loads(run("dlq", "import", str(letters), "--dry-run", "--json").stdout)
    assert (tree["sent"], tree["already"], tree["refused"], tree["topics"]) == (
        3,
        1,
        2,
        {"orders": 3},
    )
    assert [row["letters"] for row in tree["reasons"]] == [2]


def test_the_brokers_refusals_and_duplicates_are_counted(
    run: Run, broker: FakeBroker, letters: Path
) -> None:
    """Letter by letter: the others are sent; nothing of a reason reaches the terminal as it is."""
    error = MessageTooLarge("body", 9, f"at most 5 bytes {HOSTILE}")
    refused = RefusedAt(2, Refusal.of("redrive:%DLQ%billing:0:2", error))
    broker.answers["ScheduleBulk"] = lambda _: BulkAnswer(1, (0,), (refused,))
    result = run("dlq", "import", str(letters), "--yes")
    assert result.exit_code == 1
    counts, head, example, reason = result.stdout.splitlines()
    assert counts == "1 sent, 1 redriven before, 1 refused"
    assert example.split() == ["1", "%DLQ%billing:0:2"]
    assert "at most 5 bytes \\x1b]52" in reason
    assert head == "REFUSED  SUCH AS"


def test_everything_sent_before_is_exit_code_1(run: Run, broker: FakeBroker, letters: Path) -> None:
    """As dlq redrive ends: a script sees that nothing was to do."""
    broker.answers["ScheduleBulk"] = lambda _: BulkAnswer(0, (0, 1, 2))
    result = run("dlq", "import", str(letters), "--yes", "--json")
    tree = json.loads(result.stdout)
    assert (result.exit_code, tree["sent"], tree["already"]) == (1, 0, 3)


def test_many_reasons_stay_a_short_table(run: Run, letters: Path) -> None:
    """A file that is no export at all has a reason in every line."""
    letters.write_bytes(b"".join([f"{n},{n}\n".encode() for n in range(100)]))
    tree = json.loads(run("dlq", "import", str(letters), "--dry-run", "--json").stdout)
    assert sum(row["letters"] for row in tree["reasons"]) == tree["refused"] == 100
    assert len(tree["reasons"]) == 21
    assert tree["reasons"][-1]["reason"] == "other reasons"


def test_without_a_terminal_nothing_is_sent_unasked(
    run: Run, broker: FakeBroker, letters: Path
) -> None:
    """A script says --yes."""
    result = run("dlq", "import", str(letters))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--dry-run" in result.stderr
    assert run("dlq", "import", str(letters.parent / "missing"), "--yes").exit_code == 2
    assert not broker.asked["ScheduleBulk"]


def test_an_error_in_between_says_how_to_go_on(run: Run, broker: FakeBroker, letters: Path) -> None:
    """What was sent stays sent, and the same command leaves it out."""

    def refuse(_: BulkRequest) -> BulkAnswer:
        raise InvalidValue("messages", 3, "1 to 2 in one call")

    broker.answers["ScheduleBulk"] = refuse
    result = run("dlq", "import", str(letters), "--yes")
    assert result.exit_code != 0
    assert result.stderr.startswith("0 dead letters sent; the same command sends the rest\nerror:")
