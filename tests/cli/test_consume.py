"""Consuming commits what it printed; peeking leaves no trace; no body harms a terminal."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from rmqlite.kernel.requests.groups import Subscription
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.message import Message
from tests.cli.conftest import Run
from tests.support.command_processes import started_command
from tests.support.fake_broker import FakeBroker

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\nforged line\u202e".encode()

PEEK = ("consume", "orders", "--peek", "--json")


def bodies_of(stdout: str) -> list[str]:
    return [json.loads(line)["body"] for line in stdout.splitlines()]


def test_peeking_shows_what_is_there_and_leaves_no_trace(run: Run, broker: FakeBroker) -> None:
    """No member, no commit: looking changes nothing, and it ends by itself."""
    for number in range(3):
        broker.add(Message("orders", b"%d" % number), queue_id=number % 2)
    result = run("consume", "orders", "--peek", "--json")
    assert result.exit_code == 0
    assert bodies_of(result.stdout) == ["0", "1", "2"]
    assert not broker.committed
    assert not broker.asked["Heartbeat"]
    assert not broker.asked["CommitOffsets"]


def test_peeking_from_the_end_shows_the_newest(run: Run, broker: FakeBroker) -> None:
    """The last --count of all queues together, oldest first; 10 if no --count is given."""
    for number in range(100):
        broker.add(Message("orders", b"%d" % number), queue_id=number * 7 % 4)
    for count in (1, 2, 7, 50, 100, 1_000):
        shown = run(*PEEK, "--from", "last", "--count", str(count)).stdout
        assert bodies_of(shown) == [str(n) for n in range(max(0, 100 - count), 100)]
    assert bodies_of(run(*PEEK, "--from", "last").stdout) == [str(n) for n in range(90, 100)]


def test_peeking_from_the_beginning_shows_the_oldest(run: Run, broker: FakeBroker) -> None:
    """The first --count of all queues together; all of them if no --count is given."""
    for number in range(100):
        broker.add(Message("orders", b"%d" % number), queue_id=number * 7 % 4)
    assert bodies_of(run(*PEEK, "--count", "7").stdout) == [str(n) for n in range(7)]
    assert bodies_of(run(*PEEK).stdout) == [str(n) for n in range(100)]


def test_the_newest_that_match_may_be_far_from_the_end(run: Run, broker: FakeBroker) -> None:
    """--count counts messages with the tag, not the others that came after them."""
    for number in range(400):
        broker.add(
            Message("orders", b"%d" % number, "A" if number < 5 else "B"), queue_id=number % 3
        )
    shown = run(*PEEK, "-x", "A", "--from", "last", "--count", "2").stdout
    assert bodies_of(shown) == ["3", "4"]
    assert bodies_of(run(*PEEK, "-x", "C", "--from", "last").stdout) == []


def test_a_retry_level_without_a_failure_is_refused(run: Run, broker: FakeBroker) -> None:
    """Nothing would be tried again, so it was meant otherwise."""
    result = run("consume", "orders", "--group", "g", "--retry-level", "5")
    assert result.exit_code == 2
    assert "--retry-level needs --fail-with" in result.stderr
    assert not broker.asked["Heartbeat"]


def test_sql_goes_to_the_broker(run: Run, broker: FakeBroker) -> None:
    """Peeking and consuming; together with tags."""
    broker.add(Message("orders", b"a", "A"))
    sql = "n > 1 OR n IS NULL"
    run("consume", "orders", "--peek", "--sql", sql)
    run("consume", "orders", "--group", "g", "-x", "A", "--sql", sql, "--count", "1")
    asked = {(each.expression, each.sql) for each in broker.asked["Pull"] if each.topic == "orders"}
    assert asked == {("*", sql), ("A", sql)}
    assert broker.asked["Heartbeat"][0].subscriptions[0] == Subscription("orders", "A", sql)


def test_a_hostile_body_never_reaches_the_terminal(run: Run, broker: FakeBroker) -> None:
    """Titles, cleared screens and forged lines are shown as text, in every field."""
    properties = {"TAGS": "\x1b[31m", "KEYS": "\x1b[1m", "UNIQ_KEY": "\x1b[5m"}
    broker.add(Message("orders", HOSTILE), properties=properties)
    shown = run("consume", "orders", "--peek").stdout
    assert len(shown.splitlines()) == 2
    assert all(line.isprintable() for line in shown.split("\n"))
    assert "\\x1b]0;owned\\x07" in shown
    line = run("consume", "orders", "--peek", "--json").stdout.removesuffix("\n")
    assert line.isprintable()
    assert json.loads(line)["body"].encode() == HOSTILE


def test_a_body_that_is_no_text_is_shown_in_hex(run: Run, broker: FakeBroker) -> None:
    """And says so, in both forms."""
    broker.add(Message("orders", b"\xff\x00"))
    assert run("consume", "orders", "--peek").stdout.splitlines()[1] == "    hex ff00"
    tree = json.loads(run("consume", "orders", "--peek", "--json").stdout)
    assert (tree["body"], tree["body_encoding"]) == ("ff00", "hex")


def test_consuming_commits_what_was_printed_and_no_more(run: Run, broker: FakeBroker) -> None:
    """--count 2 of 5: the third is the next one's, untouched."""
    for number in range(5):
        broker.add(Message("orders", b"%d" % number))
    result = run("consume", "orders", "--group", "g", "--count", "2", "--json")
    assert result.exit_code == 0
    assert bodies_of(result.stdout) == ["0", "1"]
    assert broker.committed[Queue("orders", 0)] == 2
    assert not broker.asked["SendBack"]


def test_a_new_group_begins_where_it_is_told_to(run: Run, broker: FakeBroker) -> None:
    """--from last skips what is there; a group that was here before goes on where it was."""
    broker.add(Message("orders", b"old"))
    broker.committed[Queue("orders", 0)] = 0
    result = run("consume", "orders", "--group", "g", "--from", "last", "--count", "1", "--json")
    assert bodies_of(result.stdout) == ["old"]


def test_failing_gives_the_reason_of_this_delivery(run: Run, broker: FakeBroker) -> None:
    """The first delivery fails with the first reason, the next with the second, in turn."""
    broker.add(Message("orders", b"a"))
    broker.add(Message("orders", b"b"), reconsume_times=3)
    fail = ("--fail-with", "down", "--fail-with", "still down", "--retry-level", "5")
    run("consume", "orders", "--group", "g", "--count", "2", *fail)
    broker.until(lambda: len(broker.asked["SendBack"]) == 2)
    asked = broker.asked["SendBack"]
    # In either order: both are with listeners at the same time.
    assert {(each.reason, each.delay_level) for each in asked} == {("down", 5), ("still down", 5)}


def test_a_signal_ends_it_in_order_even_when_it_comes_twice(tmp_path: Path) -> None:
    """`timeout` sends SIGTERM twice; what was printed is committed all the same."""
    broker = FakeBroker(tmp_path)
    broker.start()
    broker.add(Message("orders", b"a"))
    reading, writing = os.pipe()
    words = ("consume", "orders", "--group", "g", "--json", "--endpoint", broker.endpoint)
    process = started_command(*words, stdout=writing)
    os.close(writing)
    with os.fdopen(reading) as output:
        assert bodies_of(output.readline()) == ["a"]
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        assert output.read() == ""
    assert process.wait() == 130
    assert broker.committed[Queue("orders", 0)] == 1
    broker.stop()
