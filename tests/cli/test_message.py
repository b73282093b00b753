"""rmqlite message: what is asked, what a person and a program see, and how it ends."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from rmqlite.features.finding.requests import (
    FoundMessage,
    FoundMessages,
    MessageQuery,
    MessageState,
)
from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.errors import MessageNotFound, TopicUnknown
from rmqlite.kernel.words.message import DELAY, REAL_TOPIC, Message, StoredMessage
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from tests.cli.conftest import Run
from tests.support.compressed import COMPRESS
from tests.support.fake_broker import FakeBroker

STORED_MS = 1_700_000_000_123
DUE_MS = 1_700_000_010_123
OFFSET_ID = "0A00000200002A9F00000000000003FA"
HOSTILE = "\x1b]0;owned\x07\x9b31m\u202e"
COMPRESSED = 0x1


def stored(topic: str = "orders", **fields: Any) -> StoredMessage:
    plain: dict[str, Any] = {
        "topic": topic,
        "queue_id": 2,
        "queue_offset": 15,
        "physical_offset": 0x3FA,
        "store_size": 1_234,
        "body": b"a body",
        "properties": {"UNIQ_KEY": "ID", "KEYS": "order-1 late", "TAGS": "paid"},
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp_ms": STORED_MS - 7,
        "born_host": "10.0.0.1:1234",
        "store_timestamp_ms": STORED_MS,
        "store_host": "10.0.0.2:10911",
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
    }
    return StoredMessage(**{**plain, **fields})


def scheduled(*, is_pending: bool = True, **fields: Any) -> FoundMessage:
    message = stored(SCHEDULE_TOPIC, **fields)
    properties = {**message.properties, REAL_TOPIC: "orders", DELAY: "3"}
    message = replace(message, properties=properties)
    ended = "" if is_pending else "delivered"
    return FoundMessage(message, MessageState.SCHEDULED, DUE_MS, is_pending, ended)


LIFE = (
    scheduled(is_pending=False),
    FoundMessage(stored(), MessageState.STORED),
    scheduled(reconsume_times=1),
    FoundMessage(stored("%RETRY%workers", reconsume_times=1), MessageState.RETRY),
    FoundMessage(stored("%DLQ%workers", reconsume_times=17), MessageState.DEAD),
)


@pytest.fixture
def answering(broker: FakeBroker) -> FakeBroker:
    """A broker that finds a whole life, and shows its first record."""
    broker.answers["QueryMessages"] = lambda _: FoundMessages(LIFE)
    broker.answers["GetMessage"] = lambda _: LIFE[0]
    return broker


def asked(broker: FakeBroker) -> MessageQuery:
    query: MessageQuery = broker.asked["QueryMessages"][-1]
    return query


@pytest.mark.parametrize("command", ["message", "message get", "message query"])
def test_every_command_explains_itself(run: Run, command: str) -> None:
    """--help is the manual; it fits a terminal."""
    result = run(*command.split(), "--help")
    assert (result.exit_code, "Usage:" in result.stdout) == (0, True)
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


# ---- query


def test_a_life_is_told_from_the_top_down(run: Run, answering: FakeBroker) -> None:
    """Where, in which state, due when, how often failed; and the name of each record."""
    result = run("message", "query", "orders", "--key", "order-1")
    assert result.exit_code == 0
    time, due = local_text(STORED_MS), local_text(DUE_MS)
    assert result.stdout.splitlines() == [
        "STORED                   STATE      WHERE                     TAGS  KEYS",
        f"{time}  delivered  SCHEDULE_TOPIC_XXXX/2@15  paid  order-1 late",
        f"  {OFFSET_ID}  due {due}",
        f"{time}  stored     orders/2@15               paid  order-1 late",
        f"  {OFFSET_ID}",
        f"{time}  pending    SCHEDULE_TOPIC_XXXX/2@15  paid  order-1 late",
        f"  {OFFSET_ID}  due {due}, failed once",
        f"{time}  retry      %RETRY%workers/2@15       paid  order-1 late",
        f"  {OFFSET_ID}  failed once",
        f"{time}  dead       %DLQ%workers/2@15         paid  order-1 late",
        f"  {OFFSET_ID}  failed 17 times",
    ]
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    assert asked(answering) == MessageQuery("orders", "order-1", max_messages=32, history=True)


def test_every_option_reaches_the_broker(run: Run, answering: FakeBroker) -> None:
    """Times as local time or in milliseconds; by message id instead of a key."""
    run(
        *("message", "query", "orders", "--id", "ID", "--no-history", "--max", "5"),
        *("--since", local_text(STORED_MS), "--until", str(DUE_MS)),
    )
    assert asked(answering) == MessageQuery("orders", "ID", True, STORED_MS, DUE_MS, 5, False)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--key", "k", "--id", "i"),
        ("--key", ""),
        ("--key", "k", "--since", "yesterday"),
        ("--key", "k", "--until", "1" * 16),
        ("--key", "k", "--max", "0"),
        ("--key", "k", "--max", "65"),
    ],
)
def test_a_wrong_command_line_asks_nothing(
    run: Run, answering: FakeBroker, options: tuple[str, ...]
) -> None:
    """Exit code 2, as for every command."""
    assert run("message", "query", "orders", *options).exit_code == 2
    assert not answering.asked["QueryMessages"]


def test_nothing_found_is_exit_code_1(run: Run, broker: FakeBroker) -> None:
    """A script asks whether there is one; the output is empty, or an empty document."""
    broker.answers["QueryMessages"] = lambda _: FoundMessages(())
    result = run("message", "query", "orders", "--key", "k")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "no message found\n")
    result = run("message", "query", "orders", "--key", "k", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (1, {"messages": [], "is_cut": False})


def test_that_there_are_more_is_said_beside_the_output(run: Run, broker: FakeBroker) -> None:
    """Also when the search ended before it found one."""
    broker.answers["QueryMessages"] = lambda _: FoundMessages(LIFE[:1], is_cut=True)
    result = run("message", "query", "orders", "--key", "k")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 3)
    assert "older messages" in result.stderr
    broker.answers["QueryMessages"] = lambda _: FoundMessages((), is_cut=True)
    result = run("message", "query", "orders", "--key", "k")
    assert result.exit_code == 1
    assert "no message found" in result.stderr
    assert "older messages" in result.stderr


def test_json_has_each_message_with_its_state(run: Run, answering: FakeBroker) -> None:
    """The same document as `store export` writes, so that one program reads both."""
    tree = json.loads(run("message", "query", "orders", "--id", "ID", "--json").stdout)
    states = [each["state"] for each in tree["messages"]]
    assert states == ["scheduled", "stored", "scheduled", "retry", "dead"]
    first, second, *_ = tree["messages"]
    assert (first["level"], first["deliver_at_ms"], first["is_pending"]) == (3, DUE_MS, False)
    assert "is_pending" not in second
    assert (second["offset_message_id"], second["message_id"]) == (OFFSET_ID, "ID")
    assert (second["body_encoding"], second["body"]) == ("utf-8", "a body")
    assert not tree["is_cut"]
    assert answering.asked["QueryMessages"]


def test_an_unknown_topic_is_one_line(run: Run, broker: FakeBroker) -> None:
    """The broker's own sentence."""

    def refuse(_: object) -> None:
        raise TopicUnknown("ordres")

    broker.answers["QueryMessages"] = refuse
    result = run("message", "query", "ordres", "--key", "k")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: no topic named 'ordres'")


# ---- get


def test_a_record_is_shown_whole(run: Run, answering: FakeBroker) -> None:
    """Fields, then properties by name, then the body."""
    result = run("message", "get", OFFSET_ID)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "state       delivered",
        f"due         {local_text(DUE_MS)}, level 3",
        "where       SCHEDULE_TOPIC_XXXX/2@15",
        "message id  ID",
        f"offset id   {OFFSET_ID}",
        f"stored      {local_text(STORED_MS)} at 10.0.0.2:10911",
        f"born        {local_text(STORED_MS - 7)} at 10.0.0.1:1234",
        "record      1,234 bytes at physical offset 1018",
        "flags       flag 0, sys flag 0x0",
        "",
        "properties",
        "  DELAY       3",
        "  KEYS        order-1 late",
        "  REAL_TOPIC  orders",
        "  TAGS        paid",
        "  UNIQ_KEY    ID",
        "",
        "body, 6 bytes, text",
        "a body",
    ]
    assert answering.asked["GetMessage"] == [OFFSET_ID]


def test_what_failed_says_how_often(run: Run, answering: FakeBroker) -> None:
    """And a delivered record which one it completes."""
    message = stored("%DLQ%g", reconsume_times=17, prepared_transaction_offset=99)
    answering.answers["GetMessage"] = lambda _: FoundMessage(message, MessageState.DEAD)
    lines = run("message", "get", OFFSET_ID).stdout.splitlines()
    assert lines[:2] == ["state       dead", "failed      17 times"]
    assert "completes   the record that ends at 99" in lines


def test_a_committed_message_names_its_half_message(run: Run, answering: FakeBroker) -> None:
    """In RocketMQ the field means the half message's place; a delivery has it for its own."""
    message = stored("orders", sys_flag=8, prepared_transaction_offset=99)
    answering.answers["GetMessage"] = lambda _: FoundMessage(message, MessageState.STORED)
    lines = run("message", "get", OFFSET_ID).stdout.splitlines()
    assert "commits     the half message at 99" in lines


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", ["no body"]),
        (b'{\n\t"a": 1\r\n}', ["body, 12 bytes, JSON", "{", '  "a": 1', "}"]),
        (b"\xff\xfe", ["body, 2 bytes, hex", f"00000000  {'ff fe':<50}|..|"]),
    ],
)
def test_a_body_is_shown_line_by_line(
    run: Run, answering: FakeBroker, body: bytes, shown: list[str]
) -> None:
    """Text as text; anything else in hex."""
    answering.answers["GetMessage"] = lambda _: FoundMessage(stored(body=body), MessageState.STORED)
    lines = run("message", "get", OFFSET_ID).stdout.splitlines()
    assert lines[lines.index(shown[0]) :] == shown


def test_a_compressed_body_is_shown_as_it_was_sent(run: Run, answering: FakeBroker) -> None:
    """RocketMQ's clients compress long ones; one that cannot be inflated is shown as it is."""
    body = b"long " * 2_000
    for sys_flag, compress in COMPRESS.items():
        found = FoundMessage(stored(body=compress(body), sys_flag=sys_flag), MessageState.STORED)
        answering.answers["GetMessage"] = partial(_given, found)
        page = run("message", "get", OFFSET_ID).stdout
        assert "body, 10,000 bytes, inflated from " in page
        assert "long long" in page
        tree = json.loads(run("message", "get", OFFSET_ID, "--json").stdout)
        assert (tree["body"], tree["sys_flag"]) == (body.decode(), 0)
    found = FoundMessage(stored(body=b"torn", sys_flag=COMPRESSED), MessageState.STORED)
    answering.answers["GetMessage"] = partial(_given, found)
    page = run("message", "get", OFFSET_ID).stdout
    assert "body, 4 bytes, compressed with zlib, shown as it is stored: " in page
    assert page.endswith("torn\n")


def _given(found: FoundMessage, _: str) -> FoundMessage:
    return found


def test_nothing_of_a_message_drives_the_terminal(run: Run, broker: FakeBroker) -> None:
    """Neither keys and tags, nor names and values of properties, nor the body."""
    message = broker.add(
        Message(
            "orders",
            f"line\n{HOSTILE}".encode(),
            tags=HOSTILE,
            keys=[HOSTILE],
            properties={HOSTILE: HOSTILE},
            message_id=HOSTILE,
        )
    )
    found = FoundMessage(replace(message, topic=f"t{HOSTILE}"), MessageState.STORED)
    broker.answers["QueryMessages"] = lambda _: FoundMessages((found,))
    broker.answers["GetMessage"] = lambda _: found
    for command in (("query", "orders", "--key", "k"), ("get", OFFSET_ID)):
        for options in ((), ("--json",)):
            shown = run("message", *command, *options).stdout
            assert "owned" in shown
            assert shown.replace("\n", "").isprintable()


def test_a_record_as_json(run: Run, answering: FakeBroker) -> None:
    """One document."""
    tree = json.loads(run("message", "get", OFFSET_ID, "--json").stdout)
    assert (tree["state"], tree["is_pending"]) == ("scheduled", False)
    assert tree["properties"]["REAL_TOPIC"] == "orders"
    assert answering.asked["GetMessage"] == [OFFSET_ID]


def test_a_record_that_is_not_there_is_exit_code_1(run: Run, broker: FakeBroker) -> None:
    """The sentence says which."""

    def refuse(_: object) -> None:
        raise MessageNotFound(1018)

    broker.answers["GetMessage"] = refuse
    result = run("message", "get", OFFSET_ID)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "1018" in result.stderr
