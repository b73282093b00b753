"""One trace from the first send to the redrive, days of waiting and a process between them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rmqlite.client import (
    AdminClient,
    ConsumeResult,
    Message,
    Producer,
    PushConsumer,
    RedriveSpec,
    StoredMessage,
    reconsume_later,
)
from rmqlite.client.tracing import Tracing
from tests.support.broker_processes import StartBroker
from tests.support.documents import ROOT, Page
from tests.support.eventually import WAIT_S, eventually

CLIENT_PAGE = ROOT / "rmqlite" / "client" / "README.md"


def test_one_trace_from_the_send_to_the_redrive(start_broker: StartBroker) -> None:
    """Delayed, failed, dead, redriven, consumed: every span has the same trace and parent."""
    endpoint = start_broker(messageDelayLevel="1s 2s").endpoint
    ended = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ended))
    tracing = Tracing(provider)
    is_repaired = threading.Event()

    def listener(message: StoredMessage) -> ConsumeResult | None:
        if is_repaired.is_set():
            return None
        return reconsume_later(delay_level=-1 if message.reconsume_times else 1, reason="down")

    with (
        Producer(endpoint, "shop", tracing=tracing) as producer,
        PushConsumer(endpoint, "mailer", listener, tracing=tracing) as consumer,
        AdminClient(endpoint) as admin,
    ):
        admin.create_topic("reminders", queues=1)
        consumer.subscribe("reminders")
        consumer.start()
        producer.send(Message("reminders", b"...", delay="1s"))
        eventually(lambda: [each.letters for each in admin.dead_letters.groups()] == [1], "dead")
        is_repaired.set()
        admin.redrives.start(RedriveSpec("mailer"))
        eventually(lambda: len(ended.get_finished_spans()) == 4, "consumed")
    send, *processed = sorted(ended.get_finished_spans(), key=lambda each: each.start_time or 0)
    assert send.name == "send reminders"
    assert (send.attributes or {})["messaging.rocketmq.message.type"] == "delay"
    assert [each.name for each in processed] == ["process reminders"] * 3
    parents = [(each.parent.trace_id, each.parent.span_id) for each in processed if each.parent]
    assert parents == [(send.context.trace_id, send.context.span_id)] * 3
    assert [each.status.description for each in processed] == ["down", "down", None]
    provider.shutdown()


def test_the_example_of_the_page_runs(start_broker: StartBroker, tmp_path: Path) -> None:
    """Its names stand for code of the reader's."""
    (code,) = [each for each in Page.read(CLIENT_PAGE).fences("python") if "Tracing" in each]
    program = tmp_path / "example.py"
    begin = "import threading\n\ncalled = threading.Event()\n\n"
    begin += "def send_mail(message):\n    called.set()\n\n"
    begin += f"def wait_until_told_to_stop():\n    assert called.wait({WAIT_S})\n\n"
    code = code.replace("127.0.0.1:8081", start_broker().endpoint)
    program.write_text(begin + code, "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", program],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    spans = [json.loads("{" + each) for each in done.stdout.split("\n{") if each[:1] != "{"]
    first, _ = json.JSONDecoder().raw_decode(done.stdout)
    assert [first["name"], *[each["name"] for each in spans]] == [
        "send reminders",
        "process reminders",
    ]
