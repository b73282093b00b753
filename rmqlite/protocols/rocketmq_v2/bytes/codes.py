"""How a call ends, as a code of the protocol; and our errors as these codes.

Each call of the protocol ends well for gRPC: its outcome is a status in its answer.
"""

from __future__ import annotations

import enum
from typing import Final

from rmqlite.kernel.words import errors
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.kernel.words.message import TIMER_PROPERTIES
from rmqlite.protocols.pb.rocketmq_v2 import definition_pb2 as definition

SENTENCE_BYTES_MAX: Final = 1_100


class Code(enum.IntEnum):
    """2xxxx: done; 3xxxx: see the entries; 4xxxx: change the request; 5xxxx: the broker cannot."""

    OK = 20000
    MULTIPLE_RESULTS = 30000
    BAD_REQUEST = 40000
    ILLEGAL_ACCESS_POINT = 40001
    ILLEGAL_TOPIC = 40002
    ILLEGAL_CONSUMER_GROUP = 40003
    ILLEGAL_MESSAGE_TAG = 40004
    ILLEGAL_MESSAGE_KEY = 40005
    ILLEGAL_MESSAGE_GROUP = 40006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40007
    INVALID_TRANSACTION_ID = 40008
    ILLEGAL_MESSAGE_ID = 40009
    ILLEGAL_FILTER_EXPRESSION = 40010
    ILLEGAL_INVISIBLE_TIME = 40011
    ILLEGAL_DELIVERY_TIME = 40012
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    UNRECOGNIZED_CLIENT_TYPE = 40015
    MESSAGE_CORRUPTED = 40016
    CLIENT_ID_REQUIRED = 40017
    ILLEGAL_POLLING_TIME = 40018
    ILLEGAL_OFFSET = 40019
    ILLEGAL_LITE_TOPIC = 40020
    INVALID_CLIENT_PROPERTIES = 40021
    UNAUTHORIZED = 40100
    PAYMENT_REQUIRED = 40200
    FORBIDDEN = 40300
    NOT_FOUND = 40400
    MESSAGE_NOT_FOUND = 40401
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    OFFSET_NOT_FOUND = 40404
    REQUEST_TIMEOUT = 40800
    PAYLOAD_TOO_LARGE = 41300
    MESSAGE_BODY_TOO_LARGE = 41301
    MESSAGE_BODY_EMPTY = 41302
    PRECONDITION_FAILED = 42800
    TOO_MANY_REQUESTS = 42900
    LITE_TOPIC_QUOTA_EXCEEDED = 42901
    LITE_SUBSCRIPTION_QUOTA_EXCEEDED = 42902
    REQUEST_HEADER_FIELDS_TOO_LARGE = 43100
    MESSAGE_PROPERTIES_TOO_LARGE = 43101
    INTERNAL_ERROR = 50000
    INTERNAL_SERVER_ERROR = 50001
    HA_NOT_AVAILABLE = 50002
    NOT_IMPLEMENTED = 50100
    PROXY_TIMEOUT = 50400
    MASTER_PERSISTENCE_TIMEOUT = 50401
    SLAVE_PERSISTENCE_TIMEOUT = 50402
    UNSUPPORTED = 50500
    VERSION_UNSUPPORTED = 50501
    VERIFY_FIFO_MESSAGE_UNSUPPORTED = 50502
    FAILED_TO_CONSUME_MESSAGE = 60000


class RocketmqRefusal(Exception):
    """A call ends with this code and this sentence for people."""

    def __init__(self, code: Code, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code

    @property
    def status(self) -> definition.Status:
        return status(self.code, str(self))


def broken(code: Code, field: str, value: object, rule: str) -> RocketmqRefusal:
    """The refusal of a field whose value breaks a rule."""
    return RocketmqRefusal(code, str(errors.InvalidValue(field, value, rule)))


def status(code: Code, sentence: str = "") -> definition.Status:
    """The status of an answer; without a sentence the name of the code stands there."""
    text = sentence or code.name
    data = text.encode("utf-8", "replace")
    if len(data) > SENTENCE_BYTES_MAX:
        text = data[: SENTENCE_BYTES_MAX - 3].decode("utf-8", "ignore") + "…"
    elif not text.isascii():
        text = data.decode()
    # Its stub has a type of its own for the enum; a number is as good, and a client may have more.
    return definition.Status(code=int(code), message=text)  # type: ignore[arg-type]


OK: Final = status(Code.OK)
"""The status of a call that has done what it should; protobuf copies it into an answer."""


CODES: Final[dict[str, Code]] = {
    errors.RmqliteError.code: Code.INTERNAL_SERVER_ERROR,
    errors.Refused.code: Code.BAD_REQUEST,
    errors.Unavailable.code: Code.TOO_MANY_REQUESTS,
    errors.InvalidValue.code: Code.BAD_REQUEST,
    errors.InvalidName.code: Code.BAD_REQUEST,
    errors.ExpressionInvalid.code: Code.ILLEGAL_FILTER_EXPRESSION,
    errors.HandleInvalid.code: Code.INVALID_RECEIPT_HANDLE,
    errors.MessageTooLarge.code: Code.PAYLOAD_TOO_LARGE,
    errors.DelayUnknown.code: Code.ILLEGAL_DELIVERY_TIME,
    errors.TimersOff.code: Code.ILLEGAL_DELIVERY_TIME,
    errors.ConfigInvalid.code: Code.INTERNAL_SERVER_ERROR,
    errors.TopicUnknown.code: Code.TOPIC_NOT_FOUND,
    errors.TopicExists.code: Code.PRECONDITION_FAILED,
    errors.PermissionMissing.code: Code.FORBIDDEN,
    errors.AccessDenied.code: Code.FORBIDDEN,
    errors.QueueUnknown.code: Code.NOT_FOUND,
    errors.GroupUnknown.code: Code.CONSUMER_GROUP_NOT_FOUND,
    errors.GroupInUse.code: Code.PRECONDITION_FAILED,
    errors.MessageNotFound.code: Code.MESSAGE_NOT_FOUND,
    errors.OffsetGone.code: Code.OFFSET_NOT_FOUND,
    errors.JobUnknown.code: Code.NOT_FOUND,
    errors.JobExists.code: Code.PRECONDITION_FAILED,
    errors.JobOver.code: Code.PRECONDITION_FAILED,
    errors.ExtraMissing.code: Code.INTERNAL_SERVER_ERROR,
    errors.NotSupported.code: Code.UNSUPPORTED,
    errors.StoreDamaged.code: Code.INTERNAL_SERVER_ERROR,
    errors.StoreLocked.code: Code.INTERNAL_SERVER_ERROR,
    errors.RepairRefused.code: Code.INTERNAL_SERVER_ERROR,
    errors.StoreUnavailable.code: Code.INTERNAL_SERVER_ERROR,
    errors.DiskFull.code: Code.TOO_MANY_REQUESTS,
    errors.FlushFailed.code: Code.MASTER_PERSISTENCE_TIMEOUT,
    errors.NotMaster.code: Code.HA_NOT_AVAILABLE,
    errors.BrokerClosing.code: Code.TOO_MANY_REQUESTS,
    errors.Overloaded.code: Code.TOO_MANY_REQUESTS,
    errors.BrokerUnreachable.code: Code.PROXY_TIMEOUT,
}
"""Code of an error -> code of the protocol.  Who is refused with AccessDenied has an account, or
none is needed: signing.py has another code for a wrong signature."""

_TOO_LARGE: Final = {
    "body": Code.MESSAGE_BODY_TOO_LARGE,
    "properties": Code.MESSAGE_PROPERTIES_TOO_LARGE,
}
_WRONG: Final = {
    "topic": Code.ILLEGAL_TOPIC,
    "group": Code.ILLEGAL_CONSUMER_GROUP,
    "body": Code.MESSAGE_CORRUPTED,
    "expression": Code.ILLEGAL_FILTER_EXPRESSION,
    "sql": Code.ILLEGAL_FILTER_EXPRESSION,
    **dict.fromkeys(TIMER_PROPERTIES, Code.ILLEGAL_DELIVERY_TIME),
}
"""Field of an InvalidValue -> code, for rules of the broker."""


def code_of(error: RmqliteError) -> Code:
    """The code that a call ends with if the broker raises this error."""
    code = CODES[error.code]
    if isinstance(error, errors.MessageTooLarge):
        return _TOO_LARGE.get(error.field, code)
    if isinstance(error, errors.InvalidValue):
        return _WRONG.get(error.field, code)
    return code


def refusal_of(error: RmqliteError) -> RocketmqRefusal:
    return RocketmqRefusal(code_of(error), str(error))
