"""Consuming commits what it printed; peeking leaves no trace; no body harms a terminal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from rmqlite.message import Message
from rmqlite.requests.groups import Subscription
from rmqlite.requests.topics import Queue
from tests.cli.conftest import Run
from tests.support.fake_broker import FakeBroker

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\nforged line\u202e".encode()


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
    """The last --count of each queue, oldest first."""
    for number in range(100):
        broker.add(Message("orders", b"%d" % number))
    result = run("consume", "orders", "--peek", "--json", "--from", "last", "--count", "2")
    assert bodies_of(result.stdout) == ["98", "99"]
    assert len(run("consume", "orders", "--peek", "--json", "--count", "7").stdout.split("\n")) == 8


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
    command = [sys.executable, "-m", "rmqlite", "consume", "orders", "--group", "g"]
    process = subprocess.Popen(
        [*command, "--json", "--endpoint", broker.endpoint], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        assert bodies_of(process.stdout.readline()) == ["a"]
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""
    assert process.returncode == 130
    assert broker.committed[Queue("orders", 0)] == 1
    broker.stop()
