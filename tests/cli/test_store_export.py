"""rmqlite store cat and export: each message as it is, and nothing of a store is touched."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.cli.options import NOT_CLOSED
from rmqlite.cli.output.message_text import (
    BODY_CHARS_SHOWN,
    json_of,
    line_of,
    message_tree,
    page_of,
)
from rmqlite.kernel.records.record import tags_hash
from rmqlite.kernel.words import clock
from rmqlite.kernel.words.message import DELAY, KEYS, REAL_TOPIC, TAGS, UNIQ_KEY, StoredMessage
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqlite.store_tools.reader import MessageFilter, ScheduledWait, StoreReader
from tests.support.command_processes import started_command
from tests.support.golden import pending_timers, unpack_timers
from tests.support.looking import run_store, untouched
from tests.support.repairs import overwrite
from tests.support.stores import StoreUnderTest, new_record

COMPRESSED = 0x1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreUnderTest]:
    """Ten orders, one second apart; one that waits, one that waited."""
    each = StoreUnderTest(tmp_path / "store")
    for number in range(10):
        properties = {UNIQ_KEY: f"ID{number}", KEYS: f"k{number} all", TAGS: f"t{number % 2}"}
        each.append(new_record(f"order {number}", "orders", number % 2, properties=properties))
        each.clock.forward(1_000)
    waiting = {UNIQ_KEY: "W1", DELAY: "1", REAL_TOPIC: "orders"}
    written = each.append(
        new_record("due", SCHEDULE_TOPIC, 0, properties=waiting),
        new_record("to come", SCHEDULE_TOPIC, 2, properties=waiting | {DELAY: "3", UNIQ_KEY: "W2"}),
    )
    each.clock.forward(1_000)
    each.deliver(1, written[0])
    each.persist()
    yield each
    each.store.release()


def exported(root: Path, *options: object) -> list[dict[str, Any]]:
    with untouched(root):
        result = run_store("export", root, *options)
    assert result.exit_code == 0, result.stderr
    trees = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.stderr.startswith(f"exported {len(trees):,} message")
    return trees


def bodies(root: Path, *options: object) -> list[str]:
    return [tree["body"] for tree in exported(root, *options)]


def body_of(tree: dict[str, Any]) -> bytes:
    text = str(tree["body"])
    return text.encode() if tree["body_encoding"] == "utf-8" else bytes.fromhex(text)


# ---- what RocketMQ wrote


def test_every_field_is_what_rocketmq_says(golden: Path) -> None:
    """P8: each entry of each queue with its record; the schedule is asked for by name."""
    trees = exported(golden / "clean") + exported(golden / "clean", "--scheduled")
    found = {(t["topic"], t["queue_id"], t["queue_offset"]): t for t in trees}
    expected = [
        json.loads(line) for line in (golden / "expected.jsonl").read_text("utf-8").splitlines()
    ]
    assert len(found) == len(trees) == len(expected)
    for row in expected:
        tree = found[row["topic"], row["queueId"], row["queueOffset"]]
        body = body_of(tree)
        properties = tree["properties"]
        code = tree.get("deliver_at_ms", tags_hash(properties.get(TAGS, "")))
        assert row == {
            "topic": tree["topic"],
            "queueId": tree["queue_id"],
            "queueOffset": tree["queue_offset"],
            "physicalOffset": tree["physical_offset"],
            "size": tree["store_size"],
            "tagsCode": code,
            "flag": tree["flag"],
            "sysFlag": tree["sys_flag"],
            "bornTimestamp": tree["born_timestamp_ms"],
            "storeTimestamp": tree["store_timestamp_ms"],
            "bornHost": "/" + tree["born_host"],
            "storeHost": "/" + tree["store_host"],
            "reconsumeTimes": tree["reconsume_times"],
            "preparedTransactionOffset": tree["prepared_transaction_offset"],
            "bodyCRC": zlib.crc32(body) & 0x7FFFFFFF,
            "storedBodyMd5": hashlib.md5(body).hexdigest(),
            "bodyLength": len(body),
            "properties": properties,
        }
        assert tree["message_id"] == properties.get(UNIQ_KEY, tree["offset_message_id"])


def test_a_killed_store_is_exported_like_any(golden: Path) -> None:
    """Up to its last sound record."""
    places = [tree["physical_offset"] for tree in exported(golden / "killed")]
    assert len(places) == 2_501
    assert places == sorted(places)


def test_what_is_pending_is_told_apart_from_what_was_delivered(golden: Path) -> None:
    """By RocketMQ's own table."""
    trees = exported(golden / "clean", "--scheduled")
    assert sum(tree["is_pending"] for tree in trees) == 81
    assert {tree["level"] for tree in trees if tree["is_pending"]} == set(range(5, 19))
    to_orders = exported(golden / "clean", "--scheduled", "--topic", "orders")
    assert 0 < len(to_orders) < len(trees)
    assert {tree["properties"][REAL_TOPIC] for tree in to_orders} == {"orders"}


def test_timers_that_rocketmq_has_delivered_are_told_apart(tmp_path: Path) -> None:
    """Also in a store that nobody has opened here; nothing in its tables says it."""
    root, rows = unpack_timers(tmp_path, "clean")
    trees = exported(root, "--scheduled", "--topic", TIMER_TOPIC)
    waiting = [tree["queue_offset"] for tree in trees if tree["is_pending"]]
    assert waiting == [row["queueOffset"] for row, _ in pending_timers(rows)]


def test_compressed_bodies_are_inflated_when_asked_for(golden: Path) -> None:
    """Otherwise they are what is stored."""
    stored = exported(golden / "clean", "--topic", "orders")
    inflated = exported(golden / "clean", "--topic", "orders", "--inflate")
    count = 0
    for plain, real in zip(stored, inflated, strict=True):
        if plain["sys_flag"] & COMPRESSED:
            count += 1
            assert body_of(real) == zlib.decompress(body_of(plain))
            assert not real["sys_flag"] & COMPRESSED
        else:
            assert real == plain
    assert count > 100


def test_what_cannot_be_inflated_stays_as_it_is(tmp_path: Path) -> None:
    """Another codec, or no codec at all: the export goes on."""
    each = StoreUnderTest(tmp_path / "store")
    each.append(new_record(b"not zlib", sys_flag=COMPRESSED), new_record("x", sys_flag=0x201))
    each.close()
    assert bodies(each.root, "--inflate") == ["not zlib", "x"]


# ---- which messages


AT = "1700000000000"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--queue", "1"], [1, 3, 5, 7, 9]),
        (["--topic", "orders", "--queue", "0", "--from-offset", "1", "--to-offset", "3"], [2, 4]),
        (["--key", "k7"], [7]),
        (["--id", "ID4"], [4]),
        (["--limit", "3"], [0, 1, 2]),
        (["--topic", "o*s", "--limit", "2"], [0, 1]),
        (["--topic", "nothing"], []),
        (["--since", "1700000007000", "--until", "1700000009000"], [7, 8]),
    ],
)
def test_options_choose(store: StoreUnderTest, options: list[str], expected: list[int]) -> None:
    """Each on its own, and together."""
    assert bodies(store.root, *options) == [f"order {number}" for number in expected]


def test_times_are_written_as_they_are_read(store: StoreUnderTest) -> None:
    """What cat prints is what --since takes."""
    fourth = clock.local_text(1_700_000_004_000)
    assert bodies(store.root, "--since", fourth)[0] == "order 4"
    assert bodies(store.root, "--until", fourth.replace(" ", "T")[:-4])[-1] == "order 3"


def test_scheduled_records_say_when_and_whether(store: StoreUnderTest) -> None:
    """One was delivered, one is to come."""
    first, second = exported(store.root, "--scheduled")
    assert (first["body"], first["is_pending"], first["level"]) == ("due", False, 1)
    assert first["deliver_at_ms"] == first["store_timestamp_ms"] + 1_000
    assert (second["body"], second["is_pending"], second["level"]) == ("to come", True, 3)
    assert bodies(store.root, "--scheduled", "--queue", "2") == ["to come"]
    assert [tree["topic"] for tree in exported(store.root, "--id", "W2")] == [SCHEDULE_TOPIC]
    assert "level" not in exported(store.root, "--limit", "1")[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "yesterday"], "--since must be a time such as"),
        (["--until", "9" * 16], "--until must be a time such as"),
        (
            ["--since", "1700000000000", "--until", "1700000000000"],
            "--until must be later than --since '1700000000000'",
        ),
        (["--queue", "-1"], "--queue must be 0 or more"),
        (["--from-offset", "-1"], "--from-offset must be 0 or more"),
        (
            ["--from-offset", "5", "--to-offset", "4"],
            "--to-offset must be more than --from-offset, which is 5",
        ),
        (["--topic", "t", "--group", "g"], "--group must be a topic or a group"),
        (["--key", "two words"], "--key must be one key, without blanks"),
        (["--limit", "0"], "--limit must be 1 or more"),
    ],
)
def test_a_wrong_option_is_one_line(store: StoreUnderTest, options: list[str], said: str) -> None:
    """Option, value, rule; and the exit code for a command line that is wrong."""
    for command in ("cat", "export"):
        result = run_store(command, store.root, *options)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"error: {said}")
        assert result.stderr.count("\n") == 1


# ---- where to


def test_a_file_is_there_when_it_is_complete(store: StoreUnderTest, tmp_path: Path) -> None:
    """It replaces what had that name; nothing else is left."""
    target = tmp_path / "out" / "all.jsonl"
    target.parent.mkdir()
    target.write_text("old")
    with untouched(store.root):
        result = run_store("export", store.root, "--output", target)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("exported 12 messages, ")
    assert f" of records, to {target} in " in result.stderr
    assert len(target.read_text().splitlines()) == 12
    assert [path.name for path in target.parent.iterdir()] == ["all.jsonl"]


def test_a_failed_write_leaves_the_old_file(
    store: StoreUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half an export is none."""
    target = tmp_path / "out" / "all.jsonl"
    target.parent.mkdir()
    target.write_text("old")

    def interrupt(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("rmqlite.cli.store.export.json_of", interrupt)
    assert run_store("export", store.root, "-o", target).exit_code == 130
    assert [(path.name, path.read_text()) for path in target.parent.iterdir()] == [
        ("all.jsonl", "old")
    ]


def test_an_output_that_cannot_be_is_told(store: StoreUnderTest, tmp_path: Path) -> None:
    """Inside a store every file is taken for one of its own."""
    with untouched(store.root):
        for name in (store.root / "commitlog" / "x", store.root / "x"):
            result = run_store("export", store.root, "-o", name)
            assert result.exit_code == 2
            assert "must be a file outside of the store" in result.stderr
    assert "the name of a file" in run_store("export", store.root, "-o", tmp_path).stderr
    result = run_store("export", store.root, "-o", tmp_path / "no" / "x")
    assert result.exit_code == 3
    assert result.stderr.startswith(f"error: cannot write to {tmp_path / 'no' / 'x'}: No such")


@pytest.mark.parametrize("command", ["cat", "export"])
def test_a_closed_pipe_ends_quietly(golden: Path, command: str) -> None:
    """`| head -1` has seen enough: no error, no stack, exit code 0."""
    reading, writing = os.pipe()
    process = started_command("store", command, str(golden / "clean"), stdout=writing)
    os.close(writing)
    with os.fdopen(reading) as output:
        assert output.readline()
    assert process.communicate() == ("", "")
    assert process.wait() == 0


# ---- what is broken


def test_damage_ends_it_after_all_that_is_sound(store: StoreUnderTest, tmp_path: Path) -> None:
    """Exit code 1 and where it is; --skip-damaged goes on and counts."""
    store.close()
    path = store.log_files()[0]
    data = bytearray(path.read_bytes())
    at = data.index(b"order 4")
    data[at] ^= 1
    path.write_bytes(data)
    target = tmp_path / "out.jsonl"
    result = run_store("export", store.root, "-o", target)
    assert result.exit_code == 1
    lines = target.read_text().splitlines()
    assert [json.loads(line)["body"] for line in lines] == [f"order {n}" for n in range(4)]
    first, last = result.stderr.splitlines()
    assert first.startswith("exported 4 messages")
    assert last.startswith(f"error: {path} is damaged at byte ")
    result = run_store("export", store.root, "--skip-damaged")
    assert result.exit_code == 0
    # One of them is a record of the broker's own tables.
    assert len(result.stdout.splitlines()) == 11
    assert f"continued behind 1 damaged place: {path} is damaged at byte" in result.stderr


def cut_last_record(store: StoreUnderTest) -> Path:
    """Overwrite the last record and the synced mark with zeros."""
    path = store.log_files()[-1]
    with StoreReader(store.root) as reader:
        last = list(reader.messages(MessageFilter(topic="orders")))[-1]
    begin = last.physical_offset - int(path.name)
    overwrite(path, begin, bytes(path.stat().st_size - begin))
    return path


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_log_that_lost_its_end_is_an_error(
    store: StoreUnderTest, tmp_path: Path, form: str
) -> None:
    """What is left looks like a shorter log; the table of progress tells how long it was."""
    store.close()
    path = cut_last_record(store)
    result = run_store("export", store.root, "--format", form, "-o", tmp_path / "out")
    assert result.exit_code == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"error: {path} is damaged at byte ")
    assert "as config/storeProgress.json says" in last
    if form == "jsonl":
        allowed = run_store("export", store.root, "--skip-damaged")
        assert allowed.exit_code == NOT_CLOSED
        assert "the answer may lack records: see the warnings" in allowed.stderr


def test_what_a_power_cut_took_is_an_exit_code_of_its_own(
    store: StoreUnderTest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The record was not acknowledged, but its queue entry reached the disk."""
    store.send("never synced")
    store.store.release()
    path = cut_last_record(store)
    for form in ("jsonl", "arrow"):
        result = run_store("export", store.root, "--format", form, "-o", tmp_path / form)
        assert result.exit_code == NOT_CLOSED
        assert result.stderr.splitlines()[-1] == "the answer may lack records: see the warnings"
    assert f"the store may lack records: {path} is damaged at byte " in caplog.text


# ---- how it looks


def test_a_line_says_where_when_and_what(store: StoreUnderTest) -> None:
    """One message a line, in the words of `consume`."""
    with untouched(store.root):
        lines = run_store("cat", store.root, "--limit", "2").stdout.splitlines()
        pending = run_store("cat", store.root, "--scheduled").stdout.splitlines()[1]
    stored = clock.local_text(1_700_000_001_000)
    assert lines[1] == f"{stored}  orders/1@0  ID1  tags=t1  keys=k1,all  order 1"
    due = clock.local_text(1_700_000_020_000)
    assert f"SCHEDULE_TOPIC_XXXX/2@0  W2  due={due} pending  to=orders" in pending


def test_full_shows_every_field(store: StoreUnderTest) -> None:
    """One a line, each property, the whole body."""
    lines = run_store("cat", store.root, "--full", "--limit", "1").stdout.splitlines()
    said = [line.split(None, 1) for line in lines if line]
    assert ["where", "orders/0@0"] in said
    assert ["KEYS", "k0 all"] in said
    assert said[-2:] == [["body,", "7 bytes, text"], ["order", "0"]]


def test_nothing_found_is_said_beside_the_output(store: StoreUnderTest) -> None:
    """A script that reads the output finds it empty."""
    result = run_store("cat", store.root, "--key", "none")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no messages\n")


TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x01\x02"))
MESSAGES = st.builds(
    StoredMessage,
    topic=TEXT,
    queue_id=st.integers(0, 2**31 - 1),
    queue_offset=st.integers(0, 2**63 - 1),
    physical_offset=st.integers(0, 2**63 - 1),
    store_size=st.integers(91, 2**31 - 1),
    body=st.binary(max_size=300) | TEXT.map(str.encode),
    properties=st.dictionaries(TEXT.filter(bool) | st.just(UNIQ_KEY), TEXT.filter(bool)),
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.integers(0, 2**31 - 1),
    born_timestamp_ms=st.integers(0, 2**40),
    born_host=st.sampled_from(["10.0.0.1:80", "[::1]:80"]),
    store_timestamp_ms=st.integers(0, 2**40),
    store_host=st.sampled_from(["10.0.0.1:80", "[::1]:80"]),
    reconsume_times=st.integers(0, 20),
    prepared_transaction_offset=st.integers(0, 2**63 - 1),
)
WAITING = st.none() | st.builds(
    ScheduledWait,
    level=st.integers(1, 64),
    deliver_at_ms=st.integers(0, 2**40),
    is_pending=st.booleans(),
)


@given(MESSAGES, WAITING)
def test_a_document_is_what_json_would_make_of_it(
    message: StoredMessage, waiting: ScheduledWait | None
) -> None:
    """It is put together by hand; `consume --json` has the same names for the same fields."""
    tree = message_tree(message) | {"offset_message_id": message.offset_message_id}
    if waiting is not None:
        tree |= {
            "level": waiting.level,
            "deliver_at_ms": waiting.deliver_at_ms,
            "is_pending": waiting.is_pending,
        }
    line = json_of(message, waiting)
    assert json.loads(line) == tree
    assert line.isascii()
    assert line.count("\n") == 1


@given(MESSAGES, WAITING)
def test_nothing_in_a_message_reaches_the_terminal_uninterpreted(
    message: StoredMessage, waiting: ScheduledWait | None
) -> None:
    """One line is one line, and a very long body is cut."""
    line = line_of(message, waiting)
    assert line.endswith("\n")
    assert line[:-1].isprintable()
    assert all(each.isprintable() for each in page_of(message, waiting).split("\n"))


def test_a_long_body_is_cut_and_says_so(store: StoreUnderTest) -> None:
    """--full has all of it."""
    store.send("x" * 500, topic="long")
    line = run_store("cat", store.root, "--topic", "long").stdout
    assert line.endswith("  " + "x" * BODY_CHARS_SHOWN + " … (500 bytes)\n")
    assert "x" * 500 in run_store("cat", store.root, "--topic", "long", "--full").stdout
