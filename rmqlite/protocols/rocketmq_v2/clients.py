"""Who is there: the clients of this protocol, what they have said, and their Telemetry calls.

A client is known from the first settings, heartbeat or receive on for which its account had the
right, whichever comes first: after a restart of the broker some clients receive for ten minutes
before they describe themselves again.  It is forgotten when it says goodbye, or when it is silent
and has no Telemetry call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rmqlite.kernel.requests.groups import Subscription
from rmqlite.kernel.tables.shares import AccountShares
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.limits import SUBSCRIPTIONS_MAX
from rmqlite.protocols.grpc.calls import Context
from rmqlite.protocols.grpc.in_flight import ANSWERING
from rmqlite.protocols.rocketmq_v2.calls import ClientKey

FRAMES_MAX: Final = 64
FRAMES_BYTES_MAX: Final = 8 << 20
"""How much waits for a client that does not read: a question about a transaction has its message
in it.  A single frame may be longer."""
AGAIN_S: Final = 1.0
AGAIN_MAX: Final = 30
"""How often, and how many times, a frame is written again."""
CLIENTS_MAX: Final = 20_000
NAMES_MAX: Final = 200_000
"""Topics that all clients together send to or subscribe to: 300 bytes each."""
SILENT_MS_MAX: Final = 35_000
"""A client without a Telemetry call is gone after a longer silence: it has missed three
heartbeats."""


class Stream:
    """Frames in the order in which they came; many may put them, one task writes them."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._answering = ANSWERING.get()
        self._woken = asyncio.Event()
        self._again: asyncio.TimerHandle | None = None
        """The next repetition of a frame."""
        self.is_open = True

    def put(self, frame: bytes) -> bool:
        """Write a frame later; False if it never will be: the call is over, or nobody reads."""
        is_full = len(self._frames) >= FRAMES_MAX or self._bytes + len(frame) > FRAMES_BYTES_MAX
        if not self.is_open or (self._bytes and is_full) or not self._has_room(len(frame)):
            return False
        self._frames.append(frame)
        self._count(len(frame))
        self._woken.set()
        return True

    def repeat(self, frame: bytes, is_needed: Callable[[], bool]) -> None:
        """Write a frame again and again while it is needed, instead of the one until now."""
        self._repeat_later(frame, is_needed, AGAIN_MAX)

    def close(self) -> None:
        """Take no more frames; write_to() returns when it has written those that wait."""
        self.is_open = False
        self._end_repetition()
        self._woken.set()

    async def write_to(self, context: Context) -> None:
        """Write frames until close()."""
        while True:
            while self._frames:
                await self._write_next(context)
            if not self.is_open:
                return
            self._woken.clear()
            await self._woken.wait()

    # ---- inside

    async def _write_next(self, context: Context) -> None:
        size = len(self._frames[0])
        await context.write(self._frames.popleft())
        self._count(-size)

    def _has_room(self, size: int) -> bool:
        return self._answering is None or self._answering.has_room(size)

    def _count(self, more: int) -> None:
        """More bytes wait for the client, or less."""
        self._bytes += more
        if self._answering is not None:
            self._answering.hold(self._bytes)

    def _repeat_later(self, frame: bytes, is_needed: Callable[[], bool], left: int) -> None:
        self._end_repetition()
        if left and self.is_open and is_needed():
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(AGAIN_S, self._repeat, frame, is_needed, left)

    def _repeat(self, frame: bytes, is_needed: Callable[[], bool], left: int) -> None:
        if is_needed():
            self.put(frame)
        self._repeat_later(frame, is_needed, left - 1)

    def _end_repetition(self) -> None:
        """The loop forgets the frame at once."""
        if self._again is not None:
            self._again.cancel()
            self._again = None


@dataclass(slots=True, eq=False)
class Client:
    """kind: a client type of the protocol, 0 before its settings.  group: "" for a producer.

    has_begun: it has sent, received or sent a heartbeat, so it is past its start.
    """

    key: ClientKey
    seen_ms: int
    kind: int = 0
    group: str = ""
    topics: frozenset[str] = frozenset()
    stream: Stream | None = None
    has_begun: bool = False
    subscriptions: tuple[Subscription, ...] = ()
    _by_topic: dict[str, Subscription] = field(default_factory=dict)

    @property
    def names(self) -> int:
        return len(self.topics) + len(self.subscriptions)

    def talk_on(self, stream: Stream) -> None:
        """This is its Telemetry call from now on; one that it had before ends."""
        if self.stream is not None and self.stream is not stream:
            self.stream.close()
        self.stream = stream

    def hang_up(self, stream: Stream) -> None:
        """This call has ended; it may have another one by now."""
        if self.stream is stream:
            self.stream = None


class RocketmqClients:
    """All clients of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._clients: dict[ClientKey, Client] = {}
        self._shares = AccountShares("CLIENTS_MAX", CLIENTS_MAX)
        self._names = AccountShares("NAMES_MAX", NAMES_MAX)
        self._producers: dict[str, dict[ClientKey, Client]] = {}
        """By the topics that they send to; the one that was asked last comes last."""

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def names(self) -> int:
        """How many topics of all clients are remembered."""
        return self._names.total

    def get(self, key: ClientKey) -> Client | None:
        return self._clients.get(key)

    def check_room(self, key: ClientKey) -> None:
        """Raises Overloaded for a client that is one too many."""
        if key not in self._clients:
            self._shares.check(key.access_key)

    def seen(self, key: ClientKey) -> Client:
        """A client that makes a call now, for which it has the right.

        Raises Overloaded for one too many.
        """
        client = self._clients.get(key)
        if client is None:
            self.check_room(key)
            client = self._clients[key] = Client(key, 0)
            self._shares.add(key.access_key)
        client.seen_ms = self._clock.now_ms()
        return client

    def describe(
        self,
        client: Client,
        *,
        kind: int,
        group: str = "",
        topics: Collection[str] = (),
        subscriptions: Iterable[Subscription] = (),
    ) -> None:
        """A client has said what it is.  Raises Overloaded: then it stays as it was."""
        by_topic = {each.topic: each for each in subscriptions}
        named = frozenset(topics)
        added = len(named) + len(by_topic) - client.names
        self._names.check(client.key.access_key, added)
        self._count(client, added)
        self._unlist(client, client.topics - named)
        for topic in named - client.topics:
            self._producers.setdefault(topic, {})[client.key] = client
        client.kind, client.group, client.topics = kind, group, named
        self._subscribe(client, by_topic)

    def begun(self, key: ClientKey) -> None:
        """A client makes a call that it makes only after its start."""
        client = self._clients.get(key)
        if client is not None:
            client.has_begun = True

    def has_begun(self, key: ClientKey) -> bool:
        client = self._clients.get(key)
        return client is not None and client.has_begun

    def subscribe(self, key: ClientKey, group: str, wanted: Subscription) -> None:
        """A client receives with this subscription, which its next heartbeat then has."""
        if key not in self._clients and self._shares.refusal(key.access_key):
            return
        client = self.seen(key)
        is_same_group = client.group == group
        if is_same_group and client._by_topic.get(wanted.topic) == wanted:
            return
        before = client._by_topic if is_same_group else {}
        by_topic = {**before, wanted.topic: wanted}
        added = len(by_topic) - len(client.subscriptions)
        if len(by_topic) > SUBSCRIPTIONS_MAX or self._names.refusal(key.access_key, added):
            # It receives all the same; lists of who reads what lack it.
            return
        self._count(client, added)
        client.group = group
        self._subscribe(client, by_topic)

    def remove(self, client: Client) -> None:
        if self._clients.get(client.key) is not client:
            return
        del self._clients[client.key]
        self._shares.add(client.key.access_key, -1)
        self._names.add(client.key.access_key, -client.names)
        self._unlist(client, client.topics)
        if client.stream is not None:
            client.stream.close()

    def has_producer(self, topic: str) -> bool:
        return any(_can_be_asked(each) for each in self._producers.get(topic, {}).values())

    def ask_producer(self, topic: str, frame: bytes) -> bool:
        """Write a frame to one producer of a topic, to each in turn; False if none can take it."""
        known = self._producers.get(topic, {})
        for key, client in list(known.items()):
            if client.stream is not None and client.stream.put(frame):
                known[key] = known.pop(key)
                return True
        return False

    def gone(self) -> list[Client]:
        """Remove the clients that are silent and have no Telemetry call."""
        before_ms = self._clock.now_ms() - SILENT_MS_MAX
        gone = [
            each
            for each in self._clients.values()
            if each.stream is None and each.seen_ms < before_ms
        ]
        for client in gone:
            self.remove(client)
        return gone

    # ---- inside

    def _count(self, client: Client, added: int) -> None:
        """Names of a client that was removed meanwhile do not count."""
        if self._clients.get(client.key) is client:
            self._names.add(client.key.access_key, added)

    def _subscribe(self, client: Client, by_topic: Mapping[str, Subscription]) -> None:
        client._by_topic = dict(by_topic)
        client.subscriptions = tuple(by_topic.values())

    def _unlist(self, client: Client, topics: Iterable[str]) -> None:
        for topic in topics:
            known = self._producers.get(topic, {})
            if known.get(client.key) is client:
                del known[client.key]
                if not known:
                    del self._producers[topic]


def _can_be_asked(client: Client) -> bool:
    return client.stream is not None and client.stream.is_open
