"""A program on an event loop, with a real broker."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from rmqlite.client import (
    AdminClient,
    ChangeOutcome,
    ConsumeResult,
    Message,
    StoredMessage,
    reconsume_later,
)
from rmqlite.client.asyncio import AsyncAdmin, AsyncProducer, AsyncPushConsumer
from tests.support.broker_processes import StartBroker
from tests.support.documents import ROOT, Page
from tests.support.event_loops import until
from tests.support.eventually import WAIT_S

PATIENCE_MS = 120_000
CLIENT_PAGE = ROOT / "rmqlite" / "client" / "README.md"


def test_a_service_sends_consumes_and_changes(start_broker: StartBroker) -> None:
    """A delay, a retry, a cancelled and a rescheduled message, all on one event loop."""
    endpoint = start_broker().endpoint
    seen: list[tuple[str, int]] = []

    async def listener(message: StoredMessage) -> ConsumeResult | None:
        seen.append((message.body.decode(), message.reconsume_times))
        failed = message.body == b"failed" and not message.reconsume_times
        return reconsume_later(delay_level=1, reason="not yet") if failed else None

    async def service() -> None:
        async with (
            AsyncProducer(endpoint, "shop", send_timeout_ms=PATIENCE_MS) as producer,
            AsyncAdmin(endpoint, timeout_ms=PATIENCE_MS) as admin,
            AsyncPushConsumer(endpoint, "mailer", listener) as consumer,
        ):
            await admin.create_topic("orders", queues=2)
            consumer.subscribe("orders")
            await consumer.start()
            never, later, *_ = await asyncio.gather(
                producer.send(Message("orders", b"never", deliver_after="36h")),
                producer.send(Message("orders", b"later", deliver_after="36h")),
                producer.send(Message("orders", b"failed")),
                producer.send(Message("orders", b"delayed", delay="1s")),
                producer.send_batch([Message("orders", b"batch")] * 3),
            )
            waiting = {each.message_id async for each in admin.schedule.pending()}
            assert {never.message_id, later.message_id} <= waiting
            assert (await producer.cancel(never.message_id)).outcome is ChangeOutcome.DONE
            await producer.reschedule(later.message_id, deliver_after="1s")
            await until(lambda: len(seen) == 7, "all that are not cancelled")

    asyncio.run(asyncio.wait_for(service(), WAIT_S))
    batch = [("batch", 0)] * 3
    assert sorted(seen) == [
        *batch,
        ("delayed", 0),
        ("failed", 0),
        ("failed", 1),
        ("later", 0),
    ]
    with AdminClient(endpoint) as admin:
        progress = admin.group("mailer").progress
        assert all(each.committed_offset == each.max_offset for each in progress)
        assert admin.group("mailer").members == ()


def test_the_example_of_the_page_runs(start_broker: StartBroker, tmp_path: Path) -> None:
    """The first thing that a reader copies."""
    (code,) = [
        each for each in Page.read(CLIENT_PAGE).fences("python") if "AsyncPushConsumer" in each
    ]
    program = tmp_path / "example.py"
    program.write_text(code.replace("127.0.0.1:8081", start_broker().endpoint), "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", program],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "consumed ('order-1',)" in done.stdout
    assert "waiting" in done.stdout


UNDER_WAY = """
import asyncio
import sys

from rmqlite.client.asyncio import AsyncPushConsumer


async def listener(message):
    print("begun", flush=True)
    await asyncio.sleep(0.5)
    print("ended", flush=True)


async def main(endpoint):
    async with AsyncPushConsumer(endpoint, "g", listener) as consumer:
        consumer.subscribe("orders")
        await consumer.start()
        await asyncio.Event().wait()


asyncio.run(main(sys.argv[1]))
"""


def test_ctrl_c_lets_running_listeners_finish(start_broker: StartBroker, tmp_path: Path) -> None:
    """And commits: nothing is consumed twice after an ordinary stop."""
    endpoint = start_broker().endpoint
    program = tmp_path / "worker.py"
    program.write_text(UNDER_WAY, "utf-8")
    with subprocess.Popen(
        [sys.executable, program, endpoint],
        env={"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        asyncio.run(_send_one(endpoint))
        assert worker.stdout is not None
        assert worker.stdout.readline() == "begun\n"
        worker.send_signal(signal.SIGINT)
        out, errors = worker.communicate(timeout=WAIT_S)
    assert out == "ended\n"
    assert errors.rstrip().endswith("KeyboardInterrupt")
    with AdminClient(endpoint) as admin:
        (done,) = [each for each in admin.group("g").progress if each.committed_offset]
        assert done.committed_offset == 1


async def _send_one(endpoint: str) -> None:
    async with AsyncProducer(endpoint, "shop", send_timeout_ms=PATIENCE_MS) as producer:
        await producer.send(Message("orders", b"a"))
