"""The worker: delivers reminders as they come due, until SIGTERM or Ctrl-C.

    python -m worker.consumer

Then it begins no more of them, waits for those that it has begun, and leaves the group.  Run as
many workers as the topic has queues.
"""

from __future__ import annotations

import asyncio
import logging
import signal

from pydantic import ValidationError

from rmqlite.client import DEAD_LETTER, ConsumeResult, StoredMessage, reconsume_later
from rmqlite.client.asyncio import AsyncPushConsumer
from worker.inbox import Inbox
from worker.reminder import Reminder
from worker.settings import Settings

log = logging.getLogger("worker")


class Listener:
    """Delivers the reminder in a message."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    async def __call__(self, message: StoredMessage) -> ConsumeResult | None:
        """An error of the inbox is raised: the message comes again by the group's retry policy."""
        try:
            reminder = Reminder.model_validate_json(message.body)
        except ValidationError as error:
            # It would fail each time: a dead letter at once, for people to look at.
            reason = f"no reminder: {error.errors()[0]['msg']}"
            return reconsume_later(delay_level=DEAD_LETTER, reason=reason)
        is_new = await asyncio.to_thread(self._inbox.put, message.message_id, reminder)
        log.info("delivered message_id=%s again=%s", message.message_id, not is_new)
        return None


async def work(settings: Settings) -> None:
    stop = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    async with AsyncPushConsumer(
        settings.endpoint,
        settings.group,
        Listener(Inbox(settings.inbox)),
        concurrency=settings.concurrency,
        close_timeout_ms=settings.stop_seconds * 1000,
    ) as consumer:
        consumer.subscribe(settings.topic)
        await consumer.start()
        log.info("started group=%s topic=%s", settings.group, settings.topic)
        await stop.wait()
        log.info("stopping")
    log.info("stopped")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(work(Settings.from_environment()))
