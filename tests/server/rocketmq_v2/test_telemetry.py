"""Telemetry, Heartbeat and NotifyClientTermination: who a client is, and whether it lives."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmqlite.features.accounts.accounts import PERMS
from rmqlite.features.leases.lease_table import RENEWED_MS
from rmqlite.features.leases.leased_queue import RECEIVED_MS
from rmqlite.features.transactions.service import TransactionCalls
from rmqlite.kernel.requests.groups import GroupChange
from rmqlite.kernel.words.limits import SUBSCRIPTIONS_MAX
from rmqlite.protocols.rocketmq_v2 import clients
from rmqlite.protocols.rocketmq_v2 import clients as registry
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import (
    HEARTBEAT,
    NOTIFY_TERMINATION,
    definition,
    service,
)
from rmqlite.protocols.rocketmq_v2.clients import AGAIN_MAX, SILENT_MS_MAX
from rmqlite.protocols.rocketmq_v2.telemetry import decided
from tests.server.rocketmq_v2.signing import signed
from tests.support.accounts import account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import turns_until
from tests.support.rocketmq_v2_client import (
    CLIENT,
    GROUP,
    NODE,
    TOPIC,
    V2,
    TelemetryCall,
    code_of,
    consumer_settings,
    message,
    named,
    producer_settings,
    served_v2,
)

GOODBYE = service.NotifyClientTerminationRequest(group=named(GROUP))


def heartbeat(
    kind: definition.ClientType = definition.SIMPLE_CONSUMER, group: str = GROUP
) -> service.HeartbeatRequest:
    return service.HeartbeatRequest(group=named(group), client_type=kind)


async def described(v2: V2, settings: definition.Settings) -> TelemetryCall:
    """An open call of a client that has sent its settings."""
    call = v2.telemetry()
    call.settings(settings)
    frame = await call.next()
    assert code_of(frame) is Code.OK, frame.status.message
    return call


def members(under_test: BrokerUnderTest) -> dict[str, set[str]]:
    """The topics of each member of the group."""
    found = under_test.broker.membership.members(GROUP)
    return {each.client_id: {one.topic for one in each.subscriptions} for each in found}


def test_each_frame_of_settings_is_answered_with_what_to_do(under_test: BrokerUnderTest) -> None:
    """With status OK in the same frame, or Python ignores it."""

    async def scenario(v2: V2) -> None:
        call = await described(v2, producer_settings(TOPIC))
        call.settings(producer_settings(TOPIC, "bills"))
        for number in (1, 2):
            frame = await call.next(number)
            assert code_of(frame) is Code.OK
            settings = frame.settings
            assert settings.publishing.max_body_size == under_test.config.max_message_bytes
            assert settings.publishing.validate_message_type
            assert settings.backoff_policy.HasField("exponential_backoff")
            assert not settings.metric.on
            assert len(settings.publishing.topics) == number

    served_v2(under_test, scenario)


def test_a_consumer_gets_the_settings_of_its_group(under_test: BrokerUnderTest) -> None:
    """How often it may fail, how long it waits, whether it consumes in order."""

    async def scenario(v2: V2) -> None:
        change = GroupChange(GROUP, max_reconsume_times=3, retry_policy="1s 5s", orderly=True)
        await v2.server.service.groups.change(change)
        call = await described(v2, consumer_settings(TOPIC))
        settings = (await call.next()).settings
        assert settings.backoff_policy.max_attempts == 4
        waits = settings.backoff_policy.customized_backoff.next
        assert [each.seconds for each in waits] == [1, 5]
        assert settings.subscription.fifo
        assert settings.subscription.receive_batch_size == 32
        assert 5 <= settings.subscription.long_polling_timeout.seconds <= 20

    served_v2(under_test, scenario)


def test_settings_make_a_member_of_the_group(under_test: BrokerUnderTest) -> None:
    """It is there for lists of members, and so that its leases are renewed."""

    async def scenario(v2: V2) -> None:
        await described(v2, consumer_settings(TOPIC, "bills"))
        assert members(under_test) == {CLIENT: {TOPIC, "bills", f"%RETRY%{GROUP}"}}

    served_v2(under_test, scenario)


def test_a_heartbeat_needs_no_settings(under_test: BrokerUnderTest) -> None:
    """After a restart Python sends heartbeats for ten minutes before it describes itself."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message())
        assert await v2.code(HEARTBEAT, heartbeat()) is Code.OK
        await v2.received()
        assert await v2.code(HEARTBEAT, heartbeat()) is Code.OK
        assert TOPIC in members(under_test)[CLIENT]
        assert await v2.code(NOTIFY_TERMINATION, GOODBYE) is Code.OK
        assert members(under_test) == {}

    served_v2(under_test, scenario)


def test_a_producer_is_no_member(under_test: BrokerUnderTest) -> None:
    """It names no group."""

    async def scenario(v2: V2) -> None:
        asked = service.HeartbeatRequest(client_type=definition.PRODUCER)
        assert await v2.code(HEARTBEAT, asked) is Code.OK
        assert members(under_test) == {}
        # Who has described itself need not say it again.
        await described(v2, producer_settings(TOPIC))
        assert await v2.code(HEARTBEAT, service.HeartbeatRequest()) is Code.OK

    served_v2(under_test, scenario)


def test_a_goodbye_gives_back_what_was_received(under_test: BrokerUnderTest) -> None:
    """Others get it at once, as if it had never been received."""

    async def scenario(v2: V2) -> None:
        await described(v2, consumer_settings(TOPIC))
        await v2.sent(message())
        await v2.received()
        other = v2.other("the other")
        assert await other.received() == []
        assert await v2.code(NOTIFY_TERMINATION, GOODBYE) is Code.OK
        (received,) = await other.received()
        assert received.system_properties.delivery_attempt == 1
        # It may say so twice, or without having been there.
        assert await v2.code(NOTIFY_TERMINATION, GOODBYE) is Code.OK
        unnamed = service.NotifyClientTerminationRequest()
        assert await v2.code(NOTIFY_TERMINATION, unnamed) is Code.OK

    served_v2(under_test, scenario)


def test_the_messages_of_a_client_that_is_gone_without_a_word_have_failed(
    under_test: BrokerUnderTest,
) -> None:
    """Its call has ended, and three heartbeats are missing; a message may be the reason."""

    async def scenario(v2: V2) -> None:
        settings = consumer_settings(TOPIC, kind=definition.PUSH_CONSUMER)
        call = await described(v2, settings)
        await v2.sent(message())
        await v2.received(auto_renew=True, invisible_s=None)
        other = v2.other("the other")
        for _ in range(10):
            await v2.later(SILENT_MS_MAX)
            await v2.code(HEARTBEAT, heartbeat(definition.PUSH_CONSUMER))
            await v2.protocol.telemetry.look()
        assert await other.received() == []
        call.call.cancel()
        await turns_until(call.call.done)
        await v2.later(SILENT_MS_MAX)
        await v2.protocol.telemetry.look()
        assert CLIENT in members(under_test)
        await v2.later(1)
        await v2.protocol.telemetry.look()
        assert CLIENT not in members(under_test)
        await v2.later(60_000)
        (received,) = await other.received()
        assert received.system_properties.delivery_attempt == 2

    served_v2(under_test, scenario)


@pytest.mark.parametrize("age_ms", [RECEIVED_MS - 1, RECEIVED_MS])
def test_what_was_under_way_when_a_connection_broke_comes_again(
    under_test: BrokerUnderTest, age_ms: int
) -> None:
    """Its client is there again at once, and may never have got it; what is older it has."""

    async def scenario(v2: V2) -> None:
        settings = consumer_settings(TOPIC, kind=definition.PUSH_CONSUMER)
        call = await described(v2, settings)
        await v2.sent(message("a"), message("b"))
        first, second = await v2.received(auto_renew=True, invisible_s=None)
        await v2.later(age_ms)
        call.call.cancel()
        await turns_until(call.call.done)
        await described(v2, settings)
        assert await v2.acked(first) == [Code.OK]
        other = v2.other("the other")
        await v2.later(RECEIVED_MS - age_ms)
        await v2.later(RENEWED_MS - 1)
        assert await other.received() == []
        await v2.later(1)
        found = [each.body for each in await other.received()]
        assert found == ([second.body] if age_ms < RECEIVED_MS else [])

    served_v2(under_test, scenario)


def test_a_lease_of_its_own_time_outlives_its_client(under_test: BrokerUnderTest) -> None:
    """Who asks for ten minutes has ten minutes, also without a heartbeat."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message())
        (received,) = await v2.received(invisible_s=600)
        other = v2.other("the other")
        for _ in range(9):
            await v2.later(60_000)
            await v2.protocol.telemetry.look()
        assert await other.received() == []
        assert await v2.acked(received) == [Code.OK]

    served_v2(under_test, scenario)


def test_an_open_call_keeps_a_silent_client(under_test: BrokerUnderTest) -> None:
    """So does a heartbeat without a call."""

    async def scenario(v2: V2) -> None:
        await described(v2, consumer_settings(TOPIC))
        beating = v2.other("beating")
        await beating.code(HEARTBEAT, heartbeat())
        for _ in range(5):
            under_test.clock.forward(SILENT_MS_MAX - 1)
            await beating.code(HEARTBEAT, heartbeat())
            await v2.protocol.telemetry.look()
        assert len(v2.protocol.clients) == 2

    served_v2(under_test, scenario)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (definition.Settings(), Code.UNRECOGNIZED_CLIENT_TYPE),
        (definition.Settings(client_type=definition.PRODUCER), Code.UNRECOGNIZED_CLIENT_TYPE),
        (producer_settings("no.dots"), Code.ILLEGAL_TOPIC),
        (producer_settings("SCHEDULE_TOPIC_XXXX"), Code.ILLEGAL_TOPIC),
        (consumer_settings(TOPIC, group=""), Code.ILLEGAL_CONSUMER_GROUP),
        (consumer_settings(TOPIC, group="CID_RMQ_SYS_TRANS"), Code.ILLEGAL_CONSUMER_GROUP),
        (consumer_settings(TOPIC, kind=definition.LITE_PUSH_CONSUMER), Code.UNSUPPORTED),
        (consumer_settings(TOPIC, kind=definition.LITE_SIMPLE_CONSUMER), Code.UNSUPPORTED),
        (
            consumer_settings(*[f"t{n}" for n in range(SUBSCRIPTIONS_MAX + 1)]),
            Code.BAD_REQUEST,
        ),
    ],
)
def test_settings_that_cannot_be_are_answered_with_a_status(
    under_test: BrokerUnderTest, settings: definition.Settings, code: Code
) -> None:
    """A call that ended would come back every second for ever; Node ends its start at a status."""

    async def scenario(v2: V2) -> None:
        call = v2.telemetry()
        call.settings(settings)
        frame = await call.next()
        assert code_of(frame) is code
        assert frame.WhichOneof("command") is None
        call.settings(producer_settings(TOPIC))
        assert code_of(await call.next(2)) is Code.OK

    served_v2(under_test, scenario)


def test_other_frames_need_no_answer(under_test: BrokerUnderTest) -> None:
    """Answers to commands, commands that only a broker sends, nothing at all, and no protobuf."""

    async def scenario(v2: V2) -> None:
        call = v2.telemetry()
        for frame in (
            service.TelemetryCommand(),
            service.TelemetryCommand(status=definition.Status(code=definition.OK)),
            service.TelemetryCommand(thread_stack_trace=service.ThreadStackTrace(nonce="n")),
            service.TelemetryCommand(verify_message_result=service.VerifyMessageResult()),
            service.TelemetryCommand(
                reconnect_endpoints_command=service.ReconnectEndpointsCommand()
            ),
        ):
            call.put(frame)
        call.put(b"\xff" * 100)
        assert code_of(await call.next()) is Code.BAD_REQUEST
        assert len(call.frames) == 1

    served_v2(under_test, scenario)


def test_node_gets_its_settings_again_until_it_has_begun(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for them only when it knows all routes, and then for ever."""
    monkeypatch.setattr(clients, "AGAIN_S", 0)

    async def scenario(v2: V2) -> None:
        call = await described(v2, consumer_settings(TOPIC, agent=NODE))
        first = (await call.next(1)).settings
        for number in (2, 3):
            assert (await call.next(number)).settings == decided(first)
        await v2.sent(message())
        count = len(call.frames)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(call.frames) <= count + 1
        idle = await described(v2.other("idle"), consumer_settings(TOPIC, agent=NODE))
        await idle.next(1 + AGAIN_MAX)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(idle.frames) == 1 + AGAIN_MAX
        python = await described(v2.other("python"), consumer_settings(TOPIC))
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(python.frames) == 1

    served_v2(under_test, scenario)


def test_the_calls_end_when_the_broker_closes(under_test: BrokerUnderTest) -> None:
    """Otherwise each of them would hold up the end."""

    async def scenario(v2: V2) -> None:
        call = await described(v2, producer_settings(TOPIC))
        v2.protocol.telemetry.close()
        await call.call
        late = v2.telemetry()
        await late.call
        assert late.frames == []

    served_v2(under_test, scenario)


def test_a_client_that_ends_its_call_gets_what_waits_for_it(under_test: BrokerUnderTest) -> None:
    """Then the call ends well."""

    async def scenario(v2: V2) -> None:
        call = v2.telemetry()
        call.reads.clear()
        call.settings(producer_settings(TOPIC))
        call.done_writing()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not call.call.done()
        call.reads.set()
        await call.call
        assert len(call.frames) == 1

    served_v2(under_test, scenario)


def test_a_client_that_comes_back_has_one_call(under_test: BrokerUnderTest) -> None:
    """The old one ends: its client has lost it."""

    async def scenario(v2: V2) -> None:
        first = await described(v2, producer_settings(TOPIC))
        second = await described(v2, producer_settings(TOPIC))
        await first.call
        assert not second.call.done()
        assert len(v2.protocol.clients) == 1

    served_v2(under_test, scenario)


def test_who_may_not_send_is_asked_no_questions(under_test: BrokerUnderTest) -> None:
    """A question has the message in it: only who may send it may read it this way."""
    writer = account("the-writer", topic_perms={TOPIC: PERMS["PUB"]})
    reader = account(
        "the-reader", topic_perms={TOPIC: PERMS["SUB"]}, group_perms={GROUP: PERMS["SUB"]}
    )

    async def scenario(v2: V2) -> None:
        v2.server.access.accounts = accounts(writer, reader)
        reading = v2.other("reading", signed("the-reader"))
        call = reading.telemetry()
        call.settings(producer_settings(TOPIC))
        assert code_of(await call.next()) is Code.FORBIDDEN
        assert not v2.server.service[TransactionCalls].has_producer(TOPIC)
        await described(v2.other("writing", signed("the-writer")), producer_settings(TOPIC))
        assert v2.server.service[TransactionCalls].has_producer(TOPIC)
        await described(v2.other("consuming", signed("the-reader")), consumer_settings(TOPIC))
        denied = v2.other("denied", signed("the-writer")).telemetry()
        denied.settings(consumer_settings(TOPIC))
        assert code_of(await denied.next()) is Code.FORBIDDEN

    served_v2(under_test, scenario)


def test_clients_and_names_are_bounded(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client too many hears so; those that are there stay, and their memory comes back."""
    monkeypatch.setattr(registry, "CLIENTS_MAX", 2)
    monkeypatch.setattr(registry, "NAMES_MAX", 5)

    async def scenario(v2: V2) -> None:
        first = await described(v2, producer_settings("a", "b", "c"))
        second = v2.other("second").telemetry()
        second.settings(producer_settings("a", "b", "c"))
        assert code_of(await second.next()) is Code.TOO_MANY_REQUESTS
        second.settings(producer_settings("a", "b"))
        assert code_of(await second.next(2)) is Code.OK
        third = v2.other("third")
        assert await third.code(HEARTBEAT, heartbeat()) is Code.TOO_MANY_REQUESTS
        assert await v2.code(NOTIFY_TERMINATION, GOODBYE) is Code.OK
        await first.call
        assert v2.protocol.clients.names == 2
        await described(third, producer_settings("a", "b", "c"))
        assert v2.protocol.clients.names == 5

    served_v2(under_test, scenario)


def test_the_memory_of_clients_comes_back(under_test: BrokerUnderTest) -> None:
    """Of hundreds that come and go without a word nothing stays."""

    async def scenario(v2: V2) -> None:
        for number in range(200):
            client = v2.other(f"client {number}")
            call = await described(client, producer_settings(TOPIC, f"t{number}"))
            call.call.cancel()
            await asyncio.wait([call.call])
        assert len(v2.protocol.clients) == 200
        under_test.clock.forward(SILENT_MS_MAX + 1)
        await v2.protocol.telemetry.look()
        clients = v2.protocol.clients
        assert (len(clients), clients.names, clients._producers) == (0, 0, {})

    served_v2(under_test, scenario)


def test_a_group_is_made_on_demand_only_if_the_broker_does_that(tmp_path: Path) -> None:
    """As on the other protocols."""
    under_test = BrokerUnderTest(tmp_path / "store", auto_create_group=False)

    async def scenario(v2: V2) -> None:
        assert await v2.code(HEARTBEAT, heartbeat()) is Code.CONSUMER_GROUP_NOT_FOUND
        call = v2.telemetry()
        call.settings(consumer_settings(TOPIC))
        assert code_of(await call.next()) is Code.CONSUMER_GROUP_NOT_FOUND

    served_v2(under_test, scenario)
    under_test.store.release()
