"""Requests of other brokers: register, again and again, and unregister.

Only those that brokersAllowed names may: whoever registers decides where clients send.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

from rmqlite.features.name_server.service import KeyValueCalls
from rmqlite.kernel.config.addresses import parse_allowed
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.service.access import CALLER, Caller, host_of
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.service.turns import done_in_turns
from rmqlite.protocols.remoting.bytes.command import Command, ResponseCode
from rmqlite.protocols.remoting.bytes.names import FieldError
from rmqlite.protocols.remoting.bytes.registration import (
    BODY_BYTES_MAX,
    Registration,
    crc_of,
    decode_packed,
    decode_plain,
    inflated,
)
from rmqlite.protocols.remoting.bytes.requests import name_server as codes
from rmqlite.protocols.remoting.bytes.requests.broker import KvTable
from rmqlite.protocols.remoting.bytes.requests.groups import TableVersionBody
from rmqlite.protocols.remoting.bytes.requests.name_server import (
    BrokerAtName,
    RegisteredAnswer,
    RegistrationFields,
    TopicsVersion,
)
from rmqlite.protocols.remoting.bytes.shapes import read_body
from rmqlite.protocols.remoting.calls import Call, CodeRefusal, answers
from rmqlite.protocols.remoting.guard import PROTOCOL
from rmqlite.protocols.remoting.large_bodies import large_body
from rmqlite.protocols.remoting.registry import MASTER, Registrant, Registry, are_equal

VERSION_MIN: Final = 37
"""RocketMQ 3.0.11: older brokers send another body."""
VERSION_BYTES_MAX: Final = 1_024
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[0-9a-zA-Z._-]+):[0-9]{1,5}")


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
