"""Which method answers which call of apache.rocketmq.v2; and routes, which need the port only.

A topic is always at this broker, at the address by which the client has come: a client sends to,
and receives from, the addresses that the answer names.  It has reached the broker by those of its
own request, perhaps through a proxy or a tunnel, so these are answered.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from rmqlite.features.transactions.service import TransactionCalls
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.topics import RouteRequest, TopicInfo
from rmqlite.kernel.service.access import BROKER, CALLER
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.tables.topics import READ, WRITE
from rmqlite.kernel.words.errors import AccessDenied, TopicUnknown
from rmqlite.protocols.grpc.calls import Handlers, many_answers
from rmqlite.protocols.grpc.in_flight import InFlight
from rmqlite.protocols.rocketmq_v2.addresses import answered_endpoints
from rmqlite.protocols.rocketmq_v2.bytes import rpcs, rules
from rmqlite.protocols.rocketmq_v2.bytes.codes import OK, Code, RocketmqRefusal
from rmqlite.protocols.rocketmq_v2.bytes.limits import rocketmq_limits
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import RocketmqRpc, definition, service
from rmqlite.protocols.rocketmq_v2.calls import (
    Asker,
    Many,
    One,
    Reading,
    guard_of,
    many_handler,
    no_lite_topics,
    one_handler,
    refusing,
)
from rmqlite.protocols.rocketmq_v2.clients import RocketmqClients
from rmqlite.protocols.rocketmq_v2.receiving import Pulling, Receiving
from rmqlite.protocols.rocketmq_v2.sends import (
    RocketmqSends,
    RocketmqTransactions,
    TelemetryProducers,
)
from rmqlite.protocols.rocketmq_v2.standby import Standby
from rmqlite.protocols.rocketmq_v2.telemetry import Telemetry

ANY_QUEUE: Final = -1
"""The queue of an assignment: a consumer receives from all queues of a topic."""
_PERMISSIONS: Final = {
    (False, False): definition.NONE,
    (True, False): definition.READ,
    (False, True): definition.WRITE,
    (True, True): definition.READ_WRITE,
}
"""By (may be read, may be written)."""


class Routes:
    """Requests for routes and assignments.  grpc_port: of this protocol."""

    def __init__(self, config: BrokerConfig, own: Service, grpc_port: int) -> None:
        self._config = config
        self._service = own
        self._port = grpc_port
        self._types = [
            kind
            for kind in rules.ACCEPTED_TYPES
            if config.timer_wheel_enable or kind != rules.DELAY
        ]

    async def route(
        self, request: service.QueryRouteRequest, _: Asker
    ) -> service.QueryRouteResponse:
        """The queues of a topic, which is made on demand, as a send would make it.

        Their ids begin at 0: some clients know no other queue.
        """
        topic = await self._found(rules.topic_of(request.topic))
        answer, queue = service.QueryRouteResponse(status=OK), self._queue(request)
        may_read, may_write = bool(topic.perm & READ), bool(topic.perm & WRITE)
        for number in range(max(topic.read_queues, topic.write_queues, 1)):
            queue.id = number
            queue.permission = _PERMISSIONS[
                may_read and number < topic.read_queues,
                may_write and number < topic.write_queues,
            ]
            # Appending copies it: so each takes a microsecond, of a thousand.
            answer.message_queues.append(queue)
        return answer

    async def assignment(
        self, request: service.QueryAssignmentRequest, _: Asker
    ) -> service.QueryAssignmentResponse:
        """One assignment for every consumer: receives of all queues never collide."""
        topic = await self._found(rules.topic_of(request.topic))
        rules.group_of(request.group)
        if not topic.perm & READ or not topic.read_queues:
            raise RocketmqRefusal(Code.FORBIDDEN, f"topic {topic.topic!r} may not be read")
        queue = self._queue(request)
        queue.id, queue.permission = ANY_QUEUE, definition.READ
        assignments = [definition.Assignment(message_queue=queue)]
        return service.QueryAssignmentResponse(status=OK, assignments=assignments)

    async def _found(self, name: str) -> TopicInfo:
        """Every account gets a route, as on the other protocols; only who may send makes a topic.

        Raises TopicUnknown.
        """
        caller = CALLER.set(BROKER)
        try:
            found = await self._service.topics.info(name)
        finally:
            CALLER.reset(caller)
        if found is not None:
            return found
        try:
            return (await self._service.topics.route(RouteRequest(name, create=True))).topic
        except AccessDenied:
            raise TopicUnknown(name) from None

    def _standby(self) -> str:
        """Its address, if there is one."""
        return next(iter([each.peer for each in self._service.replication()]), "")

    def _queue(
        self, request: service.QueryRouteRequest | service.QueryAssignmentRequest
    ) -> definition.MessageQueue:
        """What all queues have in common."""
        return definition.MessageQueue(
            topic=request.topic,
            broker=definition.Broker(
                name=self._config.broker_name,
                id=0,
                endpoints=answered_endpoints(
                    request.endpoints, self._config.broker_ip, self._port, self._standby()
                ),
            ),
            accept_message_types=self._types,  # type: ignore[arg-type]  # the stub's enum
        )


class Protocol:
    """apache.rocketmq.v2 for one broker.  port: of gRPC."""

    def __init__(self, config: BrokerConfig, own: Service, port: int) -> None:
        self._service = own
        self._decoding = Reading(rocketmq_limits(config))
        self._standby = Standby(config) if config.broker_role == "SLAVE" else None
        self.clients = RocketmqClients(own.clock)
        self.telemetry = Telemetry(config, own, self.clients, self._decoding)
        routes, sends = Routes(config, own, port), RocketmqSends(config, own, self.clients)
        receiving = Receiving(config, own, self.clients)
        pulling, transactions = Pulling(config, own), RocketmqTransactions(own)
        own[TransactionCalls].listen(TelemetryProducers(self.clients))
        self._ones: dict[RocketmqRpc[Any, Any], One] = {
            rpcs.QUERY_ROUTE: routes.route,
            rpcs.QUERY_ASSIGNMENT: routes.assignment,
            rpcs.SEND_MESSAGE: sends.send,
            rpcs.RECALL_MESSAGE: sends.recall,
            rpcs.ACK_MESSAGE: receiving.ack,
            rpcs.CHANGE_INVISIBLE: receiving.change,
            rpcs.FORWARD_MESSAGE: receiving.forward,
            rpcs.END_TRANSACTION: transactions.end,
            rpcs.HEARTBEAT: self.telemetry.heartbeat,
            rpcs.NOTIFY_TERMINATION: self.telemetry.goodbye,
            rpcs.UPDATE_OFFSET: pulling.update,
            rpcs.GET_OFFSET: pulling.committed,
            rpcs.QUERY_OFFSET: pulling.offset,
            rpcs.SYNC_LITE_SUBSCRIPTION: _sync_lite,
        }
        self._manies: dict[RocketmqRpc[Any, Any], Many] = {
            rpcs.RECEIVE_MESSAGE: receiving.receive,
            rpcs.PULL_MESSAGE: pulling.pull,
        }

    def handlers(self, in_flight: InFlight) -> Handlers:
        """gRPC handlers of all calls."""
        enter = guard_of(self._service.access, self._service.limits).enter
        found = {
            rpc.path: one_handler(rpc, method, self._decoding, in_flight, enter)
            for rpc, method in self._ones.items()
        }
        for rpc, method in self._manies.items():
            found[rpc.path] = many_handler(rpc, method, self._decoding, in_flight, enter)
        if self._standby is not None:
            found |= self._standby.handlers(self._decoding, in_flight, enter)
        path = rpcs.TELEMETRY.path
        refuse = refusing(rpcs.TELEMETRY)
        found[path] = many_answers(
            path, self.telemetry.talk, in_flight, enter, refuse, is_slow=True
        )
        return Handlers(found)

    def run(self, tasks: asyncio.TaskGroup) -> asyncio.Task[None]:
        """The protocol's own loop, as a task of the broker."""
        return tasks.create_task(self.telemetry.run(), name="clients of RocketMQ 5")

    async def end_forwarding(self) -> None:
        """Nobody is answered any more."""
        if self._standby is not None:
            await self._standby.end_forwarding()


async def _sync_lite(
    _: service.SyncLiteSubscriptionRequest, __: Asker
) -> service.SyncLiteSubscriptionResponse:
    raise no_lite_topics()
