"""Does what the lines of JSON on its input say, with RocketMQ's C++ client; prints JSON lines.

Runs alone, with the client's wheel on PYTHONPATH: it must not import rmqlite.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

# mypy and this repository do not know the wheel.
from rocketmq import client as rocketmq  # type: ignore[import-not-found]
from rocketmq.exceptions import ProducerSendSyncFailed  # type: ignore[import-not-found]
from rocketmq.ffi import MessageModel  # type: ignore[import-not-found]

NAMES = sys.argv[1]
KEY, SECRET = os.environ.get("ACCESS_KEY", ""), os.environ.get("SECRET_KEY", "")
MOUTH = threading.Lock()
AGAIN_S = 2.0
"""How long a send that fails at once is tried again."""
producers: dict[str, Any] = {}
consumers: dict[str, Any] = {}


def say(**said: Any) -> None:
    with MOUTH:
        print(json.dumps(said), flush=True)


def sent(producer: Any, message: Any) -> Any:
    """The result of a send.

    While another thread of the client connects to a broker, a send fails at once, all its tries in
    the same millisecond, as if the topic had no route: nothing left the client then.
    """
    until_s = time.monotonic() + AGAIN_S
    while True:
        try:
            return producer.send_sync(message)
        except ProducerSendSyncFailed:
            if time.monotonic() > until_s:
                raise
            threading.Event().wait(0.05)


def send(asked: dict[str, Any]) -> None:
    producer = producers.get(asked["group"])
    if producer is None:
        producer = rocketmq.Producer(asked["group"], timeout=20_000)
        producer.set_namesrv_addr(NAMES)
        if KEY:
            producer.set_session_credentials(KEY, SECRET, "ALIYUN")
        producer.set_max_message_size(8 << 20)
        producer.start()
        producers[asked["group"]] = producer
    for key in asked["keys"]:
        message = rocketmq.Message(asked["topic"])
        message.set_keys(key)
        message.set_tags(asked.get("tags") or "")
        message.set_body(key.ljust(asked.get("size", 0), "."))
        if asked.get("level"):
            message.set_delay_time_level(asked["level"])
        if asked.get("how") == "oneway":
            producer.send_oneway(message)
            say(sent=key, status="ONE_WAY")
        else:
            result = sent(producer, message)
            status = "SEND_OK" if result.status == 0 else str(result.status)
            say(sent=key, status=status, offset=result.offset, id=result.msg_id)
        message.destroy()


def push(asked: dict[str, Any]) -> None:
    name, fails = asked["name"], asked.get("fails") or {}
    model = MessageModel.BROADCASTING if asked.get("broadcast") else MessageModel.CLUSTERING
    consumer = rocketmq.PushConsumer(asked["group"], bool(asked.get("orderly")), model)
    consumer.set_namesrv_addr(NAMES)
    if KEY:
        consumer.set_session_credentials(KEY, SECRET, "ALIYUN")
    consumer.set_instance_name(name)
    consumer.set_thread_count(2)

    def listen(message: Any) -> Any:
        key = message.keys.decode()
        say(
            got=key,
            by=name,
            topic=message.topic,
            queue=message.queue_id,
            offset=message.queue_offset,
            times=message.reconsume_times,
            tags=(message.tags or b"").decode(),
            size=len(message.body),
        )
        is_fine = message.reconsume_times >= fails.get(key, 0)
        status = rocketmq.ConsumeStatus
        return status.CONSUME_SUCCESS if is_fine else status.RECONSUME_LATER

    for topic in asked["topics"]:
        consumer.subscribe(topic, listen, asked["expression"])
    consumer.start()
    consumers[name] = consumer


def stop(asked: dict[str, Any]) -> None:
    consumers.pop(asked["name"]).shutdown()


COMMANDS = {"send": send, "push": push, "stop": stop}


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            COMMANDS[asked["do"]](asked)
            say(done=asked["id"])
        except Exception as error:
            say(error=repr(error), id=asked["id"])
    for each in (*consumers.values(), *producers.values()):
        each.shutdown()


main()
