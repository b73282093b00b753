"""What clients say about themselves, and what the broker answers and asks them meanwhile.

Each client keeps one call open.  It writes its settings there, again and again; each time the
broker answers what the client is to do: its own settings, with what the broker decides written over
them.  What cannot be answered is answered with a status, and the call stays: a client that loses it
comes back a second later with the same settings.

Each client takes settings in its own way.  Node before 1.0.9 takes the seconds of a back-off for
milliseconds, and knows no list of waits; Python cuts waits to whole seconds.  A producer of Node
dies without an exponential back-off.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Final

from rmqlite.features.leases.service import LeaseCalls
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.groups import HeartbeatRequest, LeaveRequest, MemberKind, Subscription
from rmqlite.kernel.service.access import BROKER, CALLER
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.service.turns import let_others
from rmqlite.kernel.tables.shares import AccountShares
from rmqlite.kernel.words.levels import LevelTable, parse_levels
from rmqlite.kernel.words.limits import INT32_MAX, RECEIVE_MESSAGES_MAX
from rmqlite.kernel.words.names import TRACE_TOPIC
from rmqlite.kernel.words.retry_policy import RetryPolicy
from rmqlite.protocols.grpc.calls import Context, Read
from rmqlite.protocols.rocketmq_v2.bytes import rules
from rmqlite.protocols.rocketmq_v2.bytes.codes import OK, Code, broken
from rmqlite.protocols.rocketmq_v2.bytes.limits import WAITS_MAX
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import TELEMETRY, definition, service
from rmqlite.protocols.rocketmq_v2.calls import Asker, Reading, asker_of, no_lite_topics, refused
from rmqlite.protocols.rocketmq_v2.clients import CLIENTS_MAX, RocketmqClients, Stream

SEND_ATTEMPTS_MAX: Final = 3
SEND_BACKOFF_MS: Final = 10
SEND_BACKOFF_MS_MAX: Final = 1_000
BACKOFF_FACTOR: Final = 2.0
LITE_TOPIC_CHARS_MAX: Final = 64
_NODE_FIXED: Final = (1, 0, 9)
"""The first version of the client for Node that may take seconds for seconds."""
_NUMBERS: Final = re.compile(r"\d{1,6}(?:\.\d{1,6})*")
_KINDS: Final = frozenset(
    {
        definition.PRODUCER,
        definition.PUSH_CONSUMER,
        definition.SIMPLE_CONSUMER,
        definition.PULL_CONSUMER,
    }
)
LAST_WORDS_S: Final = 1.0
"""How long a client that has ended its call may take to read what waits for it."""
NAMES_STEP: Final = 200
"""A step with so many topics takes a millisecond."""
LOOK_S: Final = 5.0
"""How often clients are looked for that are gone without a word."""


@dataclass(frozen=True, slots=True)
class GroupRules:
    """What a group of consumers is to do.

    waits_ms: how long a message waits after its first failure, its second ...; the last one is
    repeated.  attempts_max: the first delivery counts.
    """

    waits_ms: Sequence[int]
    attempts_max: int
    is_fifo: bool


def waits_of(policy: RetryPolicy, table: LevelTable, retries: int) -> tuple[int, ...]:
    """How long a group's messages wait after their failures; see GroupRules."""
    steps = max(1, min(retries, policy.steps(table), WAITS_MAX))
    return tuple([policy.wait_ms(step, table) for step in range(steps)])


def producer_settings(asked: definition.Settings, *, body_bytes_max: int) -> definition.Settings:
    """The settings that go back to a producer."""
    merged = _copied(asked)
    merged.backoff_policy.max_attempts = SEND_ATTEMPTS_MAX
    backoff = merged.backoff_policy.exponential_backoff
    backoff.initial.CopyFrom(rules.to_duration(SEND_BACKOFF_MS))
    backoff.max.CopyFrom(rules.to_duration(SEND_BACKOFF_MS_MAX))
    backoff.multiplier = BACKOFF_FACTOR
    merged.publishing.max_body_size = body_bytes_max
    merged.publishing.validate_message_type = True
    return merged


def consumer_settings(asked: definition.Settings, group: GroupRules) -> definition.Settings:
    """The settings that go back to a consumer.  Raises Refusal."""
    merged = _copied(asked)
    policy = merged.backoff_policy
    policy.max_attempts = min(group.attempts_max, INT32_MAX)
    client = asked.user_agent
    waits_ms = list(islice(group.waits_ms, WAITS_MAX))
    if client.language == definition.NODE_JS and version_of(client.version) < _NODE_FIXED:
        # Its seconds of waits are our milliseconds.
        backoff = policy.exponential_backoff
        backoff.initial.seconds = waits_ms[0]
        backoff.max.seconds = max(waits_ms)
        backoff.multiplier = BACKOFF_FACTOR
    else:
        if client.language == definition.PYTHON:
            waits_ms = [-(-wait_ms // 1_000) * 1_000 for wait_ms in waits_ms]
        policy.customized_backoff.next.extend(map(rules.to_duration, waits_ms))
    subscription = merged.subscription
    subscription.fifo = group.is_fifo
    subscription.receive_batch_size = RECEIVE_MESSAGES_MAX
    poll_ms = rules.POLLING_MS_MAX
    if asked.subscription.HasField("long_polling_timeout"):
        poll_ms = rules.duration_ms(asked.subscription.long_polling_timeout) or 0
        poll_ms = min(max(poll_ms, rules.POLLING_MS_MIN), rules.POLLING_MS_MAX)
    subscription.long_polling_timeout.CopyFrom(rules.to_duration(poll_ms))
    # Python takes a quota that is left out for 0, Node for 100.
    subscription.lite_subscription_quota = 0
    subscription.max_lite_topic_size = LITE_TOPIC_CHARS_MAX
    return merged


def decided(merged: definition.Settings) -> definition.Settings:
    """What the broker decides, without what the client has said itself: 2 kB at most."""
    own = definition.Settings()
    own.CopyFrom(merged)
    for field in ("access_point", "user_agent", "client_properties"):
        own.ClearField(field)
    if is_consumer(own):
        own.subscription.ClearField("subscriptions")
    else:
        own.publishing.ClearField("topics")
    return own


def is_consumer(asked: definition.Settings) -> bool:
    """False: a producer.  Raises Refusal for settings of neither."""
    kind = asked.WhichOneof("pub_sub")
    if kind is None:
        rule = "those of a producer (publishing) or a consumer (subscription)"
        raise broken(Code.UNRECOGNIZED_CLIENT_TYPE, "settings", "neither", rule)
    return bool(kind == "subscription")


def version_of(text: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version; none if it begins with no number."""
    found = _NUMBERS.match(text)
    return tuple([int(part) for part in found[0].split(".")]) if found else ()


def _copied(asked: definition.Settings) -> definition.Settings:
    merged = definition.Settings()
    merged.CopyFrom(asked)
    merged.ClearField("backoff_policy")
    merged.metric.Clear()
    merged.metric.on = False
    return merged


class Telemetry:
    """The Telemetry calls of all clients, and their heartbeats and goodbyes."""

    def __init__(
        self, config: BrokerConfig, own: Service, clients: RocketmqClients, decoding: Reading
    ) -> None:
        self._config = config
        self._service = own
        self._clients = clients
        self._decoding = decoding
        self._calls: dict[Stream, None] = {}
        self._shares = AccountShares("CLIENTS_MAX", CLIENTS_MAX)
        """How many calls each account has open."""
        self._is_closed = False

    async def run(self) -> None:
        """Let those go who are gone without a word, until cancelled."""
        CALLER.set(BROKER)
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Who is gone is no member any more, so that its leases are no longer renewed.

        They end in their time, and their messages have failed: one of them may be the reason.
        """
        for client in self._clients.gone():
            if client.group:
                await self._service.groups.leave(LeaveRequest(client.group, client.key.client_id))

    def close(self) -> None:
        """End all Telemetry calls; new ones end at once."""
        self._is_closed = True
        for stream in self._calls:
            stream.close()

    # ---- the call

    async def talk(self, read: Read, context: Context) -> None:
        """Answer settings until the client ends the call, or the broker closes."""
        asker, stream = asker_of(context), Stream()
        if self._is_closed:
            return
        with self._one_more(asker, stream):
            client = self._clients.get(asker.key)
            if client is not None:
                before = client.stream
                if before is not None and before.is_open and client.group:
                    self._service.groups.second_connection(client.group, asker.client_id)
                client.talk_on(stream)
            try:
                await _first_of(self._listen(read, asker, stream), stream.write_to(context))
            finally:
                stream.close()
                client = self._clients.get(asker.key)
                if client is not None:
                    client.hang_up(stream)
                    # All calls of a client are made on one connection.
                    self._service[LeaseCalls].doubt(client.group, asker.client_id)

    async def _listen(self, read: Read, asker: Asker, stream: Stream) -> None:
        """Answer frames until the client has ended the call."""
        while await self._heard(read, asker, stream):
            pass
        # What waits for the client is still written, and that ends the call here.
        stream.close()
        await asyncio.sleep(LAST_WORDS_S)

    async def _heard(self, read: Read, asker: Asker, stream: Stream) -> bool:
        """Wait for a frame and answer it if it has settings; False if none comes any more.

        A coroutine of its own for each frame: it ends with all that the frame was read into,
        before the next one is waited for, perhaps for hours.
        """
        data = await read()
        if data is None:
            return False
        try:
            command = await self._decoding.read(TELEMETRY, TELEMETRY.decode, data)
            if command.WhichOneof("command") == "settings":
                await self._answer(command.settings, asker, stream)
        except Exception as error:
            answer = service.TelemetryCommand(status=refused(TELEMETRY.path, error).status)
            stream.put(answer.SerializeToString())
        return True

    async def _answer(self, settings: definition.Settings, asker: Asker, stream: Stream) -> None:
        """Remember what a client is, and write what it is to do.

        Node looks at that only once it knows the routes of all its topics, and then waits for it
        for ever: what came before is lost.  So it gets it again until it makes another call.
        """
        kind = _kind_of(settings.client_type)
        if is_consumer(settings):
            merged = await self._consumer(settings, kind, asker)
        else:
            merged = await self._producer(settings, kind, asker)
        client = self._clients.get(asker.key)
        if client is not None and stream.is_open:
            client.talk_on(stream)
        stream.put(_frame(merged))
        if settings.user_agent.language == definition.NODE_JS:
            stream.repeat(_frame(decided(merged)), lambda: not self._clients.has_begun(asker.key))

    async def _producer(
        self, settings: definition.Settings, kind: int, asker: Asker
    ) -> definition.Settings:
        topics = [rules.topic_of(each) for each in settings.publishing.topics]
        for topic in topics:
            # It may be asked about the messages of these topics, and then gets them.
            self._service.messages.check_sender(CALLER.get(), topic)
        await self._pause(topics)
        # Everybody may send traces: that is no right for which a client is remembered.
        known = self._clients.get(asker.key)
        if known is None and any(topic != TRACE_TOPIC for topic in topics):
            known = self._clients.seen(asker.key)
        if known is not None:
            self._clients.describe(known, kind=kind, topics=topics)
        await self._pause(topics)
        return producer_settings(settings, body_bytes_max=self._config.max_message_bytes)

    async def _consumer(
        self, settings: definition.Settings, kind: int, asker: Asker
    ) -> definition.Settings:
        group = rules.group_of(settings.subscription.group)
        entries = settings.subscription.subscriptions
        subscriptions = [
            Subscription(rules.topic_of(each.topic), *rules.filter_of(each.expression))
            for each in entries
        ]
        await self._pause(subscriptions)
        self._clients.check_room(asker.key)
        await self._join(group, asker, kind, tuple(subscriptions))
        await self._pause(subscriptions)
        self._clients.describe(
            self._clients.seen(asker.key), kind=kind, group=group, subscriptions=subscriptions
        )
        info = await self._service.groups.info(group)
        levels = await self._service.schedule.levels()
        table = parse_levels(levels.message_delay_level)
        waits_ms = waits_of(RetryPolicy.parse(info.retry_policy), table, info.max_reconsume_times)
        group_rules = GroupRules(waits_ms, info.max_reconsume_times + 1, info.orderly)
        return consumer_settings(settings, group_rules)

    @staticmethod
    async def _pause(names: Sequence[object]) -> None:
        """Let other calls have their turns between two steps with many topics."""
        if len(names) > NAMES_STEP:
            await let_others()

    # ---- heartbeats and goodbyes

    async def heartbeat(
        self, request: service.HeartbeatRequest, asker: Asker
    ) -> service.HeartbeatResponse:
        """The client is alive, and with it what it has received."""
        client = self._clients.get(asker.key)
        kind = _kind_of(request.client_type or (client.kind if client else 0))
        if kind != definition.PRODUCER:
            group = rules.group_of(request.group)
            subscriptions = client.subscriptions if client and client.group == group else ()
            self._clients.check_room(asker.key)
            await self._join(group, asker, kind, subscriptions)
        if kind != definition.PRODUCER or client is not None:
            # Behind the right: a producer that has shown none yet is not remembered.
            self._clients.seen(asker.key)
        self._clients.begun(asker.key)
        return service.HeartbeatResponse(status=OK)

    async def goodbye(
        self, request: service.NotifyClientTerminationRequest, asker: Asker
    ) -> service.NotifyClientTerminationResponse:
        """The client ends: others get at once what it has received and not acknowledged."""
        client = self._clients.get(asker.key)
        if client is not None:
            self._clients.remove(client)
        if request.group.name:
            group = rules.group_of(request.group)
            await self._service.groups.leave(LeaveRequest(group, asker.client_id))
            await self._service[LeaseCalls].release(group, asker.client_id)
        return service.NotifyClientTerminationResponse(status=OK)

    async def _join(
        self, group: str, asker: Asker, kind: int, subscriptions: tuple[Subscription, ...]
    ) -> None:
        request = HeartbeatRequest(group, asker.client_id, subscriptions)
        pulls = kind == definition.PULL_CONSUMER
        member_kind = MemberKind.SHARES if pulls else MemberKind.LEASES
        await self._service.groups.heartbeat(request, member_kind)

    @contextmanager
    def _one_more(self, asker: Asker, stream: Stream) -> Iterator[None]:
        """Count a call.  Raises Overloaded."""
        account = asker.key.access_key
        self._shares.check(account)
        self._shares.add(account)
        self._calls[stream] = None
        try:
            yield
        finally:
            del self._calls[stream]
            self._shares.add(account, -1)


def _frame(settings: definition.Settings) -> bytes:
    return service.TelemetryCommand(status=OK, settings=settings).SerializeToString()


def _kind_of(number: int) -> int:
    """A client type that is served.  Raises Refusal."""
    if number in (definition.LITE_PUSH_CONSUMER, definition.LITE_SIMPLE_CONSUMER):
        raise no_lite_topics()
    if number not in _KINDS:
        rule = "PRODUCER, PUSH_CONSUMER, SIMPLE_CONSUMER or PULL_CONSUMER"
        raise broken(Code.UNRECOGNIZED_CLIENT_TYPE, "client_type", number, rule)
    return number


async def _first_of(*waits: Awaitable[None]) -> None:
    """Return, or raise, when the first of these ends; the others end with it."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
