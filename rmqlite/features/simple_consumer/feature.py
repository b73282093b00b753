"""What the feature adds to a broker."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from rmqlite.features.leases.requests import (
    AckRequest,
    FailRequest,
    Handle,
    InvisibleChange,
    ReceiveRequest,
)
from rmqlite.features.leases.service import LeaseCalls
from rmqlite.features.native import NativeFeature
from rmqlite.features.rows import Limit
from rmqlite.features.simple_consumer.requests import (
    HANDLE_BYTES_MAX,
    RECEIVE,
    RECEIVE_TOPICS_MAX,
    RELEASE,
    SETTLE,
    SETTLEMENTS_MAX,
    LeasedRecords,
    Outcome,
    Settlement,
    SettleRequest,
    SubscribedReceive,
)
from rmqlite.kernel.requests.groups import HeartbeatRequest, LeaveRequest, MemberKind
from rmqlite.kernel.service.messages import Looking
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.words import limits
from rmqlite.kernel.words.errors import HandleInvalid, InvalidValue
from rmqlite.kernel.words.levels import DELAY_MS_MAX


async def _received(service: Service, asked: SubscribedReceive, looking: Looking) -> LeasedRecords:
    """Lease messages to a client, which is a member of its group from now on."""
    if not asked.subscriptions:
        raise InvalidValue("subscriptions", "none", "at least one")
    member = HeartbeatRequest(asked.group, asked.client_id, asked.subscriptions)
    await service.groups.heartbeat(member, MemberKind.LEASES)
    requests = [
        ReceiveRequest(
            asked.group,
            each.topic,
            asked.client_id,
            each.expression,
            each.sql,
            asked.max_messages,
            asked.invisible_ms,
            wait_ms=asked.wait_ms,
            attempt_id=asked.attempt_id,
        )
        for each in asked.subscriptions
    ]
    calls = service[LeaseCalls]
    received = await calls.receive_any(requests, looking)
    messages = received.messages
    with calls.answering(received):
        return LeasedRecords(
            messages[0].topic if messages else "",
            b"".join([each.record.encoded for each in messages]),
            tuple([each.handle.text for each in messages]),
            tuple([each.attempt for each in messages]),
        )


async def _settled(service: Service, request: SettleRequest) -> tuple[str, ...]:
    """By settlement the handle that is valid now, "" where the lease had ended before.

    What was settled before stays so if one raises something else, such as StoreUnavailable.
    """
    for each in request.settlements:
        _check(each)
    # All at once, so that they are in one group commit.
    tasks = [
        asyncio.ensure_future(_one_settled(service[LeaseCalls], request.group, each))
        for each in request.settlements
    ]
    try:
        return tuple(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


async def _one_settled(calls: LeaseCalls, group: str, said: Settlement) -> str:
    topic, outcome = said.topic, said.outcome
    try:
        handle = Handle.parse(said.handle)
        if outcome is Outcome.ACK:
            (is_done,) = await calls.ack(AckRequest(group, topic, (handle,)))
            return said.handle if is_done else ""
        if outcome in (Outcome.HOLD, Outcome.GIVE_BACK):
            counts = outcome is Outcome.HOLD
            change = InvisibleChange(group, topic, handle, said.delay_ms or 0, counts=counts)
            return (await calls.change(change)).text
        is_dead = outcome is Outcome.BURY
        await calls.fail(FailRequest(group, topic, handle, said.reason, said.delay_ms, is_dead))
    except HandleInvalid:
        return ""
    return said.handle


def _check(said: Settlement) -> None:
    """Raises InvalidValue."""
    if said.outcome is Outcome.HOLD:
        is_right, rule = bool(said.delay_ms), f"1 to {limits.INVISIBLE_MS_MAX} with HOLD"
    elif said.outcome is Outcome.FAIL:
        is_right, rule = 0 <= (said.delay_ms or 0) <= DELAY_MS_MAX, f"0 to {DELAY_MS_MAX} with FAIL"
    else:
        is_right, rule = not said.delay_ms, f"left out with {said.outcome.name}"
    if not is_right:
        raise InvalidValue("delay_ms", said.delay_ms, rule)


async def _released(service: Service, request: LeaveRequest) -> None:
    await service[LeaseCalls].release(request.group, request.client_id)
    await service.groups.leave(request)


FEATURE: Final = NativeFeature(
    answers={
        RECEIVE: lambda service: partial(_received, service),
        SETTLE: lambda service: partial(_settled, service),
        RELEASE: lambda service: partial(_released, service),
    },
    limits=lambda _: {
        "ReceiveRequest.subscriptions": Limit(count=RECEIVE_TOPICS_MAX),
        "ReceiveRequest.attempt_id": Limit(size=limits.CLIENT_ID_BYTES_MAX),
        "SettleRequest.settlements": Limit(count=SETTLEMENTS_MAX),
        "Settlement.handle": Limit(size=HANDLE_BYTES_MAX),
        "Settlement.reason": Limit(size=limits.REASON_BYTES_MAX),
    },
)
