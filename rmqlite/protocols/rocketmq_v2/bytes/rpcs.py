"""The table of the calls of apache.rocketmq.v2, with the messages of their requests and answers.

The server works with these messages themselves, not with values of its own: nearly every field
is asked for once.  definition and service are the modules of all messages, for
protocols/rocketmq_v2 only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from rmqlite.protocols.pb.rocketmq_v2 import definition_pb2 as definition
from rmqlite.protocols.pb.rocketmq_v2 import service_pb2 as service
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code, broken

__all__ = ["ALL", "RocketmqRpc", "definition", "service"]

SERVICE: Final = "apache.rocketmq.v2.MessagingService"

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


@dataclass(frozen=True, slots=True, eq=False)
class RocketmqRpc(Generic[Q, A]):
    """One call: Q is the class of its requests, A that of its answers.

    has_many_requests, has_many_answers: it is a stream of them.
    """

    name: str
    request: type[Q]
    answer: type[A]
    has_many_requests: bool
    has_many_answers: bool

    @property
    def path(self) -> str:
        return f"/{SERVICE}/{self.name}"

    @property
    def descriptor(self) -> Descriptor:
        """Of the requests."""
        return cast(Descriptor, self.request.DESCRIPTOR)

    def decode(self, data: bytes) -> Q:
        """Raises Refusal if the bytes are no such request; see limits.py for what to do before."""
        try:
            request = self.request.FromString(data)
        except DecodeError:
            rule = f"a protobuf message {self.descriptor.full_name}"
            raise broken(Code.BAD_REQUEST, "request", f"{len(data)} bytes", rule) from None
        if self.has_many_requests:
            # They would go back to the client in its settings.  No other request outlives its
            # reading; there this would cost 2 us of a send's 100.
            request.DiscardUnknownFields()
        return request

    @staticmethod
    def encode(answer: A) -> bytes:
        return answer.SerializeToString()


def _rpc(name: str, request: type[Q], answer: type[A]) -> RocketmqRpc[Q, A]:
    method = service.DESCRIPTOR.services_by_name["MessagingService"].methods_by_name[name]
    assert method.input_type is request.DESCRIPTOR
    assert method.output_type is answer.DESCRIPTOR
    return RocketmqRpc(name, request, answer, method.client_streaming, method.server_streaming)


QUERY_ROUTE: Final = _rpc("QueryRoute", service.QueryRouteRequest, service.QueryRouteResponse)
HEARTBEAT: Final = _rpc("Heartbeat", service.HeartbeatRequest, service.HeartbeatResponse)
SEND_MESSAGE: Final = _rpc("SendMessage", service.SendMessageRequest, service.SendMessageResponse)
QUERY_ASSIGNMENT: Final = _rpc(
    "QueryAssignment", service.QueryAssignmentRequest, service.QueryAssignmentResponse
)
RECEIVE_MESSAGE: Final = _rpc(
    "ReceiveMessage", service.ReceiveMessageRequest, service.ReceiveMessageResponse
)
ACK_MESSAGE: Final = _rpc("AckMessage", service.AckMessageRequest, service.AckMessageResponse)
FORWARD_MESSAGE: Final = _rpc(
    "ForwardMessageToDeadLetterQueue",
    service.ForwardMessageToDeadLetterQueueRequest,
    service.ForwardMessageToDeadLetterQueueResponse,
)
PULL_MESSAGE: Final = _rpc("PullMessage", service.PullMessageRequest, service.PullMessageResponse)
UPDATE_OFFSET: Final = _rpc(
    "UpdateOffset", service.UpdateOffsetRequest, service.UpdateOffsetResponse
)
GET_OFFSET: Final = _rpc("GetOffset", service.GetOffsetRequest, service.GetOffsetResponse)
QUERY_OFFSET: Final = _rpc("QueryOffset", service.QueryOffsetRequest, service.QueryOffsetResponse)
END_TRANSACTION: Final = _rpc(
    "EndTransaction", service.EndTransactionRequest, service.EndTransactionResponse
)
TELEMETRY: Final = _rpc("Telemetry", service.TelemetryCommand, service.TelemetryCommand)
NOTIFY_TERMINATION: Final = _rpc(
    "NotifyClientTermination",
    service.NotifyClientTerminationRequest,
    service.NotifyClientTerminationResponse,
)
CHANGE_INVISIBLE: Final = _rpc(
    "ChangeInvisibleDuration",
    service.ChangeInvisibleDurationRequest,
    service.ChangeInvisibleDurationResponse,
)
RECALL_MESSAGE: Final = _rpc(
    "RecallMessage", service.RecallMessageRequest, service.RecallMessageResponse
)
SYNC_LITE_SUBSCRIPTION: Final = _rpc(
    "SyncLiteSubscription",
    service.SyncLiteSubscriptionRequest,
    service.SyncLiteSubscriptionResponse,
)

ALL: Final[tuple[RocketmqRpc[Any, Any], ...]] = tuple(
    value for value in list(vars().values()) if isinstance(value, RocketmqRpc)
)
