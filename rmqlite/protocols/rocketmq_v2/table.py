"""The table that says which method answers which call of apache.rocketmq.v2."""

from __future__ import annotations

import asyncio
from typing import Any

from rmqlite.features.transactions.service import TransactionCalls
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.service.service import Service
from rmqlite.protocols.grpc.calls import Handlers, many_answers
from rmqlite.protocols.grpc.in_flight import InFlight
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import RocketmqRpc, service
from rmqlite.protocols.rocketmq_v2.calls import (
    Decoding,
    Many,
    One,
    many_handler,
    no_lite_topics,
    one_handler,
    refusing,
)
from rmqlite.protocols.rocketmq_v2.clients import RocketmqClients
from rmqlite.protocols.rocketmq_v2.guard import Asker, guard_of
from rmqlite.protocols.rocketmq_v2.pulling import Pulling
from rmqlite.protocols.rocketmq_v2.receiving import Receiving
from rmqlite.protocols.rocketmq_v2.routes import Routes
from rmqlite.protocols.rocketmq_v2.sends import RocketmqSends
from rmqlite.protocols.rocketmq_v2.telemetry import Telemetry
from rmqlite.protocols.rocketmq_v2.transactions import RocketmqTransactions, TelemetryProducers


class Protocol:
    """apache.rocketmq.v2 for one broker.  port: of gRPC."""

    def __init__(self, config: BrokerConfig, own: Service, port: int) -> None:
        self._service = own
        self._decoding = Decoding(config)
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
        path = rpcs.TELEMETRY.path
        refuse = refusing(rpcs.TELEMETRY)
        found[path] = many_answers(
            path, self.telemetry.talk, in_flight, enter, refuse, is_slow=True
        )
        return Handlers(found)

    def run(self, tasks: asyncio.TaskGroup) -> asyncio.Task[None]:
        """The protocol's own loop, as a task of the broker."""
        return tasks.create_task(self.telemetry.run(), name="clients of RocketMQ 5")


async def _sync_lite(
    _: service.SyncLiteSubscriptionRequest, __: Asker
) -> service.SyncLiteSubscriptionResponse:
    raise no_lite_topics()
