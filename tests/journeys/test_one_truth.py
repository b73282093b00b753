"""One broker, several faces: what one stores, every command, the page and the other faces see.

A client of RocketMQ 4.x is played over the wire: it sends its own property string, compresses with
LZ4, and fails messages with code 36.  tests/conformance has the official clients.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import unescape
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from rmqlite.cli.bench.broker_process import BrokerProcess
from rmqlite.cli.main import app
from rmqlite.client import AdminClient, Message, Producer, PullConsumer, StoredMessage
from rmqlite.message import DELAY, REAL_TOPIC, REDRIVEN_FROM, UNIQ_KEY, encode_properties
from rmqlite.names import dlq_topic, retry_topic
from rmqlite.store.records.record import read_head
from rmqlite.wire.remoting.codes.consuming import PULL_MESSAGE, PullMessage
from rmqlite.wire.remoting.codes.sending import (
    CONSUMER_SEND_MSG_BACK,
    SEND_MESSAGE_V2,
    SendBack,
    SendMessage,
)
from tests.support.broker_processes import StartBroker, free_port
from tests.support.compressed import COMPRESS, LZ4
from tests.support.eventually import eventually
from tests.support.remoting import RawClient, records_of

TOPIC: Final = "orders"
GROUP: Final = "billing"
RETRY, DLQ = retry_topic(GROUP), dlq_topic(GROUP)
LEVELS: Final = "1s 1m 1h"
MINUTE, HOUR = 2, 3
TEXT: Final = json.dumps({"order": 4711, "lines": ["grüße"] * 300}, ensure_ascii=False)
BODY: Final = COMPRESS[LZ4](TEXT.encode())
BORN_MS: Final = 1_700_000_000_000
FLAG: Final = 7


class Faces:
    """A broker's 4.x face, its command line, and its page."""

    def __init__(self, broker: BrokerProcess, port: int, web_port: int) -> None:
        self.broker = broker
        self.client = RawClient(f"127.0.0.1:{port}")
        self._web_port = web_port

    # ---- RocketMQ 4.x

    def send(self, key: str, **own: str) -> str:
        """Send as a Java client does; the message id, which the client makes."""
        message_id = f"7F00000100010000{key.encode().hex().upper():0<16}"
        pairs = {"KEYS": key, UNIQ_KEY: message_id, "WAIT": "true", "TAGS": "TagA", "color": "blü"}
        asked = SendMessage(
            TOPIC,
            "senders",
            queue_id=0,
            sys_flag=LZ4,
            born_timestamp=BORN_MS,
            flag=FLAG,
            properties=encode_properties(pairs | own).decode(),
        )
        assert self.client.ask(SEND_MESSAGE_V2, asked, BODY).code == 0
        return message_id

    def pulled(self, topic: str) -> list[StoredMessage]:
        return records_of(self.raw(topic))

    def raw(self, topic: str) -> bytes:
        asked = PullMessage(GROUP, topic, 0, 0, 32, 4, 0, 0, 0, "*")
        answer = self.client.ask(PULL_MESSAGE, asked)
        return answer.body if answer.code == 0 else b""

    def with_key(self, topic: str, key: str) -> StoredMessage:
        """The only message of a topic that has this key, as soon as it is there."""
        found: list[StoredMessage] = []

        def is_there() -> bool:
            found[:] = [each for each in self.pulled(topic) if each.keys == (key,)]
            return bool(found)

        eventually(is_there, f"{key} is in {topic}")
        (message,) = found
        return message

    def fail(self, message: StoredMessage, level: int) -> None:
        back = SendBack(
            message.physical_offset,
            GROUP,
            level,
            message.offset_message_id,
            TOPIC,
            max_reconsume_times=16,
        )
        assert self.client.ask(CONSUMER_SEND_MSG_BACK, back).code == 0

    # ---- people

    def shell(self, words: str) -> str:
        env = {"RMQLITE_ENDPOINT": self.broker.endpoint, "COLUMNS": "100"}
        done = CliRunner().invoke(app, words.split(), env=env)
        assert done.exit_code == 0, f"{words}: {done.output}"
        return done.stdout

    def tree(self, words: str) -> Any:
        return json.loads(self.shell(f"{words} --json"))

    def page(self, path: str) -> str:
        connection = HTTPConnection("127.0.0.1", self._web_port, timeout=180)
        connection.request("GET", path)
        with connection.getresponse() as response:
            text = unescape(response.read().decode())
        connection.close()
        assert response.status == 200, f"{path}: {text}"
        return text


@pytest.fixture
def faces(start_broker: StartBroker) -> Iterator[Faces]:
    port, web_port = free_port(), free_port()
    settings = {"listenPort": port, "webPort": web_port, "messageDelayLevel": LEVELS}
    faces = Faces(start_broker(**settings), port, web_port)
    faces.shell(f"topic create {TOPIC} --queues 1")
    with faces.client:
        yield faces


def is_as_sent(message: StoredMessage, **own: str) -> bool:
    """Body, flags, birth, and the sender's properties."""
    kept = {"TAGS": "TagA", "color": "blü", **own}
    return (
        (message.body, message.sys_flag, message.flag) == (BODY, LZ4, FLAG)
        and message.born_timestamp_ms == BORN_MS
        and message.born_host.startswith("127.0.0.1:")
        and message.properties.items() >= kept.items()
    )


def test_a_waiting_message_of_a_4x_client_is_seen_and_changed(faces: Faces) -> None:
    """Listed, cancelled, rescheduled and fired by its key or id; and nothing of it changes."""
    ids = {key: faces.send(key, DELAY=str(HOUR)) for key in ("gone", "moved", "left")}
    listed = faces.tree(f"schedule list --topic {TOPIC}")["messages"]
    assert {each["message_id"] for each in listed} == set(ids.values())
    assert {(each["level"], *each["keys"], each["tags"]) for each in listed} == {
        (HOUR, key, "TagA") for key in ids
    }
    assert "3" in faces.shell("schedule count")
    assert "3 messages wait" in faces.shell("schedule timeline")
    assert all(key in faces.page("/schedule") for key in ids)
    (found,) = faces.tree(f"message query {TOPIC} --id {ids['gone']}")["messages"]
    assert (found["state"], found["is_pending"], found["body"]) == ("scheduled", True, TEXT)
    assert (found["born_timestamp_ms"], found["flag"]) == (BORN_MS, FLAG)
    assert TEXT[:500] in faces.page(f"/record?id={found['offset_message_id']}&as=text")
    assert "done" in faces.shell("schedule cancel --key gone --yes")
    assert "done" in faces.shell(f"schedule reschedule {ids['moved']} --to 1m --yes")
    (moved,) = faces.tree("schedule list --level 1m")["messages"]
    assert (moved["message_id"], moved["level"]) == (ids["moved"], MINUTE)
    assert "done" in faces.shell(f"schedule fire {ids['moved']} --yes")
    got = faces.with_key(TOPIC, "moved")
    assert is_as_sent(got, **{UNIQ_KEY: ids["moved"], REAL_TOPIC: TOPIC})
    assert [each.keys for each in faces.pulled(TOPIC)] == [("moved",)]
    assert [each["message_id"] for each in faces.tree("schedule list")["messages"]] == [ids["left"]]
    life = faces.tree(f"retry show {ids['gone']}")
    assert [hop["kind"] for hop in life["hops"]] == ["scheduled", "cancelled"]
    for kind in ("Rescheduled", "Delivered early"):
        assert kind in faces.page(f"/message?id={ids['moved']}")


def test_a_failed_message_of_a_4x_client_is_retried_buried_and_sent_again(faces: Faces) -> None:
    """Python fails it with a reason, then a 4.x client without one: the letter still explains."""
    message_id = faces.send("fails")
    sent = faces.with_key(TOPIC, "fails")
    assert list(sent.properties)[:5] == ["KEYS", UNIQ_KEY, "TAGS", "color", "CLUSTER"]
    assert faces.tree(f"consume {TOPIC} --peek")["body"] == TEXT
    printed = faces.shell(
        f"consume {TOPIC} --group {GROUP} --count 1 --fail-with KeyError --retry-level {HOUR}"
    )
    assert TEXT[:1_000] in printed
    (retry,) = faces.tree(f"retry list {GROUP}")["letters"]
    assert (retry["message_id"], retry["reason"], retry["attempt"]) == (message_id, "KeyError", 2)
    assert "KeyError" in faces.page(f"/retries?group={GROUP}")
    assert "1 message retried" in faces.shell(f"retry now {GROUP} --reason keyerror --yes")
    again = faces.with_key(RETRY, "fails")
    assert is_as_sent(again, RETRY_TOPIC=TOPIC)
    assert again.reconsume_times == 1
    faces.fail(again, level=-1)
    (letter,) = faces.tree(f"dlq show {GROUP}")["letters"]
    about = (letter["message_id"], letter["reason"], letter["delivery_attempts"])
    assert about == (message_id, "KeyError", 2)
    assert (letter["origin_topic"], letter["keys"]) == (TOPIC, ["fails"])
    place = f"{GROUP}:0:0"
    peeked = faces.shell(f"dlq peek {place}")
    assert "reason, of attempt 1: no later one gave any\n  KeyError\n" in peeked
    assert "inflated from" in peeked
    assert faces.shell(f"dlq peek {place} --raw") == TEXT
    assert json.loads(faces.shell(f"dlq export {GROUP}"))["body"] == TEXT
    assert "KeyError" in faces.shell("dlq list")
    assert "KeyError" in faces.page(f"/dead/letters?group={GROUP}")
    assert "inflated from" in faces.page(f"/record?id={letter['offset_message_id']}")
    assert is_as_sent(faces.with_key(DLQ, "fails"), **{UNIQ_KEY: message_id})
    assert "1 dead letter" in faces.shell(f"dlq purge {GROUP} --yes")
    assert faces.tree("dlq list")["groups"] == []
    assert "1 dead letter" in faces.shell(f"dlq purge {GROUP} --restore --yes")
    faces.shell(f"dlq redrive {GROUP} --yes")
    redriven = [each for each in faces.pulled(RETRY) if REDRIVEN_FROM in each.properties]
    assert [(each.body, each.sys_flag, each.flag) for each in redriven] == [(BODY, LZ4, FLAG)]
    assert "KeyError" not in redriven[0].properties.values()
    hops = faces.tree(f"retry show {message_id}")["hops"]
    assert [(hop["kind"], hop["reason"]) for hop in hops] == [
        ("sent", ""),
        ("failed", "KeyError"),
        ("fired", ""),
        ("dead", ""),
        ("redriven", ""),
    ]
    assert [job["sent"] for job in faces.tree("job list")] == [1]
    root = faces.broker.store
    exported = faces.shell(f"store export {root} --key fails --topic {TOPIC} --inflate")
    assert [json.loads(line)["body"] for line in exported.splitlines()] == [TEXT]
    assert faces.shell(f"store cat {root} --topic {TOPIC}").count(TEXT[:60]) == 1
    assert '"result": "sound"' in faces.shell(f"store check {root} --json")


def test_a_retry_that_a_4x_client_asks_for_is_listed_and_cancelled(faces: Faces) -> None:
    """It gives no reason, and says so."""
    message_id = faces.send("unwanted")
    faces.fail(faces.with_key(TOPIC, "unwanted"), level=HOUR)
    assert "no reason given" in faces.shell(f"retry list {GROUP}")
    faces.shell(f"retry cancel {GROUP} {message_id} --yes")
    assert faces.tree(f"retry list {GROUP}")["letters"] == []
    assert [hop["kind"] for hop in faces.tree(f"retry show {message_id}")["hops"]] == [
        "sent",
        "failed",
        "cancelled",
    ]
    assert faces.pulled(RETRY) == []


def test_what_python_sends_a_4x_client_reads_byte_for_byte(faces: Faces) -> None:
    """At once, delayed, and again after a failure; a Python consumer gets the retry, too."""
    own = {"x": "ü", "empty-looking": " "}
    wanted = Message(TOPIC, "grüße".encode(), tags="TagB", keys=("a", "b"), properties=own)
    with Producer(faces.broker.endpoint, "pythons") as producer:
        result = producer.send(wanted)
        later = producer.send(Message(TOPIC, b"later", keys=("later",), delay_level=1))
    raw = faces.raw(TOPIC)
    log = next((faces.broker.store / "commitlog").iterdir())
    head = read_head(raw)
    assert head is not None
    record = raw[: head.size]
    assert record == _bytes_at(log, head.physical_offset, head.size)
    assert head.physical_offset == int(result.offset_message_id[-16:], 16)
    (first, *_) = records_of(raw)
    assert (first.body, first.keys, first.tags) == (wanted.body, ("a", "b"), "TagB")
    assert first.message_id == result.message_id
    assert first.properties.items() >= own.items()
    delivered = faces.with_key(TOPIC, "later")
    assert (delivered.body, delivered.message_id) == (b"later", later.message_id)
    assert delivered.properties[DELAY] == "1"
    faces.fail(delivered, level=1)
    retried = faces.with_key(RETRY, "later")
    assert (retried.reconsume_times, retried.message_id) == (1, later.message_id)
    with PullConsumer(faces.broker.endpoint, GROUP) as consumer:
        (native,) = consumer.pull(RETRY, 0).messages
    assert native == retried
    with AdminClient(faces.broker.endpoint) as admin:
        assert admin.message_at(retried.offset_message_id).message == retried


def _bytes_at(file: Path, position: int, size: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(position)
        return opened.read(size)
