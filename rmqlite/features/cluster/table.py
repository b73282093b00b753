"""The table of topics that this broker registers, made once for all name servers."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.service.turns import done_in_turns
from rmqlite.kernel.tables.topics import WRITE
from rmqlite.protocols.remoting.bytes.registration import (
    RegisteredTopic,
    Registration,
    compressed,
    crc_of,
    encode_packed,
    encode_plain,
)
from rmqlite.protocols.remoting.bytes.requests.groups import TableVersionBody


class EncodedTopics(NamedTuple):
    """topics: the names in it.  crc: of the body, as REGISTER_BROKER wants it."""

    version: TableVersionBody
    topics: frozenset[str]
    body: bytes
    crc: int


class RegisteredTable:
    """The broker's topics as a body of REGISTER_BROKER."""

    def __init__(self, config: BrokerConfig, broker: Broker) -> None:
        self._config = config
        self._broker = broker
        self._is_standby = config.broker_role == "SLAVE"
        self._encoded: EncodedTopics | None = None
        self._encoding = asyncio.Lock()

    @property
    def version(self) -> TableVersionBody:
        """Another one for each change.

        While the disk is full, nobody may write to the topics: that is another table, so its time
        is a millisecond later.  The counter moves with each change of a topic, so no two tables
        have the same version.  A standby registers no topics: those of a name are its master's.
        """
        if self._is_standby:
            return TableVersionBody()
        version = self._broker.topics.version
        is_full = self._broker.retention.is_disk_full
        return TableVersionBody(version.changed_at_ms + is_full, version.counter)

    async def encoded(self) -> EncodedTopics:
        """The table as it is now."""
        async with self._encoding:
            if self._encoded is None or self._encoded.version != self.version:
                self._encoded = await self._encode()
            return self._encoded

    async def _encode(self) -> EncodedTopics:
        mask = ~WRITE if self._broker.retention.is_disk_full else ~0
        version, infos = self.version, self._topics()
        topics = {
            info.topic: RegisteredTopic(info.read_queues, info.write_queues, info.perm & mask)
            for info in infos
        }
        registration = Registration(version, topics)
        if self._config.compressed_register:
            packed = await done_in_turns(encode_packed(registration))
            body = await asyncio.to_thread(compressed, packed)
        else:
            body = await done_in_turns(encode_plain(registration))
        return EncodedTopics(version, frozenset(topics), body, crc_of(body))

    def _topics(self) -> list[TopicInfo]:
        """With the two topics to which RocketMQ's tools send in order to measure a broker."""
        if self._is_standby:
            return []
        topics, config = self._broker.topics, self._config
        probed = [topics.probed(name) for name in (config.broker_name, config.cluster_name)]
        return [*[info for info in probed if info is not None], *topics.all()]
