"""Where a topic is: always at this broker, at the address by which the client has come.

A client sends to, and receives from, the addresses that the answer names.  It has reached the
broker by those of its own request, perhaps through a proxy or a tunnel, so these are answered.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.topics import RouteRequest, TopicInfo
from rmqlite.kernel.service.access import BROKER, CALLER
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.tables.topics import READ, WRITE
from rmqlite.kernel.words.errors import AccessDenied, TopicUnknown
from rmqlite.protocols.rocketmq_v2.bytes import rules
from rmqlite.protocols.rocketmq_v2.bytes.codes import OK, Code, RocketmqRefusal, broken
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import definition, service
from rmqlite.protocols.rocketmq_v2.guard import Asker

ANY_QUEUE: Final = -1
"""The queue of an assignment: a consumer receives from all queues of a topic."""
ENDPOINTS_BYTES_MAX: Final = 1_024
"""The addresses of a request, which the answer repeats for each of up to a thousand queues."""
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

    def _queue(
        self, request: service.QueryRouteRequest | service.QueryAssignmentRequest
    ) -> definition.MessageQueue:
        """What all queues have in common."""
        return definition.MessageQueue(
            topic=request.topic,
            broker=definition.Broker(
                name=self._config.broker_name, id=0, endpoints=self._endpoints(request.endpoints)
            ),
            accept_message_types=self._types,  # type: ignore[arg-type]  # the stub's enum
        )

    def _endpoints(self, asked: definition.Endpoints) -> definition.Endpoints:
        """Those of a request, with a scheme; a client that names none gets the broker's own."""
        if not asked.addresses:
            address = definition.Address(host=self._config.broker_ip, port=self._port)
            return definition.Endpoints(
                scheme=_scheme_of(self._config.broker_ip), addresses=[address]
            )
        if asked.ByteSize() > ENDPOINTS_BYTES_MAX:
            rule = f"at most {ENDPOINTS_BYTES_MAX} bytes"
            size = f"{asked.ByteSize()} bytes"
            raise broken(Code.ILLEGAL_ACCESS_POINT, "endpoints", size, rule)
        if asked.scheme in (definition.IPv4, definition.IPv6, definition.DOMAIN_NAME):
            return asked
        scheme = _scheme_of(asked.addresses[0].host)
        return definition.Endpoints(scheme=scheme, addresses=asked.addresses)


def _scheme_of(host: str) -> definition.AddressScheme:
    try:
        version = ip_address(host).version
    except ValueError:
        return definition.DOMAIN_NAME
    return definition.IPv4 if version == 4 else definition.IPv6
