"""One broker, several protocols: what one stores, every command, the page and the others see.

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

from rmqlite.cli.main import app
from rmqlite.client import AdminClient, Message, Producer, PullConsumer, StoredMessage
from rmqlite.kernel.records.record import read_head
from rmqlite.kernel.words.message import (
    DELAY,
    REAL_TOPIC,
    REDRIVEN_FROM,
    UNIQ_KEY,
    encode_properties,
)
from rmqlite.kernel.words.names import dlq_topic, retry_topic
from rmqlite.protocols.remoting.bytes.requests.messages import (
    CONSUMER_SEND_MSG_BACK,
    PULL_MESSAGE,
    PullMessage,
    SendBack,
)
from rmqlite.protocols.remoting.bytes.requests.sends import SEND_MESSAGE_V2, SendMessage
from rmqlite.testing import BrokerProcess
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


class ProtocolServers:
    """A broker's 4.x protocol, its command line, and its page."""

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
def protocols(start_broker: StartBroker) -> Iterator[ProtocolServers]:
    port, web_port = free_port(), free_port()
    settings = {"listenPort": port, "webPort": web_port, "messageDelayLevel": LEVELS}
    protocols = ProtocolServers(start_broker(**settings), port, web_port)
    protocols.shell(f"topic create {TOPIC} --queues 1")
    with protocols.client:
        yield protocols


def is_as_sent(message: StoredMessage, **own: str) -> bool:
    """Body, flags, birth, and the sender's properties."""
    kept = {"TAGS": "TagA", "color": "blü", **own}
    return (
        (message.body, message.sys_flag, message.flag) == (BODY, LZ4, FLAG)
        and message.born_timestamp_ms == BORN_MS
        and message.born_host.startswith("127.0.0.1:")
        and message.properties.items() >= kept.items()
    )


def test_a_waiting_message_of_a_4x_client_is_seen_and_changed(protocols: ProtocolServers) -> None:
    """Listed, cancelled, rescheduled and fired by its key or id; and nothing of it changes."""
    ids = {key: protocols.send(key, DELAY=str(HOUR)) for key in ("gone", "moved", "left")}
    listed = protocols.tree(f"schedule list --topic {TOPIC}")["messages"]
    assert {each["message_id"] for each in listed} == set(ids.values())
    assert {(each["level"], *each["keys"], each["tags"]) for each in listed} == {
        (HOUR, key, "TagA") for key in ids
    }
    assert "3" in protocols.shell("schedule count")
    assert "3 messages wait" in protocols.shell("schedule timeline")
    assert all(key in protocols.page("/schedule") for key in ids)
    (found,) = protocols.tree(f"message query {TOPIC} --id {ids['gone']}")["messages"]
    assert (found["state"], found["is_pending"], found["body"]) == ("scheduled", True, TEXT)
    assert (found["born_timestamp_ms"], found["flag"]) == (BORN_MS, FLAG)
    assert TEXT[:500] in protocols.page(f"/record?id={found['offset_message_id']}&as=text")
    assert "done" in protocols.shell("schedule cancel --key gone --yes")
    assert "done" in protocols.shell(f"schedule reschedule {ids['moved']} --to 1m --yes")
    (moved,) = protocols.tree("schedule list --level 1m")["messages"]
    assert (moved["message_id"], moved["level"]) == (ids["moved"], MINUTE)
    assert "done" in protocols.shell(f"schedule fire {ids['moved']} --yes")
    got = protocols.with_key(TOPIC, "moved")
    assert is_as_sent(got, **{UNIQ_KEY: ids["moved"], REAL_TOPIC: TOPIC})
    assert [each.keys for each in protocols.pulled(TOPIC)] == [("moved",)]
    assert [each["message_id"] for each in protocols.tree("schedule list")["messages"]] == [
        ids["left"]
    ]
    life = protocols.tree(f"message history {ids['gone']}")
    assert [hop["kind"] for hop in life["hops"]] == ["scheduled", "cancelled"]
    for kind in ("rescheduled", "delivered now to"):
        assert kind in protocols.page(f"/message?id={ids['moved']}")


def test_a_failed_message_of_a_4x_client_is_retried_buried_and_sent_again(
    protocols: ProtocolServers,
) -> None:
    """Python fails it with a reason, then a 4.x client without one: the letter still explains."""
    message_id = protocols.send("fails")
    sent = protocols.with_key(TOPIC, "fails")
    assert list(sent.properties)[:5] == ["KEYS", UNIQ_KEY, "TAGS", "color", "CLUSTER"]
    assert protocols.tree(f"consume {TOPIC} --peek")["body"] == TEXT
    printed = protocols.shell(
        f"consume {TOPIC} --group {GROUP} --count 1 --fail-with KeyError --retry-level {HOUR}"
    )
    assert TEXT[:1_000] in printed
    (retry,) = protocols.tree(f"retry list {GROUP}")["letters"]
    assert (retry["message_id"], retry["reason"], retry["attempt"]) == (message_id, "KeyError", 2)
    assert "KeyError" in protocols.page(f"/retries?group={GROUP}")
    assert "1 message retried" in protocols.shell(f"retry now {GROUP} --reason keyerror --yes")
    again = protocols.with_key(RETRY, "fails")
    assert is_as_sent(again, RETRY_TOPIC=TOPIC)
    assert again.reconsume_times == 1
    protocols.fail(again, level=-1)
    (letter,) = protocols.tree(f"dlq show {GROUP}")["letters"]
    about = (letter["message_id"], letter["reason"], letter["delivery_attempts"])
    assert about == (message_id, "KeyError", 2)
    assert (letter["origin_topic"], letter["keys"]) == (TOPIC, ["fails"])
    place = f"{GROUP}:0:0"
    peeked = protocols.shell(f"dlq peek {place}")
    assert "reason, of attempt 1: no later one gave any\n  KeyError\n" in peeked
    assert "inflated from" in peeked
    assert protocols.shell(f"dlq peek {place} --raw") == TEXT
    assert json.loads(protocols.shell(f"dlq export {GROUP}"))["body"] == TEXT
    assert "KeyError" in protocols.shell("dlq list")
    assert "KeyError" in protocols.page(f"/dead/letters?group={GROUP}")
    assert "inflated from" in protocols.page(f"/record?id={letter['offset_message_id']}")
    assert is_as_sent(protocols.with_key(DLQ, "fails"), **{UNIQ_KEY: message_id})
    assert "1 dead letter" in protocols.shell(f"dlq purge {GROUP} --yes")
    assert protocols.tree("dlq list")["groups"] == []
    assert "1 dead letter" in protocols.shell(f"dlq purge {GROUP} --restore --yes")
    protocols.shell(f"dlq redrive {GROUP} --yes")
    redriven = [each for each in protocols.pulled(RETRY) if REDRIVEN_FROM in each.properties]
    assert [(each.body, each.sys_flag, each.flag) for each in redriven] == [(BODY, LZ4, FLAG)]
    assert "KeyError" not in redriven[0].properties.values()
    hops = protocols.tree(f"message history {message_id}")["hops"]
    assert [(hop["kind"], hop["reason"]) for hop in hops] == [
        ("sent", ""),
        ("failed", "KeyError"),
        ("fired", ""),
        ("dead", ""),
        ("redriven", ""),
    ]
    assert [job["sent"] for job in protocols.tree("job list")] == [1]
    root = protocols.broker.store
    exported = protocols.shell(f"store export {root} --key fails --topic {TOPIC} --inflate")
    assert [json.loads(line)["body"] for line in exported.splitlines()] == [TEXT]
    assert protocols.shell(f"store cat {root} --topic {TOPIC}").count(TEXT[:60]) == 1
    assert '"result": "sound"' in protocols.shell(f"store check {root} --json")


def test_a_retry_that_a_4x_client_asks_for_is_listed_and_cancelled(
    protocols: ProtocolServers,
) -> None:
    """It gives no reason, and says so."""
    message_id = protocols.send("unwanted")
    protocols.fail(protocols.with_key(TOPIC, "unwanted"), level=HOUR)
    assert "no reason given" in protocols.shell(f"retry list {GROUP}")
    protocols.shell(f"retry cancel {GROUP} {message_id} --yes")
    assert protocols.tree(f"retry list {GROUP}")["letters"] == []
    assert [hop["kind"] for hop in protocols.tree(f"message history {message_id}")["hops"]] == [
        "sent",
        "failed",
        "cancelled",
    ]
    assert protocols.pulled(RETRY) == []


def test_what_python_sends_a_4x_client_reads_byte_for_byte(protocols: ProtocolServers) -> None:
    """At once, delayed, and again after a failure; a Python consumer gets the retry, too."""
    own = {"x": "ü", "empty-looking": " "}
    wanted = Message(TOPIC, "grüße".encode(), tags="TagB", keys=("a", "b"), properties=own)
    with Producer(protocols.broker.endpoint, "pythons") as producer:
        result = producer.send(wanted)
        later = producer.send(Message(TOPIC, b"later", keys=("later",), delay_level=1))
    raw = protocols.raw(TOPIC)
    log = next((protocols.broker.store / "commitlog").iterdir())
    head = read_head(raw)
    assert head is not None
    record = raw[: head.size]
    assert record == _bytes_at(log, head.physical_offset, head.size)
    assert head.physical_offset == int(result.offset_message_id[-16:], 16)
    (first, *_) = records_of(raw)
    assert (first.body, first.keys, first.tags) == (wanted.body, ("a", "b"), "TagB")
    assert first.message_id == result.message_id
    assert first.properties.items() >= own.items()
    delivered = protocols.with_key(TOPIC, "later")
    assert (delivered.body, delivered.message_id) == (b"later", later.message_id)
    assert delivered.properties[DELAY] == "1"
    protocols.fail(delivered, level=1)
    retried = protocols.with_key(RETRY, "later")
    assert (retried.reconsume_times, retried.message_id) == (1, later.message_id)
    with PullConsumer(protocols.broker.endpoint, GROUP) as consumer:
        (native,) = consumer.pull(RETRY, 0).messages
    assert native == retried
    with AdminClient(protocols.broker.endpoint) as admin:
        assert admin.message_at(retried.offset_message_id).message == retried


def _bytes_at(file: Path, position: int, size: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(position)
        return opened.read(size)
