"""What a standby answers: what clients ask the address that they were given, and not the route's.

It asks its master, as the client that has asked: so a route has the master's queues, its topic is
made there on demand, and the client's signature counts.  The answer names the master, where the
client sends and receives from then on; whatever else it asks here is refused.
"""

from __future__ import annotations

from typing import Any, Final

import grpc
import grpc.aio

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.words.errors import NotMaster
from rmqlite.protocols.grpc.calls import Context, Enter, Handler, one_answer
from rmqlite.protocols.grpc.in_flight import InFlight
from rmqlite.protocols.grpc.to_master import channel_to_master
from rmqlite.protocols.rocketmq_v2.addresses import check_endpoints, one_endpoint
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import RocketmqRpc
from rmqlite.protocols.rocketmq_v2.calls import Reading, asker_of, refusing

ANSWER_S: Final = 2.5
"""Clients give up after 3 seconds."""
ANSWER_BYTES_MAX: Final = 16 << 20
_FORWARDED: Final = ("x-mq-", "authorization")
"""How the names of metadata begin that say who asks."""


class Standby:
    """The calls that are forwarded.  end_forwarding() ends the connection to the master."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._channel: grpc.aio.Channel | None = None

    def handlers(self, decoding: Reading, in_flight: InFlight, enter: Enter) -> dict[str, Handler]:
        """By path."""
        return {
            rpc.path: self._handler(rpc, decoding, in_flight, enter)
            for rpc in (rpcs.QUERY_ROUTE, rpcs.RECALL_MESSAGE)
        }

    async def end_forwarding(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    def _handler(
        self, rpc: RocketmqRpc[Any, Any], decoding: Reading, in_flight: InFlight, enter: Enter
    ) -> Handler:
        async def answer(data: bytes, context: Context) -> bytes:
            asker_of(context)
            request = await decoding.read(rpc, rpc.decode, data)
            if rpc is rpcs.QUERY_ROUTE:
                check_endpoints(request.endpoints)
                host, _, port = self._masters_address(request.endpoints).rpartition(":")
                request.endpoints.CopyFrom(one_endpoint(host.strip("[]"), int(port)))
            return await self._asked(rpc.path, request.SerializeToString(), context)

        return one_answer(rpc.path, answer, in_flight, enter, refusing(rpc))

    async def _asked(self, path: str, data: bytes, context: Context) -> bytes:
        """The master's answer.  Raises NotMaster if there is none."""
        if self._channel is None:
            self._channel = channel_to_master(self._config, ANSWER_BYTES_MAX)
        metadata = [
            (key, value)
            for key, value in context.invocation_metadata() or ()
            if key.startswith(_FORWARDED)
        ]
        call: Any = self._channel.unary_unary(path)
        try:
            answer: bytes = await call(data, metadata=metadata, timeout=ANSWER_S)
        except grpc.aio.AioRpcError as error:
            raise NotMaster(self._config.master_address) from error
        return answer

    def _masters_address(self, asked: rpcs.definition.Endpoints) -> str:
        """For the kind of port by which the client has come.

        masterAddress names one of the two; the other one is taken to have this broker's number.
        """
        config = self._config
        address = config.master_address.removeprefix("tls://")
        if not config.grpc_tls_port:
            return address
        is_tls = config.grpc_tls_port in [each.port for each in asked.addresses]
        if is_tls == (address != config.master_address):
            return address
        port = config.grpc_tls_port if is_tls else config.grpc_port
        return f"{address.rpartition(':')[0]}:{port}"
