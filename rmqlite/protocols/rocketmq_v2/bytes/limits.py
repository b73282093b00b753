"""The limits of every field of every request of apache.rocketmq.v2.

A test walks the protos and finds fields without a limit.  bounded.py checks them in the bytes of a
request; the names of most numbers are those of the native protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor import Descriptor

from rmqlite.features.rows import LIST_REQUEST_BYTES_MAX, SMALL_REQUEST_BYTES_MAX, Limit
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.words import limits
from rmqlite.kernel.words.errors import InvalidName, InvalidValue, MessageTooLarge
from rmqlite.kernel.words.names import TOPIC_BYTES_MAX
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code, RocketmqRefusal, code_of
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import RocketmqRpc
from rmqlite.protocols.shared.bounded import RequestLimits

WAITS_MAX: Final = 64
"""So many waits are listed; a client repeats the last one."""
NAMESPACE_BYTES_MAX: Final = 255
HOST_BYTES_MAX: Final = 255
ADDRESSES_MAX: Final = 64
"""How many addresses a client may have for its server."""
HANDLE_BYTES_MAX: Final = 1_024
"""The length of a receipt handle, of a recall handle, and of the id of a transaction."""
ACKS_MAX: Final = 1_024
"""How many messages one call acknowledges."""
NONCE_BYTES_MAX: Final = 255
TRACE_CONTEXT_BYTES_MAX: Final = 4_096
AGENT_BYTES_MAX: Final = 1_024
"""The length of each text that a client says about itself."""
TOPICS_MAX: Final = 4_096
"""How many topics a producer names in its settings."""
STACK_TRACE_BYTES_MAX: Final = 512 << 10
CLIENT_PROPERTIES_MAX: Final = 32
TYPES_MAX: Final = 16
LITE_TOPICS_MAX: Final = 2_048

_NAME: Final = Limit(size=TOPIC_BYTES_MAX, error=InvalidName)
_MESSAGE_ID: Final = Limit(size=limits.MESSAGE_ID_BYTES_MAX)
_HANDLE: Final = Limit(size=HANDLE_BYTES_MAX)
_HOST: Final = Limit(size=HOST_BYTES_MAX)
_NONCE: Final = Limit(size=NONCE_BYTES_MAX)
_AGENT: Final = Limit(size=AGENT_BYTES_MAX)
_TRACE_CONTEXT: Final = Limit(size=TRACE_CONTEXT_BYTES_MAX)
_PROPERTY: Final = Limit(size=limits.PROPERTIES_BYTES_MAX, error=MessageTooLarge)

_FIXED: Final[Mapping[str, Limit]] = {
    # topics, groups and servers
    "Resource.resource_namespace": Limit(size=NAMESPACE_BYTES_MAX, error=InvalidName),
    "Resource.name": _NAME,
    "Endpoints.addresses": Limit(count=ADDRESSES_MAX),
    "Address.host": _HOST,
    "Broker.name": _NAME,
    "MessageQueue.accept_message_types": Limit(count=TYPES_MAX),
    # messages
    "Message.user_properties": Limit(count=limits.PROPERTIES_MAX, error=MessageTooLarge),
    "UserPropertiesEntry.key": _PROPERTY,
    "UserPropertiesEntry.value": _PROPERTY,
    "SystemProperties.tag": Limit(size=limits.TAGS_BYTES_MAX),
    "SystemProperties.keys": Limit(
        size=limits.KEY_BYTES_MAX,
        count=limits.KEYS_MAX,
        total=limits.KEYS_BYTES_MAX,
        error=MessageTooLarge,
    ),
    "SystemProperties.message_id": _MESSAGE_ID,
    "SystemProperties.born_host": _HOST,
    "SystemProperties.store_host": _HOST,
    "SystemProperties.receipt_handle": _HANDLE,
    "SystemProperties.message_group": Limit(size=limits.KEY_BYTES_MAX),
    "SystemProperties.trace_context": _TRACE_CONTEXT,
    "SystemProperties.lite_topic": _NAME,
    "Digest.checksum": Limit(size=limits.TAGS_BYTES_MAX),
    "DeadLetterQueue.topic": _NAME,
    "DeadLetterQueue.message_id": _MESSAGE_ID,
    # consuming
    "FilterExpression.expression": Limit(size=limits.EXPRESSION_BYTES_MAX),
    "ReceiveMessageRequest.attempt_id": _MESSAGE_ID,
    "AckMessageRequest.entries": Limit(count=ACKS_MAX),
    "AckMessageEntry.message_id": _MESSAGE_ID,
    "AckMessageEntry.receipt_handle": _HANDLE,
    "AckMessageEntry.lite_topic": _NAME,
    "ForwardMessageToDeadLetterQueueRequest.receipt_handle": _HANDLE,
    "ForwardMessageToDeadLetterQueueRequest.message_id": _MESSAGE_ID,
    "ForwardMessageToDeadLetterQueueRequest.lite_topic": _NAME,
    "ChangeInvisibleDurationRequest.receipt_handle": _HANDLE,
    "ChangeInvisibleDurationRequest.message_id": _MESSAGE_ID,
    "ChangeInvisibleDurationRequest.lite_topic": _NAME,
    "SyncLiteSubscriptionRequest.lite_topic_set": Limit(
        size=TOPIC_BYTES_MAX, count=LITE_TOPICS_MAX, error=InvalidName
    ),
    # transactions and recalls
    "EndTransactionRequest.message_id": _MESSAGE_ID,
    "EndTransactionRequest.transaction_id": _HANDLE,
    "EndTransactionRequest.trace_context": _TRACE_CONTEXT,
    "RecallMessageRequest.recall_handle": _HANDLE,
    # telemetry
    "CustomizedBackoff.next": Limit(count=WAITS_MAX),
    "Publishing.topics": Limit(count=TOPICS_MAX),
    "Subscription.subscriptions": Limit(count=limits.SUBSCRIPTIONS_MAX),
    "UA.version": _AGENT,
    "UA.platform": _AGENT,
    "UA.hostname": _AGENT,
    "Settings.client_properties": Limit(count=CLIENT_PROPERTIES_MAX),
    "ClientPropertiesEntry.key": _AGENT,
    "ClientPropertiesEntry.value": _AGENT,
    "Status.message": _AGENT,
    "ThreadStackTrace.nonce": _NONCE,
    "ThreadStackTrace.thread_stack_trace": Limit(size=STACK_TRACE_BYTES_MAX),
    "VerifyMessageResult.nonce": _NONCE,
    "VerifyMessageCommand.nonce": _NONCE,
    "PrintThreadStackTraceCommand.nonce": _NONCE,
    "ReconnectEndpointsCommand.nonce": _NONCE,
    "RecoverOrphanedTransactionCommand.transaction_id": _HANDLE,
    "NotifyUnsubscribeLiteCommand.lite_topic": _NAME,
}

_CODES: Final = (
    ("topic.name", Code.ILLEGAL_TOPIC),
    ("topics.name", Code.ILLEGAL_TOPIC),
    ("group.name", Code.ILLEGAL_CONSUMER_GROUP),
    ("endpoints.addresses", Code.ILLEGAL_ACCESS_POINT),
    ("access_point.addresses", Code.ILLEGAL_ACCESS_POINT),
    ("system_properties.tag", Code.ILLEGAL_MESSAGE_TAG),
    ("keys", Code.ILLEGAL_MESSAGE_KEY),
    ("message_group", Code.ILLEGAL_MESSAGE_GROUP),
    ("user_properties", Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ("user_properties.key", Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ("user_properties.value", Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ("body", Code.MESSAGE_BODY_TOO_LARGE),
    ("message_id", Code.ILLEGAL_MESSAGE_ID),
    ("expression", Code.ILLEGAL_FILTER_EXPRESSION),
    ("receipt_handle", Code.INVALID_RECEIPT_HANDLE),
    ("transaction_id", Code.INVALID_TRANSACTION_ID),
    ("lite_topic", Code.ILLEGAL_LITE_TOPIC),
    ("lite_topic_set", Code.ILLEGAL_LITE_TOPIC),
    ("client_properties", Code.INVALID_CLIENT_PROPERTIES),
)
"""How the path of a field ends -> code of a request in which it is too long."""


def limits_of(config: BrokerConfig) -> dict[str, Limit]:
    """The limit of every field that is repeated or has no fixed size, by "Message.field"."""
    return {
        **_FIXED,
        "SendMessageRequest.messages": Limit(
            count=config.send_messages_max, count_key="maxSendMessages", error=MessageTooLarge
        ),
        "Message.body": Limit(
            size=config.max_message_bytes,
            size_key="maxMessageSize",
            total=config.send_bytes_max,
            total_key="maxSendBytes",
            error=MessageTooLarge,
        ),
    }


_LISTS: Final = (rpcs.ACK_MESSAGE, rpcs.TELEMETRY, rpcs.SYNC_LITE_SUBSCRIPTION)
"""Calls whose requests have long lists."""


def rocketmq_limits(config: BrokerConfig) -> RequestLimits[RocketmqRpc[Any, Any]]:
    """The limits of one broker, for the requests of all calls; they raise RocketmqRefusal."""
    calls: dict[RocketmqRpc[Any, Any], tuple[Descriptor, int | None]] = {}
    for rpc in rpcs.ALL:
        size = LIST_REQUEST_BYTES_MAX if rpc in _LISTS else SMALL_REQUEST_BYTES_MAX
        calls[rpc] = rpc.descriptor, None if rpc is rpcs.SEND_MESSAGE else size
    return RequestLimits(config, limits_of(config), calls, _refusal_of)


def _refusal_of(error: InvalidValue) -> RocketmqRefusal:
    codes = (code for end, code in _CODES if f".{error.field}".endswith(f".{end}"))
    return RocketmqRefusal(next(codes, None) or code_of(error), str(error))
