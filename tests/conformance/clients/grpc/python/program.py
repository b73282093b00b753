"""Does what the lines of JSON on its input say, with the gRPC client for Python; prints JSON lines.

Runs alone, in the environment of the client: it must not import rmqlite, and rmqlite must not
import the client, because both register the same Protobuf names.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from typing import Any

# mypy and this repository do not know the client.
import rocketmq  # type: ignore[import-not-found]
from rocketmq.grpc_protocol import FilterType  # type: ignore[import-not-found]

ENDPOINT = sys.argv[1]
TLS = bool(os.environ.get("WITH_TLS"))
MOUTH = threading.Lock()
RESOLUTIONS = {
    "commit": rocketmq.TransactionResolution.COMMIT,
    "rollback": rocketmq.TransactionResolution.ROLLBACK,
    "unknown": rocketmq.TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
}
producers: dict[str, Any] = {}
consumers: dict[str, Any] = {}
held: dict[tuple[str, str], Any] = {}


def say(**said: Any) -> None:
    with MOUTH:
        print(json.dumps(said), flush=True)


def pause(milliseconds: int) -> None:
    threading.Event().wait(milliseconds / 1_000)


def configuration() -> Any:
    """Send and the like wait as long as a busy machine needs."""
    key, secret = os.environ.get("ACCESS_KEY"), os.environ.get("SECRET_KEY")
    credentials = rocketmq.Credentials(key, secret) if key else rocketmq.Credentials()
    return rocketmq.ClientConfiguration(ENDPOINT, credentials, request_timeout=20)


def producer(name: str = "", topic: str = "", checker: Any = None) -> Any:
    if name not in producers:
        topics = [topic] if topic else None
        made = rocketmq.Producer(configuration(), topics, checker=checker, tls_enable=TLS)
        made.startup()
        producers[name] = made
    return producers[name]


def message(asked: dict[str, Any], key: str) -> Any:
    made = rocketmq.Message()
    made.topic, made.keys = asked["topic"], key
    made.body = key.encode().ljust(asked.get("size", 0), b".")
    if asked.get("tags"):
        made.tag = asked["tags"]
    if asked.get("ordered"):
        made.message_group = asked["ordered"]
    if asked.get("at_ms"):
        # It knows whole seconds only.
        made.delivery_timestamp = -(-asked["at_ms"] // 1_000)
    for name, value in (asked.get("properties") or {}).items():
        made.add_property(name, value)
    return made


def sent(key: str, receipt: Any) -> None:
    say(sent=key, id=receipt.message_id, offset=receipt.offset, handle=receipt.recall_handle)


def send(asked: dict[str, Any]) -> None:
    sender = producer()
    for key in asked["keys"]:
        if asked.get("how") == "async":
            sent(key, sender.send_async(message(asked, key)).result())
        else:
            sent(key, sender.send(message(asked, key)))


def stream(asked: dict[str, Any]) -> None:
    """One message after the other, each as often as it takes."""

    def run() -> None:
        for number in range(asked["count"]):
            key = f"{asked['prefix']}{number}"
            while True:
                try:
                    sent(key, producer().send(message(asked, key)))
                    break
                except Exception as error:
                    say(failed=key, error=repr(error))
                    pause(200)
            pause(asked["pause"])
        say(streamed=asked["prefix"])

    producer()
    threading.Thread(target=run, daemon=True).start()


def recall(asked: dict[str, Any]) -> None:
    refusable(lambda: say(recalled=producer().recall_message(asked["topic"], asked["handle"])))


def refusable(work: Callable[[], None]) -> None:
    """A refusal is what some scenarios look for."""
    try:
        work()
    except Exception as error:
        say(refused=str(error), code=getattr(error, "code", None))


class Checker(rocketmq.TransactionChecker):  # type: ignore[misc]
    """What the broker asks about, it answers as it was asked to."""

    def __init__(self, checks: dict[str, str]) -> None:
        self._checks = checks

    def check(self, message: Any) -> Any:
        key = " ".join(message.keys)
        say(checked=key, size=len(message.body))
        return RESOLUTIONS[self._checks.get(key, "unknown")]


def transact(asked: dict[str, Any]) -> None:
    topic = asked["topic"]
    sender = producer(f"transactions of {topic}", topic, Checker(asked.get("checks") or {}))
    for key, decision in asked["decides"].items():
        transaction = sender.begin_transaction()
        sent(key, sender.send(message(asked, key), transaction))
        if decision == "commit":
            transaction.commit()
        elif decision == "rollback":
            transaction.rollback()


def expression(asked: dict[str, Any]) -> Any:
    if asked.get("sql"):
        return rocketmq.FilterExpression(asked["sql"], FilterType.SQL)
    return rocketmq.FilterExpression(asked["expression"])


def got(name: str, message: Any) -> str:
    key = " ".join(sorted(message.keys))
    say(
        got=key,
        by=name,
        topic=message.topic,
        attempt=message.delivery_attempt,
        tags=message.tag,
        ordered=message.message_group,
        size=len(message.body),
        corrupted=message.corrupted,
        properties=message.properties,
        id=message.message_id,
        at_ms=time.time_ns() // 1_000_000,
    )
    return key


def simple(asked: dict[str, Any]) -> None:
    subscription = {topic: expression(asked) for topic in asked["topics"]}
    consumer = rocketmq.SimpleConsumer(
        configuration(),
        asked["group"],
        subscription,
        await_duration=asked["await_s"],
        tls_enable=TLS,
    )
    consumer.startup()
    consumers[asked["name"]] = consumer


def receive(asked: dict[str, Any]) -> None:
    """The messages stay at hand for ack and hold, by consumer and key."""
    name = asked["name"]

    def run() -> None:
        for message in consumers[name].receive(asked["count"], asked["invisible_s"]):
            held[name, got(name, message)] = message

    refusable(run)


def ack(asked: dict[str, Any]) -> None:
    consumer = consumers[asked["name"]]
    for key in asked["keys"]:
        refusable(lambda key=key: consumer.ack(held[asked["name"], key]))  # type: ignore[misc]


def hold(asked: dict[str, Any]) -> None:
    consumer, message = consumers[asked["name"]], held[asked["name"], asked["key"]]
    refusable(lambda: consumer.change_invisible_duration(message, asked["seconds"]))


class Listener(rocketmq.MessageListener):  # type: ignore[misc]
    """Fails as often as it is asked to for each key."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._name = asked["name"]
        self._left = dict(asked.get("fails") or {})
        self._is_quiet = asked.get("quiet")
        self._pause_ms = asked.get("pause", 0)

    def consume(self, message: Any) -> Any:
        key = " ".join(message.keys) if self._is_quiet else got(self._name, message)
        if self._pause_ms:
            pause(self._pause_ms)
        if self._left.get(key, 0) > 0:
            self._left[key] -= 1
            return rocketmq.ConsumeResult.FAILURE
        return rocketmq.ConsumeResult.SUCCESS


def push(asked: dict[str, Any]) -> None:
    subscription = {topic: expression(asked) for topic in asked["topics"]}
    consumer = rocketmq.PushConsumer(
        configuration(), asked["group"], Listener(asked), subscription, tls_enable=TLS
    )
    consumer.startup()
    consumers[asked["name"]] = consumer


def stop(asked: dict[str, Any]) -> None:
    consumers.pop(asked["name"]).shutdown()


def load(asked: dict[str, Any]) -> None:
    """Send many as fast as it can, so many at a time; how long all of them took, and each."""
    sender, times = producer(), []
    begin_s = time.perf_counter()
    for first in range(0, asked["count"], asked["together"]):
        size = min(asked["together"], asked["count"] - first)
        began_s = time.perf_counter()
        if size == 1:
            sender.send(message(asked, f"l{first}"))
        else:
            wait([sender.send_async(message(asked, f"l{first + n}")) for n in range(size)])
        times.append(time.perf_counter() - began_s)
    say(loaded=asked["count"], seconds=time.perf_counter() - begin_s, times=times)


def drain(asked: dict[str, Any]) -> None:
    """Receive and acknowledge so many; how long each receive took with its acks."""
    consumer, times, left = consumers[asked["name"]], [], asked["count"]
    begin_s = time.perf_counter()
    while left > 0:
        began_s = time.perf_counter()
        messages = consumer.receive(asked["batch"], 60)
        for each in messages:
            consumer.ack(each)
        times.append(time.perf_counter() - began_s)
        left -= len(messages)
    say(drained=asked["count"] - left, seconds=time.perf_counter() - begin_s, times=times)


COMMANDS = {
    each.__name__: each
    for each in (send, stream, recall, transact, simple, receive, ack, hold, push, stop)
} | {"load": load, "drain": drain}


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            COMMANDS[asked["do"]](asked)
            say(done=asked["id"])
        except Exception as error:
            say(error=f"{error!r} {getattr(error, 'code', '')}", id=asked["id"])
    for each in (*consumers.values(), *producers.values()):
        each.shutdown()
    sys.stdout.flush()
    # Threads of the client that wait for a broker do not end by themselves.
    os._exit(0)


main()
