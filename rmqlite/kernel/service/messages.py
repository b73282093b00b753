"""Messages: stored, pulled, failed.

A call that stores messages is answered when they are on disk.  born_host is the sender's packed
address, which every stored message keeps.  Long reads are done in steps, and other calls get their
turns between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from rmqlite.kernel.broker import Broker
from rmqlite.kernel.pulling import Pulled
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.requests.messages import (
    PullRequest,
    PullStatus,
    SendBackRequest,
    SendBackResult,
)
from rmqlite.kernel.sends.calls import DraftCall, Outcome, Stored, check_messages
from rmqlite.kernel.service.access import (
    Caller,
    Need,
    Right,
    group_right,
    needs,
    topic_right,
    touches,
)
from rmqlite.kernel.service.part import Part
from rmqlite.kernel.service.turns import done_in_turns
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import FlushFailed, RmqliteError
from rmqlite.kernel.words.names import TOOLS_GROUP

Looking = Callable[[], AbstractAsyncContextManager[Callable[[int], None] | None]]
"""Makes a context for a look, which may wait until the caller has room for what is found; if it
gives a function, that is called with the bytes that were found."""


class DraftsSent(NamedTuple):
    """is_durable: False if the disk took too long; the messages may or may not survive a crash."""

    outcomes: list[Outcome]
    is_durable: bool = True


def _pull_rights(request: PullRequest, *_: object, **__: object) -> list[Need]:
    if request.group == TOOLS_GROUP:
        return [topic_right(Right.VIEW, request.topic)]
    return [topic_right(Right.SUB, request.topic), group_right(Right.SUB, request.group)]


def _send_back_rights(broker: Broker, request: SendBackRequest) -> Iterator[Need]:
    """Who fails a message may read it where it lies, or else would get it by failing it."""
    yield group_right(Right.SUB, request.group)
    yield _right_at(Right.SUB, broker, request.physical_offset)


def _record_rights(broker: Broker, physical_offset: int) -> Iterator[Need]:
    yield _right_at(Right.VIEW, broker, physical_offset)


def _right_at(right: Right, broker: Broker, physical_offset: int) -> Need:
    """The right on the topic of a record.  Raises MessageNotFound."""
    topic = broker.record_at(physical_offset).head.topic
    return Need(right, "topic", topic, f"the message at physical offset {physical_offset}")


class MessageCalls(Part):
    """Calls of producers and consumers."""

    @needs(lambda call: [topic_right(Right.PUB, each) for each in call.topics])
    async def send(self, call: DraftCall) -> Stored:
        """Store messages of one caller, all or none.  Raises what refuses them."""
        self._check_open()
        messages = sum([draft.messages for draft in call.drafts])
        check_messages("messages", messages, self._config.send_messages_max, "maxSendMessages")
        (outcome,) = await self._stored(self._broker.drafts.send([call]))
        if isinstance(outcome, RmqliteError):
            raise outcome
        return outcome

    @property
    def store_host(self) -> str:
        """This broker, "ip:port", as in offset message ids."""
        return self._broker.store_host

    def check_sender(self, caller: Caller | None, topic: str) -> None:
        """Raises AccessDenied unless this caller may send to a topic.

        send_drafts() stores what came of many callers, so each of them is checked before.
        """
        if self._access.accounts is not None:
            need = topic_right(Right.PUB, topic)
            self._access.check(caller, (need,), "MessageCalls.send", (topic,))

    def check_draft(self, draft: Draft) -> None:
        """Raises what refuses a message, before it is passed on to somebody else than the store."""
        self._broker.drafts.check(draft)

    @needs(lambda *_: (Need(Right.ADMIN, "", ""),))
    async def send_drafts(
        self, calls: Sequence[DraftCall], answer: Callable[[DraftsSent], None]
    ) -> None:
        """Store what came of many callers, each call with an outcome of its own.

        Called by the broker itself, which has checked each sender.  Returns when it is stored, so
        that the next calls can follow; answer is called when it is on disk, or when the disk has
        refused it.
        """
        self._check_open()
        outcomes = await done_in_turns(self._broker.drafts.send(calls))
        stored = partial(_answer, outcomes, answer)
        self._commit.then(self._broker.store.end, stored)

    @touches(_send_back_rights)
    async def send_back(self, request: SendBackRequest) -> SendBackResult:
        self._check_open()
        result = self._broker.send_back(request)
        await self._durable()
        return result

    @needs(_pull_rights)
    async def pull(
        self,
        request: PullRequest,
        looking: Looking = nullcontext,
        *,
        ends_unmatched: bool = False,
    ) -> Pulled:
        """Records of a queue; if there are none, wait for the next one and look again.

        ends_unmatched: if the first look finds only messages that the filter leaves out, return
        at once, so that the caller goes on behind them; later ones do not end the wait.
        """
        until_s = self._wait_end_s(request.wait_ms)
        first = request.queue_offset
        while True:
            async with looking() as found:
                result = await done_in_turns(self._broker.pull(request))
                if found is not None and result.records:
                    found(len(result.records.encoded))
            is_over = until_s <= elapsed_s() or self._pulls.is_closed
            if result.records or result.status is PullStatus.OFFSET_MOVED or is_over:
                break
            scanned = result.next_offset - first
            if scanned >= self._config.filter_scan_max or (scanned and ends_unmatched):
                # So the consumer learns how far its filter has looked, so that it can commit that.
                break
            if result.status is PullStatus.NO_NEW_MESSAGE:
                ends_unmatched = False
                await self._wait_for(result.waits_for or (request.topic, request.queue_id), until_s)
                self._access.check_again(_pull_rights(request), "MessageCalls.pull")
            else:
                # None of them matches: look behind them from now on, and each only once.
                request = replace(request, queue_offset=result.next_offset)
        if result.status is PullStatus.NO_NEW_MESSAGE and result.next_offset != first:
            return replace(result, status=PullStatus.NO_MATCHED_MESSAGE)
        return result

    @touches(_record_rights)
    async def record(self, physical_offset: int) -> Record:
        """The record that begins there, as it lies in the log.  Raises MessageNotFound."""
        return self._broker.record_at(physical_offset)


def _answer(
    outcomes: list[Outcome], answer: Callable[[DraftsSent], None], error: FlushFailed | None
) -> None:
    if error is None:
        answer(DraftsSent(outcomes))
    elif error.is_final:
        answer(DraftsSent([error] * len(outcomes)))
    else:
        answer(DraftsSent(outcomes, is_durable=False))
