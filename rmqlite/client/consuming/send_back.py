"""Sends messages that a listener failed back to the broker.

A message's offset may be committed only after the broker took the message back; until then the
send-back is repeated.  It is given up only if the queue is lost or the consumer closes: then the
offset is not committed, and the message is delivered again.  Belongs to the loop.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from rmqlite.client.channel import retry_pause_s
from rmqlite.client.consuming.backlog import Backlog
from rmqlite.client.consuming.broker_link import BrokerLink
from rmqlite.client.consuming.listener import ConsumeResult
from rmqlite.client.consuming.loop import Loop
from rmqlite.client.consuming.process_queue import ProcessQueue
from rmqlite.kernel.requests.messages import SendBackRequest, SendBackResult
from rmqlite.kernel.words.errors import MessageNotFound, RmqliteError
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.protocols.native.bytes import rpcs

ANSWER_S_MAX: Final = 5.0

log = logging.getLogger(__name__)


class SendBacks:
    """max_reconsume_times: None means the group's."""

    def __init__(
        self,
        group: str,
        max_reconsume_times: int | None,
        link: BrokerLink,
        loop: Loop,
        backlog: Backlog,
    ) -> None:
        self._group = group
        self._max_reconsume_times = max_reconsume_times
        self._link = link
        self._loop = loop
        self._backlog = backlog
        self._closing = False

    def close(self) -> None:
        """From now on make only one attempt for each message."""
        self._closing = True

    def send(
        self, queue: ProcessQueue, message: StoredMessage, result: ConsumeResult, failures: int = 0
    ) -> None:
        """Send a failed message back, again and again until the broker takes it.

        A message of a lost queue is not sent back: its next reader gets the message anyway, and a
        second send-back would begin a second chain of retries.
        """
        if queue.is_lost:
            self._backlog.abandon(queue)
            return

        def on_outcome(outcome: SendBackResult | RmqliteError) -> None:
            if isinstance(outcome, MessageNotFound):
                log.warning(
                    "a failed message is gone from the broker, going on topic=%s queue_id=%d "
                    "queue_offset=%d",
                    queue.queue.topic,
                    queue.queue.queue_id,
                    message.queue_offset,
                )
            elif isinstance(outcome, RmqliteError):
                self._failed(queue, message, result, failures, outcome)
                return
            self._backlog.finish(queue, message)

        request = SendBackRequest(
            self._group,
            message.physical_offset,
            result.delay_level,
            result.reason,
            self._max_reconsume_times,
        )
        self._link.ask(rpcs.SEND_BACK, request, ANSWER_S_MAX, on_outcome)

    def _failed(
        self,
        queue: ProcessQueue,
        message: StoredMessage,
        result: ConsumeResult,
        failures: int,
        error: RmqliteError,
    ) -> None:
        if failures == 0:
            log.warning(
                "a failed message could not be sent back topic=%s message_id=%s: %s",
                queue.queue.topic,
                message.message_id,
                error,
            )
        if queue.is_lost or self._closing:
            self._backlog.abandon(queue)
            return
        again = partial(self.send, queue, message, result, failures + 1)
        self._loop.later(retry_pause_s(failures), again)
