"""rmqlite dlq import: which lines of an export become which messages, and how it ends."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from rmqlite.cli.dlq.export import json_lines, letter_in, row_in, row_of
from rmqlite.features.redrive.requests import (
    DeadLetterOutcome,
    ImportAnswer,
    ImportRequest,
    ReadersOfTopic,
    RedriveOutcome,
)
from rmqlite.kernel.records.completion import UNREADABLE
from rmqlite.kernel.words.errors import InvalidValue, Refused
from rmqlite.kernel.words.message import decode_properties
from rmqlite.kernel.words.names import retry_topic
from tests.cli.conftest import Run
from tests.support.fake_broker import FakeBroker
from tests.support.fake_dead_letters import HOSTILE, letter_of, record, stored

SENT, REFUSED = RedriveOutcome.SENT, RedriveOutcome.REFUSED


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


def takes_all(broker: FakeBroker, *refused: int) -> None:
    """A broker that sends all letters but some places, to their groups' retry topics or one."""

    def answer(request: ImportRequest) -> ImportAnswer:
        to = request.to_topic or retry_topic(request.group)
        letters = [
            DeadLetterOutcome(0, each.queue_offset, REFUSED, why=f"too large {HOSTILE}")
            if each.queue_offset in refused
            else DeadLetterOutcome(0, each.queue_offset, SENT, to, "redrive:x")
            for each in request.letters
        ]
        count = sum([each.outcome is SENT for each in letters])
        return ImportAnswer(tuple(letters), (ReadersOfTopic(to, count, (request.group,)),))

    broker.answers["ImportLetters"] = answer


def asked(broker: FakeBroker) -> list[ImportRequest]:
    return [each for each in broker.asked["ImportLetters"] if isinstance(each, ImportRequest)]


def test_a_row_is_the_letter_that_was_exported() -> None:
    """With all its properties: so the broker makes the message that a redrive would send."""
    data = record(7, b"\xff\x00", RETRY_TOPIC="orders", region="eu", REDRIVEN_TIMES="1")
    message = stored(data)
    row = row_in(json_lines([row_of(letter_of(message, redriven_before=1), message)]))
    made = letter_in(row)
    assert (made.queue_id, made.queue_offset, made.body) == (0, 7, b"\xff\x00")
    assert made.offset_message_id == message.offset_message_id
    assert made.store_timestamp_ms == message.store_timestamp_ms
    origin = {"DLQ_ORIGIN_TOPIC": "orders"}
    assert decode_properties(made.properties) == {**message.properties, **origin}


def test_columns_that_were_edited_count() -> None:
    """Whoever repairs a letter may mend its key and its topic, too."""
    row = row_in(line(1, origin_topic="bills", tags="", keys=["order-8", "late"]))
    told = decode_properties(letter_in(row).properties)
    assert (told["DLQ_ORIGIN_TOPIC"], told.get("TAGS"), told["KEYS"]) == (
        "bills",
        None,
        "order-8 late",
    )


def test_a_compressed_body_is_sent_as_its_producer_gave_it() -> None:
    """The export inflates it; a body that it could not inflate has no meaning without its mark."""
    packed = stored(record(1, zlib.compress(b"order" * 9), sys_flag=0x1))
    row = row_in(json_lines([row_of(letter_of(packed), packed)]))
    assert letter_in(row).body == b"order" * 9
    strange = stored(record(1, b"not zlib", sys_flag=0x1))
    with pytest.raises(InvalidValue, match="body_is_compressed"):
        letter_in(row_in(json_lines([row_of(letter_of(strange), strange)])))


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
    assert [each.body for each in asked(broker)[0].letters] == [b"kept"]
    empty, unreadable = [each["reason"] for each in tree["reasons"]]
    assert "at least 1 byte" in empty
    assert "content of this letter is lost" in unreadable


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"\n", "line must be "),
        (b"group,queue_id\n", "a JSON line as dlq export writes it"),
        (b"[" * 100_000, "a JSON line as dlq export writes it"),
        (b"[]\n", "line must be "),
        (b"{}\n", "line must be "),
        (line(0, group="a b"), "group must be "),
        (line(0, queue_id="0"), "queue_id must be int"),
        (line(0, queue_offset=-1), "queue_offset must be "),
        (line(0, queue_id=2**31), "queue_id must be "),
        (line(0, store_timestamp_ms=-1), "store_timestamp_ms must be "),
        (line(0, properties={"UNIQ_KEY": "a\x02b"}), "control characters"),
        (line(0, properties={"UNIQ_KEY": 1}), "text keys and values"),
        (line(0, properties={"UNIQ_KEY": "\ud800"}), "text keys and values"),
        (line(0, queue_offset=True), "queue_offset must be "),
        (line(0, keys=[1]), "keys must be "),
        (line(0, keys=["a b"]), "keys must be "),
        (line(0, properties={"region": 1}), "properties['region'] must be str, not int"),
        (line(0, properties={"region": "\x02"}), "control characters"),
        (line(0, tags="\ud800"), "tags must be "),
        (line(0, body="\ud800"), "body must be "),
        (line(0, body="0g", body_encoding="hex"), "body must be "),
    ],
)
def test_a_line_that_is_no_letter_is_refused_with_the_rule(text: bytes, said: str) -> None:
    """A file may be cut off, edited, or not an export at all."""
    with pytest.raises(Refused) as caught:
        letter_in(row_in(text))
    assert said in str(caught.value)


def test_letters_go_back_to_their_groups_in_calls(
    run: Run, broker: FakeBroker, letters: Path
) -> None:
    """One call for many letters of a group; each has its place and its body."""
    takes_all(broker)
    letters.write_bytes(letters.read_bytes() + line(7, b"other", group="mail"))
    result = run("dlq", "import", str(letters), "--yes")
    assert (result.exit_code, result.stdout) == (0, "4 sent, 0 redriven before, 0 refused\n")
    first, second = asked(broker)
    assert (first.group, first.to_group, first.to_topic) == ("billing", True, "")
    assert [each.body for each in first.letters] == [b"body 0", b"body 1", b"body 2"]
    assert [each.queue_offset for each in first.letters] == [0, 1, 2]
    assert (second.group, len(second.letters)) == ("mail", 1)


def test_a_topic_may_be_named_for_all_letters(run: Run, broker: FakeBroker, letters: Path) -> None:
    """Also for those that do not say where they were sent; with a rate in small calls."""
    takes_all(broker)
    letters.write_bytes(letters.read_bytes() + line(3, origin_topic=""))
    how = ("--yes", "--to-topic", "inspection", "--rate", "20")
    assert run("dlq", "import", str(letters), *how).exit_code == 0
    assert [(each.to_topic, each.to_group) for each in asked(broker)] == [("inspection", False)] * 2
    wrong = run("dlq", "import", str(letters), "--yes", "--to-topic", "")
    assert wrong.exit_code == 2


def test_many_and_large_letters_take_several_calls(
    run: Run, broker: FakeBroker, letters: Path
) -> None:
    """A call has a limit of letters, and one of bytes."""
    takes_all(broker)
    large = [line(1_000 + n, b"x" * (600 << 10)) for n in range(2)]
    letters.write_bytes(b"".join([*[line(n) for n in range(101)], *large]))
    assert run("dlq", "import", str(letters), "--yes").exit_code == 0
    assert [len(each.letters) for each in asked(broker)] == [100, 2, 1]


def test_a_dry_run_counts_and_sends_nothing(run: Run, broker: FakeBroker, letters: Path) -> None:
    """What was redriven when the export was made stays out; so does what cannot be sent."""
    takes_all(broker, 3, 4)
    more = [line(n) for n in (3, 4)]
    letters.write_bytes(letters.read_bytes() + b"".join(more) + line(5, redriven_by="r-1"))
    result = run("dlq", "import", str(letters), "--dry-run")
    assert result.exit_code == 1
    shown = result.stdout.splitlines()
    assert shown[:4] == [
        "TO TOPIC        WOULD BE SENT",
        "%RETRY%billing  3",
        "  for group billing",
        "3 would be sent, 1 redriven before, 2 refused",
    ]
    assert [line.split() for line in shown[4:6]] == [
        ["REFUSED", "SUCH", "AS"],
        ["2", "billing:0:3"],
    ]
    assert shown[6].startswith("  too large \\x1b]52")
    assert all(each.dry_run for each in asked(broker))
    tree = json.loads(run("dlq", "import", str(letters), "--dry-run", "--json").stdout)
    assert (tree["sent"], tree["already"], tree["refused"]) == (3, 1, 2)
    assert tree["topics"] == [
        {"topic": "%RETRY%billing", "count": 3, "groups": ["billing"], "more_groups": 0}
    ]
    assert [row["letters"] for row in tree["reasons"]] == [2]


def test_the_brokers_refusals_are_counted(run: Run, broker: FakeBroker, letters: Path) -> None:
    """Letter by letter: the others are sent; nothing of a reason reaches the terminal as it is."""
    takes_all(broker, 2)
    result = run("dlq", "import", str(letters), "--yes")
    assert result.exit_code == 1
    counts, head, example, reason = result.stdout.splitlines()
    assert counts == "2 sent, 0 redriven before, 1 refused"
    assert example.split() == ["1", "billing:0:2"]
    assert "too large \\x1b]52" in reason
    assert head == "REFUSED  SUCH AS"


def test_everything_sent_before_is_exit_code_1(run: Run, broker: FakeBroker, letters: Path) -> None:
    """As dlq redrive ends: a script sees that nothing was to do."""
    letters_known = [DeadLetterOutcome(0, n, RedriveOutcome.ALREADY, why="r-1") for n in range(3)]
    broker.answers["ImportLetters"] = lambda _: ImportAnswer(tuple(letters_known))
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
    assert not broker.asked["ImportLetters"]


def test_an_error_in_between_says_how_to_go_on(run: Run, broker: FakeBroker, letters: Path) -> None:
    """What was sent stays sent, and the same command leaves it out."""

    def refuse(_: ImportRequest) -> ImportAnswer:
        raise InvalidValue("letters", 3, "1 to 2")

    broker.answers["ImportLetters"] = refuse
    result = run("dlq", "import", str(letters), "--yes")
    assert result.exit_code != 0
    assert result.stderr.startswith("0 dead letters sent; the same command sends the rest\nerror:")
