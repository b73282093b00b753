"""Every command that shows or exports a body shows what the producer sent, however compressed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqlite.features.finding.requests import FoundMessage, MessageState
from rmqlite.kernel.words.message import Message
from tests.cli.conftest import Run
from tests.support.compressed import COMPRESS, LZ4, PACKAGES, ZSTD, without_the_extra
from tests.support.fake_broker import FakeBroker
from tests.support.fake_dead_letters import has_letters, record
from tests.support.looking import run_store
from tests.support.stores import StoreUnderTest, new_record

TEXT = "order 4711 " * 20
OFFSET_ID = "7F00000100002A9F" + "0" * 16
NOTE = 'pip install "rmqlite[compression]"'
EACH = pytest.mark.parametrize("sys_flag", COMPRESS, ids=["none", "zlib", "lz4", "zstd"])
OF_THE_EXTRA = pytest.mark.parametrize("sys_flag", PACKAGES, ids=["lz4", "zstd"])


def packed(sys_flag: int) -> bytes:
    return COMPRESS[sys_flag](TEXT.encode())


@pytest.fixture
def topic(broker: FakeBroker, sys_flag: int) -> FakeBroker:
    """A topic with one compressed message, which message get finds, too."""
    stored = broker.add(Message("orders", packed(sys_flag)), sys_flag=sys_flag)
    broker.answers["GetMessage"] = lambda _: FoundMessage(stored, MessageState.STORED)
    return broker


@EACH
def test_a_running_brokers_messages(run: Run, topic: FakeBroker, sys_flag: int) -> None:
    """message get and consume --peek, for people and for programs."""
    assert topic.answers
    size = len(packed(sys_flag))
    page = run("message", "get", OFFSET_ID).stdout
    assert f"body, {len(TEXT)} bytes, inflated from {size} bytes of " in page
    assert TEXT in page
    assert json.loads(run("message", "get", OFFSET_ID, "--json").stdout)["body"] == TEXT
    peeked = run("consume", "orders", "--peek")
    assert TEXT in peeked.stdout
    assert peeked.stderr == ""
    tree = json.loads(run("consume", "orders", "--peek", "--json").stdout)
    assert (tree["body"], tree["sys_flag"]) == (TEXT, 0)


@OF_THE_EXTRA
def test_a_running_brokers_messages_without_the_extra(
    run: Run, topic: FakeBroker, sys_flag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command shows the stored bytes and goes on; a note names the extra."""
    without_the_extra(monkeypatch)
    topic.add(Message("orders", b"the next one"))
    page = run("message", "get", OFFSET_ID)
    assert page.exit_code == 0
    assert NOTE in page.stdout
    peeked = run("consume", "orders", "--peek")
    assert peeked.exit_code == 0
    assert NOTE in peeked.stderr
    assert packed(sys_flag).hex() in peeked.stdout
    assert "the next one" in peeked.stdout


@EACH
def test_dead_letters(run: Run, broker: FakeBroker, sys_flag: int) -> None:
    """dlq peek in each of its forms, and dlq export."""
    has_letters(broker, record(1, packed(sys_flag), sys_flag=sys_flag))
    page = run("dlq", "peek", "billing:0:1").stdout
    assert f"body, {len(TEXT)} bytes, inflated from " in page
    assert TEXT in page
    assert run("dlq", "peek", "billing:0:1", "--raw").stdout == TEXT
    tree = json.loads(run("dlq", "peek", "billing:0:1", "--json").stdout)
    assert tree["message"]["body"] == TEXT
    exported = run("dlq", "export", "billing")
    row = json.loads(exported.stdout)
    assert (row["body"], row["body_is_compressed"]) == (TEXT, False)
    assert "not inflated" not in exported.stderr


@OF_THE_EXTRA
def test_dead_letters_without_the_extra(
    run: Run, broker: FakeBroker, sys_flag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of a letter are never lost, and an export marks those that are not inflated."""
    without_the_extra(monkeypatch)
    body = packed(sys_flag)
    has_letters(broker, record(1, body, sys_flag=sys_flag))
    assert NOTE in run("dlq", "peek", "billing:0:1").stdout
    for option in ("--raw", "--json"):
        assert NOTE in run("dlq", "peek", "billing:0:1", option).stderr
    tree = json.loads(run("dlq", "peek", "billing:0:1", "--json").stdout)
    assert bytes.fromhex(tree["message"]["body"]) == body
    exported = run("dlq", "export", "billing")
    row = json.loads(exported.stdout)
    assert (row["body"], row["body_is_compressed"]) == (body.hex(), True)
    assert "bodies not inflated: 1 dead letter" in exported.stderr


def test_a_stores_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """store cat, and store export --inflate, which counts what it could not inflate."""
    each = StoreUnderTest(tmp_path / "store")
    each.append(*[new_record(packed(flag), sys_flag=flag) for flag in COMPRESS])
    each.close()
    lines = run_store("cat", each.root).stdout.splitlines()
    assert [TEXT[:80] in line for line in lines] == [True] * len(COMPRESS)
    assert run_store("cat", each.root, "--full").stdout.count("inflated from") == len(COMPRESS)
    exported = run_store("export", each.root, "--inflate")
    assert [json.loads(line)["body"] for line in exported.stdout.splitlines()] == [TEXT] * 4
    assert "not inflated" not in exported.stderr
    without_the_extra(monkeypatch)
    exported = run_store("export", each.root, "--inflate")
    trees = [json.loads(line) for line in exported.stdout.splitlines()]
    assert [tree["sys_flag"] for tree in trees] == [0, 0, LZ4, ZSTD]
    assert [tree["body"] for tree in trees[2:]] == [packed(LZ4).hex(), packed(ZSTD).hex()]
    assert "2 bodies are not inflated, the first: compressed with LZ4" in exported.stderr
    assert NOTE in exported.stderr
    assert run_store("cat", each.root).exit_code == 0
