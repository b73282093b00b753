"""The name server: routes, clusters and topics, and what tools ask and keep there.

Other brokers register here, again and again, and unregister.  Only those that brokersAllowed names
may: whoever registers decides where clients send.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from rmqlite.features.name_server.service import KeyValueCalls
from rmqlite.kernel import Steps
from rmqlite.kernel.config.addresses import parse_allowed
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.service.access import CALLER, Caller, host_of
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.service.turns import done_in_turns
from rmqlite.kernel.tables.topics import WRITE
from rmqlite.kernel.words.errors import InvalidValue, TopicUnknown
from rmqlite.kernel.words.names import AUTO_CREATE_TOPIC, is_system
from rmqlite.protocols.remoting.bytes.command import Command, ResponseCode
from rmqlite.protocols.remoting.bytes.fields import FieldError, Nothing
from rmqlite.protocols.remoting.bytes.registration import (
    BODY_BYTES_MAX,
    RegisteredTopic,
    Registration,
    crc_of,
    decode_packed,
    decode_plain,
    inflated,
)
from rmqlite.protocols.remoting.bytes.requests import name_server as codes
from rmqlite.protocols.remoting.bytes.requests.broker import KvTable, read_settings, write_settings
from rmqlite.protocols.remoting.bytes.requests.groups import TableVersionBody
from rmqlite.protocols.remoting.bytes.requests.name_server import (
    AddedAnswer,
    BrokerAtName,
    BrokerData,
    ClusterInfo,
    KvKey,
    KvNamespace,
    KvPair,
    OfBroker,
    OfCluster,
    QueueData,
    RegisteredAnswer,
    RegistrationFields,
    RouteQuery,
    TopicDelete,
    TopicsVersion,
    ValueAnswer,
    WipedAnswer,
    written_route,
)
from rmqlite.protocols.remoting.bytes.requests.topics import TopicList
from rmqlite.protocols.remoting.bytes.shapes import read_body, write_body
from rmqlite.protocols.remoting.calls import PROTOCOL, Call, CodeRefusal, answers, large_body
from rmqlite.protocols.remoting.registry import (
    BROKERS_MAX,
    MASTER,
    Addresses,
    Registrant,
    Registry,
    are_equal,
)

VERSION_MIN: Final = 37
"""RocketMQ 3.0.11: older brokers send another body."""
VERSION_BYTES_MAX: Final = 1_024
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[0-9a-zA-Z._-]+):[0-9]{1,5}")
_AUTO_CREATE_PERM = 7
"""Read, write, and inherit: producers may take its queues for a topic that does not exist yet."""
_ORDER: Final = "orderMessageEnable"
_SWITCH: Final = ("false", "true")
_TOPICS_A_STEP: Final = 20_000
"""Names that are added to others within 2 ms."""
log = logging.getLogger(__name__)


class RegistrationRequests:
    """Requests of other brokers."""

    def __init__(self, config: BrokerConfig, service: Service, registry: Registry) -> None:
        self._allowed = parse_allowed(config.brokers_allowed)
        self._service = service
        self._registry = registry
        self._reading = asyncio.Lock()
        """One table at a time is read, in the order in which they came."""

    @answers(codes.REGISTER_BROKER)
    async def register(self, call: Call[RegistrationFields]) -> Command:
        """Take a broker's table of topics, or note that it is alive."""
        self._check_allowed(call)
        asked = call.asked()
        broker = _registrant(
            asked.broker_name, asked.cluster_name, asked.broker_id, asked.broker_addr
        )._replace(ha_address=asked.ha_server_addr)
        body = call.command.body
        if call.command.version < VERSION_MIN:
            raise FieldError("version", call.command.version, f"at least {VERSION_MIN}")
        if len(body) > BODY_BYTES_MAX:
            raise FieldError("body", f"{len(body)} bytes", f"at most {BODY_BYTES_MAX} bytes")
        crc = crc_of(body)
        if asked.body_crc32 not in (0, crc):
            raise CodeRefusal(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        self._registry.check(broker, call.connection)
        digest = crc, len(body), asked.compressed
        if not self._registry.repeats(broker, digest, call.connection):
            async with self._reading:
                table = await _read(body, is_compressed=asked.compressed)
                if call.connection.is_open:
                    self._registry.register(broker, digest, table, call.connection)
        master = self._registry.master_of(broker.name) if broker.broker_id != MASTER else None
        about = RegisteredAnswer()
        if master is not None:
            about = RegisteredAnswer(master.ha_address, master.address)
        orders = await self._service[KeyValueCalls].orders()
        answer = b"" if orders is None else await large_body(KvTable({}), "table", orders.items())
        return call.done(about, answer)

    @answers(codes.UNREGISTER_BROKER)
    async def unregister(self, call: Call[BrokerAtName]) -> Command:
        self._check_allowed(call)
        asked = call.asked()
        # Behind a table of the same broker that is being read.
        async with self._reading:
            self._registry.unregister(asked.broker_name, asked.broker_id, asked.broker_addr)
        return call.done()

    @answers(codes.QUERY_DATA_VERSION)
    async def version(self, call: Call[BrokerAtName]) -> Command:
        """Has a broker's table changed since it has registered?"""
        self._check_allowed(call)
        asked, body = call.asked(), call.command.body
        broker = _registrant(
            asked.broker_name, asked.cluster_name, asked.broker_id, asked.broker_addr
        )
        if len(body) > VERSION_BYTES_MAX:
            raise FieldError("body", f"{len(body)} bytes", f"at most {VERSION_BYTES_MAX} bytes")
        version = read_body(TableVersionBody, body)
        kept = self._registry.compare(broker, version, call.connection)
        is_changed = kept is None or not are_equal(kept, version)
        return call.done(TopicsVersion(is_changed), kept or b"")

    def _check_allowed(self, call: Call[Any]) -> None:
        """Raises Refusal, AccessDenied."""
        if self._allowed.is_empty:
            remark = "brokersAllowed is empty: no other broker may register at this name server"
            raise CodeRefusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        address = call.connection.address
        caller = CALLER.get() or Caller(None, address, PROTOCOL)
        if not self._allowed.holds(host_of(address), caller.access_key):
            who = f"accessKey={caller.access_key}" if caller.access_key else host_of(address)
            rule = f"brokersAllowed does not name {who}"
            raise self._service.access.denied(caller, rule, call.command.code)


def _registrant(name: str, cluster: str, broker_id: int, address: str) -> Registrant:
    """Raises FieldError for what no client could connect to, or no log could show."""
    for field, text in (("brokerName", name), ("clusterName", cluster)):
        if not text.isprintable():
            raise FieldError(field, text, "a name without control characters")
    if not _ADDRESS.fullmatch(address):
        raise FieldError("brokerAddr", address, "an address and a port, such as 10.0.0.7:10911")
    if broker_id < MASTER:
        raise FieldError("brokerId", broker_id, "0 for a master, or more for a slave")
    return Registrant(name, cluster, broker_id, address)


async def _read(body: bytes, *, is_compressed: bool) -> Registration:
    """Raises FieldError."""
    if not body:
        return Registration(TableVersionBody(), {})
    if not is_compressed:
        return await done_in_turns(decode_plain(body))
    return await done_in_turns(decode_packed(await asyncio.to_thread(inflated, body)))


class NameServer:
    """Requests to the name server.  own: this broker."""

    def __init__(
        self, config: BrokerConfig, service: Service, own: Registrant, registry: Registry
    ) -> None:
        self._config = config
        self._service = service
        self._own = own
        self._registry = registry
        self._may_write = True
        """False: routes say to producers that they may not send here, until the next start."""

    @answers(codes.GET_ROUTEINFO_BY_TOPIC)
    async def route(self, call: Call[RouteQuery]) -> Command:
        topic = call.asked().topic
        info = await self._own_topic(topic)
        brokers, queues = [], []
        if info is not None:
            perm = info.perm if self._may_write else info.perm & ~WRITE
            row = RegisteredTopic(info.read_queues, info.write_queues, perm)
            brokers.append(_written_broker(*self._about()))
            queues.append(_written_queues(self._own.name, row))
        for named in self._registry.named():
            found = named.topic(topic)
            if found is not None:
                brokers.append(_written_broker(named.name, named.cluster, named.addresses))
                queues.append(_written_queues(named.name, found))
        if not brokers:
            raise TopicUnknown(topic)
        order = await self._service[KeyValueCalls].order_of(topic)
        return call.done(body=written_route(brokers, queues, order))

    @answers(codes.GET_BROKER_CLUSTER_INFO)
    async def cluster(self, call: Call[Nothing]) -> Command:
        brokers = {self._own.name: _data_of(*self._about())}
        clusters = {self._own.cluster: [self._own.name]}
        for named in self._registry.others():
            brokers[named.name] = _data_of(named.name, named.cluster, named.addresses)
            clusters.setdefault(named.cluster, []).append(named.name)
        info = ClusterInfo(brokers, {cluster: tuple(names) for cluster, names in clusters.items()})
        return call.done(body=info)

    @answers(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    async def topics(self, call: Call[Nothing]) -> Command:
        return await self._topics_of(call, "")

    @answers(codes.GET_TOPICS_BY_CLUSTER)
    async def topics_of_cluster(self, call: Call[OfCluster]) -> Command:
        cluster = call.asked().cluster
        known = {self._own.cluster, *[named.cluster for named in self._registry.named()]}
        if cluster not in known:
            raise CodeRefusal(ResponseCode.SYSTEM_ERROR, f"no cluster named {cluster}")
        return await self._topics_of(call, cluster)

    @answers(codes.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    async def system_topics(self, call: Call[Nothing]) -> Command:
        """Of other brokers the clusters' and the brokers' names, as RocketMQ's name server does:
        tools ask each broker for its own."""
        names = [info.topic for info in await self._service.topics.all() if is_system(info.topic)]
        others = [name for each in self._registry.named() for name in (each.cluster, each.name)]
        known = tuple(dict.fromkeys([*names, *others]))
        return call.done(body=TopicList(known, self._own.address))

    @answers(codes.DELETE_TOPIC_IN_NAMESRV)
    async def forget_topic(self, call: Call[TopicDelete]) -> Command:
        """From the tables of other brokers: those of this one are its own topics."""
        asked = call.asked()
        self._registry.forget_topic(asked.topic, asked.cluster_name)
        return call.done()

    @answers(codes.WIPE_WRITE_PERM_OF_BROKER)
    async def wipe_write_perm(self, call: Call[OfBroker]) -> Command:
        """Keep producers away: routes have no permission to write any more."""
        name = call.asked().broker_name
        return call.done(WipedAnswer(await self._set_writable(name, may_write=False)))

    @answers(codes.ADD_WRITE_PERM_OF_BROKER)
    async def add_write_perm(self, call: Call[OfBroker]) -> Command:
        """Let producers come again."""
        name = call.asked().broker_name
        return call.done(AddedAnswer(await self._set_writable(name, may_write=True)))

    @answers(codes.GET_NAMESRV_CONFIG)
    async def settings(self, call: Call[Nothing]) -> Command:
        return call.done(body=write_settings(await self._settings()))

    @answers(codes.UPDATE_NAMESRV_CONFIG)
    async def change_settings(self, call: Call[Nothing]) -> Command:
        """Change orderMessageEnable, the one setting that takes effect at once."""
        wanted = read_settings(call.command.body)
        known = await self._settings()
        for key, value in wanted.items():
            if key not in known:
                raise CodeRefusal(ResponseCode.SYSTEM_ERROR, f"{key}={value}: no such key")
            if key != _ORDER and value != known[key]:
                remark = f"{key}={value}: it is {known[key]} until the next start"
                raise CodeRefusal(ResponseCode.NO_PERMISSION, remark)
        order = wanted.get(_ORDER)
        if order not in (None, *_SWITCH):
            raise InvalidValue(_ORDER, order, "true or false")
        if order is not None:
            await self._service[KeyValueCalls].set_order(order == _SWITCH[True])
        return call.done()

    def _about(self) -> tuple[str, str, Addresses]:
        return self._own.name, self._own.cluster, self._registry.own_addresses()

    async def _topics(self, call: Call[Any]) -> Command:
        names = tuple([info.topic for info in await self._service.topics.all()])
        return call.done(body=TopicList(names))

    async def _settings(self) -> dict[str, str]:
        return {
            "listenPort": str(self._config.name_server_port),
            "rocketmqHome": str(self._config.store_path),
            "kvConfigPath": str(self._config.store_path / "config" / "kvConfig.json"),
            "productEnvName": "center",
            "clusterTest": "false",
            _ORDER: _SWITCH[await self._service[KeyValueCalls].has_order()],
        }

    async def _set_writable(self, broker_name: str, *, may_write: bool) -> int:
        """The number of topics whose routes it concerns; 0 for a name that nobody has."""
        if broker_name != self._own.name:
            return self._registry.set_writable(broker_name, may_write=may_write)
        self._may_write = may_write
        log.info("routes let producers send here: %s", _SWITCH[may_write])
        return len(await self._service.topics.all())

    async def _own_topic(self, topic: str) -> TopicInfo | None:
        """A topic of this broker, as routes have it."""
        if topic != AUTO_CREATE_TOPIC:
            calls = self._service.topics
            return await calls.info(topic) or await calls.probed(topic)
        if not self._config.auto_create_topic:
            return None
        queues = self._config.default_topic_queues
        return TopicInfo(topic, queues, queues, _AUTO_CREATE_PERM)

    async def _topics_of(self, call: Call[Any], cluster: str) -> Command:
        """All topics, or those of a cluster's brokers."""
        tables: list[Iterable[str]] = []
        if cluster in ("", self._own.cluster):
            tables.append([info.topic for info in await self._service.topics.all()])
        named = self._registry.named()
        tables += [each.topics for each in named if cluster in ("", each.cluster)]
        names = await done_in_turns(_united(tables))
        return call.done(body=await large_body(TopicList(()), "topic_list", names))


def _united(tables: Iterable[Iterable[str]]) -> Steps[list[str]]:
    """Each name once."""
    found: dict[str, None] = {}
    looked = 0
    for names in tables:
        added = dict.fromkeys(names)
        found |= added
        looked += len(added)
        if looked > _TOPICS_A_STEP:
            looked = 0
            yield
    return list(found)


def _data_of(name: str, cluster: str, addresses: Addresses) -> BrokerData:
    return BrokerData(name, dict(addresses), cluster, enable_acting_master=False)


# A route may have 500 of each: kept as they were written they take 0.4 ms, and else 8.
@lru_cache(maxsize=2 * BROKERS_MAX)
def _written_broker(name: str, cluster: str, addresses: Addresses) -> bytes:
    return write_body(_data_of(name, cluster, addresses), is_strict=True)


@lru_cache(maxsize=8 * BROKERS_MAX)
def _written_queues(name: str, topic: RegisteredTopic) -> bytes:
    read, write, perm, sys_flag = topic
    return write_body(QueueData(name, read, write, perm, sys_flag))


class KeyValueRequests:
    """Requests about values that tools keep at the name server."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @answers(codes.PUT_KV_CONFIG)
    async def put(self, call: Call[KvPair]) -> Command:
        asked = call.asked()
        await self._service[KeyValueCalls].put(asked.namespace, asked.key, asked.value)
        return call.done()

    @answers(codes.GET_KV_CONFIG)
    async def get(self, call: Call[KvKey]) -> Command:
        asked = call.asked()
        value = (await self._service[KeyValueCalls].of(asked.namespace)).get(asked.key)
        if value is None:
            remark = f"No config item, Namespace: {asked.namespace} Key: {asked.key}"
            raise CodeRefusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return call.done(ValueAnswer(value))

    @answers(codes.DELETE_KV_CONFIG)
    async def delete(self, call: Call[KvKey]) -> Command:
        asked = call.asked()
        await self._service[KeyValueCalls].delete(asked.namespace, asked.key)
        return call.done()

    @answers(codes.GET_KVLIST_BY_NAMESPACE)
    async def list(self, call: Call[KvNamespace]) -> Command:
        namespace = call.asked().namespace
        values = await self._service[KeyValueCalls].of(namespace)
        if not values:
            remark = f"No config item, Namespace: {namespace}"
            raise CodeRefusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return call.done(body=await large_body(KvTable({}), "table", values.items()))
