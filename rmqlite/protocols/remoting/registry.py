"""The other brokers that have registered at this name server, in memory only.

A broker registers its whole table of topics again and again, and is gone when it has not done so
for 120 s, or when its connection closes (cluster reference §1.4).  A broker's name may have a
master, id 0, and slaves; the topics are the master's, and stay while any of them is there.  This
name server's own broker is one of its name without a registration: as the master, or as a standby.

Unlike in RocketMQ a table removes the topics that it lacks, and no second address takes the name
of a living master.  The registry knows no protocol: a connection is only compared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rmqlite.kernel.requests.broker import RegisteredBroker
from rmqlite.kernel.tables.topics import READ, WRITE
from rmqlite.kernel.words.errors import Overloaded
from rmqlite.protocols.remoting.bytes.fields import FieldError
from rmqlite.protocols.remoting.bytes.registration import RegisteredTopic, Registration
from rmqlite.protocols.remoting.bytes.requests.groups import TableVersionBody

MASTER: Final = 0
STANDBY: Final = 1
EXPIRY_MS: Final = 120_000
BROKERS_MAX: Final = 500
"""Addresses."""
TOPICS_MAX: Final = 500_000
"""Topics of all brokers together."""
NAME_CHARS_MAX: Final = 32 << 20
"""The length of the names of all these topics."""
_KINDS_MAX: Final = 4_096
Digest = tuple[object, ...]
"""Two bodies with equal digests are the same."""
Addresses = tuple[tuple[int, str], ...]
"""By id of the broker."""
Topics = Mapping[str, RegisteredTopic]
log = logging.getLogger(__name__)


class Registrant(NamedTuple):
    """What a broker says of itself."""

    name: str
    cluster: str
    broker_id: int
    address: str
    ha_address: str = ""

    def __str__(self) -> str:
        return f"{self.name} (id {self.broker_id})"

    @property
    def has_log(self) -> bool:
        """Does it say that RocketMQ's slaves get a log of it?  RocketMQ's brokers all do."""
        return self.ha_address not in ("", self.address)


@dataclass(slots=True)
class _Entry:
    """A registered address.  digest: of the last body.  is_whole: was that a whole table?"""

    broker: Registrant
    connection: object
    at_ms: int
    digest: Digest
    version: TableVersionBody
    is_whole: bool


@dataclass(slots=True)
class NamedBroker:
    """All addresses of a name, and its topics.

    may_write: None: as registered; else a tool has said so, until the next other table.  own: the
    name server's own broker, which has this name, too.
    """

    name: str
    entries: dict[int, _Entry] = field(default_factory=dict)
    topics: dict[str, RegisteredTopic] = field(default_factory=dict)
    may_write: bool | None = None
    cluster: str = ""
    addresses: Addresses = ()
    own: Registrant | None = None

    def topic(self, name: str) -> RegisteredTopic | None:
        """A topic as routes show it."""
        topic = self.topics.get(name)
        if topic is None or self.may_write is None:
            return topic
        perm = topic.perm | READ | WRITE if self.may_write else topic.perm & ~WRITE
        return topic._replace(perm=perm)

    def note(self) -> None:
        """Addresses have changed."""
        brokers = [each.broker for each in self.entries.values()]
        brokers += [self.own] if self.own else []
        brokers.sort(key=lambda each: each.broker_id)
        self.addresses = tuple([(each.broker_id, each.address) for each in brokers])
        self.cluster = (self.own or brokers[0]).cluster if brokers else ""


class Registry:
    """own: the broker to which this name server belongs, which registers nowhere here."""

    def __init__(self, own: Registrant, now_ms: Callable[[], int]) -> None:
        self._own = own
        self._now_ms = now_ms
        self._entries: dict[str, _Entry] = {}
        """By address."""
        self.own_name = NamedBroker(own.name, own=own)
        self.own_name.note()
        self._named = {own.name: self.own_name}
        self._kinds: dict[RegisteredTopic, RegisteredTopic] = {}
        """Most topics have the same settings: one object for all of them."""
        self._topics = self._chars = 0
        self._looks_at_ms = 0
        """No entry expires before that."""

    # ---- what brokers ask

    def is_own(self, broker: Registrant) -> bool:
        return broker[:4] == self._own[:4]

    def check(self, broker: Registrant, connection: object) -> None:
        """May it register?  Raises FieldError, Overloaded."""
        self.expire()
        own, name, address = self._own, broker.name, broker.address
        if address == own.address and not self.is_own(broker):
            raise FieldError("brokerAddr", address, f"another one: it is that of {own}")
        is_standby = own.broker_id != MASTER and broker[:3] == own[:3]
        if is_standby and address != own.address:
            rule = f"another one than that of {own} at {own.address}"
            raise FieldError("brokerId", broker.broker_id, rule)
        if name == own.name and broker.broker_id != MASTER and broker.has_log:
            self._check_slave(broker)
        master = self.master_of(name)
        if master is not None and broker.broker_id == MASTER and master.address != address:
            rule = f"{master.address}, where {master} is alive; or another brokerName"
            raise FieldError("brokerAddr", address, rule)
        for entry in self._named[name].entries.values() if name in self._named else ():
            if entry.broker.address != address and entry.broker.cluster != broker.cluster:
                rule = f"that of {entry.broker} at {entry.broker.address}, {entry.broker.cluster}"
                raise FieldError("clusterName", broker.cluster, rule)
        before = self._entries.get(address)
        if before is None and len(self._entries) >= BROKERS_MAX:
            raise Overloaded("BROKERS_MAX of the name server", BROKERS_MAX)
        if before and before.broker.name != name and before.connection is not connection:
            rule = f"{before.broker.name}, which is alive at {address}; or another brokerAddr"
            raise FieldError("brokerName", name, rule)

    def _check_slave(self, slave: Registrant) -> None:
        """May a slave of RocketMQ register beside the own broker, and its standby?"""
        master = self.master_of(slave.name)
        if master is not None and not master.has_log:
            rule = f"{MASTER}: {master} takes no slaves without haListenPort"
            raise FieldError("brokerId", slave.broker_id, rule)
        taken = [each for each, address in self.own_name.addresses if address != slave.address]
        if slave.broker_id in taken:
            rule = f"one that nobody has, such as {max(taken) + 1}"
            raise FieldError("brokerId", slave.broker_id, rule)

    def repeats(self, broker: Registrant, digest: Digest, connection: object) -> bool:
        """Is there nothing to be read in its body?  Then it has now registered again."""
        if self.is_own(broker):
            return True
        entry = self._entries.get(broker.address)
        if entry is None or entry.broker != broker or not entry.is_whole or entry.digest != digest:
            return False
        entry.at_ms, entry.connection = self._now_ms(), connection
        return True

    def register(
        self, broker: Registrant, digest: Digest, table: Registration, connection: object
    ) -> None:
        """Raises FieldError, Overloaded: then nothing has changed."""
        self.check(broker, connection)
        named = self._named.get(broker.name)
        before, kept = self._entries.get(broker.address), named.topics if named else {}
        is_part = _is_part(broker.name, table.topics, kept)
        is_new = before is None or before.broker[:3] != broker[:3]
        is_other = is_new or before is None or not are_equal(before.version, table.version)
        takes = broker.broker_id == MASTER and (is_other or not before or not before.is_whole)
        topics = {**kept, **table.topics} if is_part else table.topics
        if takes:
            self._check_room(topics, kept)
        for former in (before, self._at(broker.name, broker.broker_id)):
            if is_new and former is not None and former.broker.address in self._entries:
                self._remove(former, f"it is now {_text(broker)}")
        named = self._named.setdefault(broker.name, NamedBroker(broker.name))
        if takes:
            if is_other and not is_part:
                named.may_write = None
            self._put(named, topics)
        if is_new:
            log.info("a broker has registered %s topics=%d", _text(broker), len(table.topics))
        entry = _Entry(broker, connection, self._now_ms(), digest, table.version, not is_part)
        self._entries[broker.address] = named.entries[broker.broker_id] = entry
        named.note()

    def unregister(self, name: str, broker_id: int, address: str) -> None:
        """Its successor at another address stays."""
        entry = self._at(name, broker_id)
        if entry is not None and entry.broker.address == address:
            self._remove(entry, "it said so")

    def compare(
        self, broker: Registrant, version: TableVersionBody, connection: object
    ) -> TableVersionBody | None:
        """The version of the table in force; None if it is not whole, or none.

        An equal one counts as a registration.
        """
        self.expire()
        if self.is_own(broker):
            return version
        entry = self._entries.get(broker.address)
        if entry is None or entry.broker[:4] != broker[:4] or not entry.is_whole:
            return None
        if are_equal(entry.version, version):
            # The broker may have come back on another connection: the end of the old one is
            # nothing to this entry any more.
            entry.at_ms, entry.connection = self._now_ms(), connection
        return entry.version

    def master_of(self, name: str) -> Registrant | None:
        """The master that lives under a name."""
        if name == self._own.name and self._own.broker_id == MASTER:
            return self._own
        entry = self._at(name, MASTER)
        return None if entry is None else entry.broker

    # ---- who is gone

    def ended(self, connection: object) -> None:
        """A connection is closed: who registered on it last is gone."""
        for entry in [each for each in self._entries.values() if each.connection is connection]:
            self._remove(entry, "its connection is closed")

    def expire(self) -> None:
        """Remove who has not registered for too long."""
        now_ms = self._now_ms()
        if now_ms < self._looks_at_ms:
            return
        for entry in [each for each in self._entries.values() if now_ms >= each.at_ms + EXPIRY_MS]:
            self._remove(entry, f"it has not registered for {EXPIRY_MS // 1000} s")
        self._looks_at_ms = min([each.at_ms for each in self._entries.values()], default=now_ms)
        self._looks_at_ms += EXPIRY_MS if self._entries else 0

    # ---- what clients and tools ask

    def named(self) -> Iterable[NamedBroker]:
        """All names but that of the own broker, as they have come."""
        self.expire()
        return [each for each in self._named.values() if each.own is None]

    def queues_of(self, topic: str) -> dict[str, int]:
        """How many queues of a topic consumers read at each registered broker."""
        found = {named.name: named.topic(topic) for named in self.named()}
        return {
            name: row.read_queues
            for name, row in found.items()
            if row is not None and row.perm & READ
        }

    def rows(self) -> tuple[RegisteredBroker, ...]:
        """All addresses, for people."""
        return tuple(
            RegisteredBroker(
                named.name, key, each.broker.address, named.cluster, len(named.topics), each.at_ms
            )
            for named in [*self.named(), self.own_name]
            for key, each in sorted(named.entries.items())
        )

    def set_writable(self, name: str, *, may_write: bool) -> int:
        """Until its next other table; the number of topics that it concerns."""
        named = self._named.get(name)
        if named is None:
            return 0
        named.may_write = may_write
        return len(named.topics)

    def forget_topic(self, topic: str, cluster: str) -> None:
        """Remove it from the tables of all brokers, or of those of a cluster."""
        for named in self._named.values():
            if topic in named.topics and cluster in ("", named.cluster):
                del named.topics[topic]
                self._topics -= 1
                self._chars -= len(topic)

    # ---- inside

    def _at(self, name: str, broker_id: int) -> _Entry | None:
        named = self._named.get(name)
        return None if named is None else named.entries.get(broker_id)

    def _check_room(self, topics: Topics, before: Topics) -> None:
        if self._topics + len(topics) - len(before) > TOPICS_MAX:
            raise Overloaded("TOPICS_MAX of the name server", TOPICS_MAX)
        if self._chars + _chars_of(topics) - _chars_of(before) > NAME_CHARS_MAX:
            raise Overloaded("NAME_CHARS_MAX of the name server", NAME_CHARS_MAX)

    def _put(self, named: NamedBroker, topics: Topics) -> None:
        """Give a name this table."""
        self._topics += len(topics) - len(named.topics)
        self._chars += _chars_of(topics) - _chars_of(named.topics)
        if len(self._kinds) > _KINDS_MAX:
            self._kinds.clear()
        one = self._kinds.setdefault
        named.topics = {name: one(topic, topic) for name, topic in topics.items()}

    def _remove(self, entry: _Entry, reason: str) -> None:
        log.info("a registered broker is gone %s reason=%s", _text(entry.broker), reason)
        named = self._named[entry.broker.name]
        del self._entries[entry.broker.address]
        del named.entries[entry.broker.broker_id]
        named.note()
        # Without a master, the topics of the own broker's name are those that it has a copy of.
        if not named.entries and named.own is None:
            self._put(named, {})
            del self._named[named.name]


def are_equal(one: TableVersionBody, other: TableVersionBody) -> bool:
    """As RocketMQ compares: there is no "newer"."""
    return (one.timestamp, one.counter) == (other.timestamp, other.counter)


def _is_part(name: str, topics: Topics, kept: Topics) -> bool:
    """Are there others?  RocketMQ's broker sends a topic that was changed by itself, under the
    version of its next whole table, which always has a topic of the broker's own name."""
    return len(topics) == 1 or (bool(topics) and name in kept and name not in topics)


def _chars_of(topics: Topics) -> int:
    return sum(map(len, topics))


def _text(broker: Registrant) -> str:
    return f"name={broker.name} id={broker.broker_id} address={broker.address}"
