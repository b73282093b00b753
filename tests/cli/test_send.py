"""Sending: what was typed arrives, in batches, and failures say how far it went."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.cli.send import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, batches
from rmqlite.kernel.words.clock import local_text, wall_ms
from rmqlite.kernel.words.errors import Overloaded
from rmqlite.protocols.native.bytes.messages import SendRequest, SendResult
from tests.cli.conftest import Run
from tests.support.fake_broker import FakeBroker, Sent


def test_a_message_is_sent_with_all_that_was_said(run: Run, broker: FakeBroker) -> None:
    """Tags, keys, properties and level reach the broker as they were typed."""
    options = "--tags A --keys k1 --property x=1 -p y=a=b --delay-level 3 --max-reconsume-times 0"
    result = run("send", "orders", "hello", *options.split())
    assert result.exit_code == 0
    sent = broker.asked["Send"][0].messages[0]
    assert (sent.body, sent.tags, sent.keys, sent.delay_level) == (b"hello", "A", ("k1",), 3)
    assert sent.max_reconsume_times == 0
    assert sent.properties == {"x": "1", "y": "a=b"}
    assert sent.message_id in result.stdout


def test_a_delay_is_the_level_that_is_exactly_that_long(run: Run, broker: FakeBroker) -> None:
    """And is refused, with the levels there are, where none is."""
    assert run("send", "orders", "hello", "--delay", "10m").exit_code == 0
    assert broker.asked["Send"][0].messages[0].delay == "10m"
    result = run("send", "orders", "hello", "--delay", "11m")
    assert result.exit_code == 1
    assert "1s 5s 10s" in result.stderr


def test_standard_input_is_sent_byte_for_byte(run: Run, broker: FakeBroker) -> None:
    """A body need not be text."""
    run("send", "orders", "-", stdin=b"\x00\xff\n")
    assert broker.asked["Send"][0].messages[0].body == b"\x00\xff\n"


def test_a_message_is_sent_for_an_instant(run: Run, broker: FakeBroker) -> None:
    """In any zone, in local time, in milliseconds, or so long after the broker has it."""
    instant_ms = 1_835_420_400_000
    zoned = ("2028-02-29T08:00+01:00", "2028-02-29 07:00:00Z")
    for at in (*zoned, local_text(instant_ms), str(instant_ms)):
        assert run("send", "orders", "x", "--at", at).exit_code == 0
    assert run("send", "orders", "x", "--after", "36h").exit_code == 0
    sent = [call.messages[0] for call in broker.asked["Send"]]
    assert [each.deliver_at for each in sent] == [instant_ms] * 4 + [None]
    assert sent[-1].deliver_after_ms == 129_600_000
    for wrong in (("--at", "soon"), ("--after", "5"), ("--after", "1h", "--delay", "1h")):
        assert run("send", "orders", "x", *wrong).exit_code in (1, 2)
    assert len(broker.asked["Send"]) == 5


def test_a_message_is_sent_that_expires(run: Run, broker: FakeBroker) -> None:
    """So long after the send; a number alone could be seconds or minutes."""
    before_ms = wall_ms()
    assert run("send", "orders", "x", "--expires-after", "1h").exit_code == 0
    (sent,) = broker.asked["Send"][0].messages
    assert before_ms + 3_600_000 <= sent.expires_at <= wall_ms() + 3_600_000
    assert run("send", "orders", "x", "--expires-after", "10").exit_code in (1, 2)


def test_a_file_is_sent_a_line_a_message_in_batches(
    run: Run, broker: FakeBroker, tmp_path: Path
) -> None:
    """In order; empty lines are no messages; the end of a line is no part of one."""
    file = tmp_path / "lines.txt"
    file.write_bytes(b"".join([b"line %d\r\n\n" % n for n in range(BATCH_MESSAGES_MAX + 1)]))
    result = run("send", "orders", "--file", str(file))
    assert [len(each.messages) for each in broker.asked["Send"]] == [BATCH_MESSAGES_MAX, 1]
    assert broker.asked["Send"][0].messages[1].body == b"line 1"
    assert result.stdout.startswith(f"sent {BATCH_MESSAGES_MAX + 1} messages to orders in ")


def test_what_is_not_stored_is_counted(run: Run, broker: FakeBroker, tmp_path: Path) -> None:
    """Of a message, whose place in the table is the first one's, and of a whole file."""

    def answer(request: Sent) -> tuple[SendResult, ...]:
        assert all(each.unique_id == "invoice-7" and each.replace for each in request.messages)
        first = SendResult("orders", 2, 5, "FIRST", 800, 0, "127.0.0.1:10911")
        return tuple([first._replace(is_duplicate=n > 0) for n in range(len(request.messages))])

    broker.answers["Send"] = answer
    options = ("--unique-id", "invoice-7", "--replace")
    said = "not stored: the topic has a message with this unique id"
    assert said not in run("send", "orders", "x", *options).stderr
    two = run("send", "orders", "x", "--count", "2", *options)
    assert two.stdout.count("FIRST") == 1
    assert two.stderr == f"1 {said}\n"
    file = tmp_path / "lines.txt"
    file.write_text("line\n" * BATCH_MESSAGES_MAX)
    many = run("send", "orders", "--file", str(file), *options)
    assert many.stderr == f"{BATCH_MESSAGES_MAX - 1:,} {said}\n"


def test_an_empty_body_is_refused_before_a_broker_is_asked(run: Run, broker: FakeBroker) -> None:
    """An empty argument, an empty standard input: one line that says the rule, exit code 1."""
    for arguments in (("",), ("-",), ("", "--count", "3")):
        result = run("send", "orders", *arguments, stdin=b"")
        assert result.exit_code == 1
        assert result.stdout == ""
        assert result.stderr.startswith("error: body must be at least 1 byte")
        assert len(result.stderr.splitlines()) == 1
    assert "Send" not in broker.asked


@pytest.mark.parametrize("lines", [b"", b"\n\r\n\n"])
def test_a_file_without_a_message_is_refused(
    run: Run, broker: FakeBroker, tmp_path: Path, lines: bytes
) -> None:
    """Whoever sends an empty file has most likely named the wrong one."""
    file = tmp_path / "lines.txt"
    file.write_bytes(lines)
    result = run("send", "orders", "--file", str(file), "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "a line that is not empty" in result.stderr
    assert "Send" not in broker.asked


def test_a_count_repeats_the_body_under_ids_of_its_own(run: Run) -> None:
    """Every one is a message; --json lists them all."""
    results = json.loads(run("send", "orders", "again", "--count", "30", "--json").stdout)
    assert len({each["message_id"] for each in results}) == 30
    assert [each["queue_offset"] for each in results] == list(range(30))


def test_what_was_sent_before_a_failure_is_said(run: Run, broker: FakeBroker) -> None:
    """Whoever repeats the command must know that it would send some twice."""

    def fail_second(request: SendRequest) -> object:
        if len(broker.asked["Send"]) > 1:
            raise Overloaded("maxSendMessages", 1)
        return broker.plain("Send", request)

    broker.answers["Send"] = fail_second
    result = run("send", "orders", "x", "--count", str(BATCH_MESSAGES_MAX + 1))
    assert result.exit_code == 3
    assert f"{BATCH_MESSAGES_MAX} messages were sent before this" in result.stderr


@given(st.lists(st.integers(0, 2 * BATCH_BYTES_MAX), max_size=30))
def test_batches_keep_order_and_limits(sizes: list[int]) -> None:
    """Nothing is lost, and only a body that is too large on its own goes over the limit."""
    bodies = [bytes(size) for size in sizes]
    made = list(batches(bodies))
    assert [body for batch in made for body in batch] == bodies
    assert all(len(b) == 1 or sum(map(len, b)) <= BATCH_BYTES_MAX for b in made)
