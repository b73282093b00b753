"""Errors <-> gRPC status: one table; a test checks that it is complete.

A failed call ends with the name of a gRPC status code, the sentence as its details, and the
whole error as a protobuf message in the trailing metadata, so that the other side raises
the same class with the same field, value and rule.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from rmqlite.kernel.words import errors
from rmqlite.kernel.words.errors import BrokerUnreachable, RmqliteError, restore
from rmqlite.protocols.pb import rmqlite_pb2 as pb

ERROR_METADATA: Final = "rmqlite-error-bin"
SENTENCE_BYTES_MAX: Final = 1_100
FIELD_BYTES_MAX: Final = 100
VALUE_BYTES_MAX: Final = 850
RULE_BYTES_MAX: Final = 600

STATUS_NAMES: Final[dict[str, str]] = {
    errors.RmqliteError.code: "INTERNAL",
    errors.Refused.code: "FAILED_PRECONDITION",
    errors.Unavailable.code: "UNAVAILABLE",
    errors.InvalidValue.code: "INVALID_ARGUMENT",
    errors.InvalidName.code: "INVALID_ARGUMENT",
    errors.ExpressionInvalid.code: "INVALID_ARGUMENT",
    errors.MessageTooLarge.code: "INVALID_ARGUMENT",
    errors.DelayUnknown.code: "INVALID_ARGUMENT",
    errors.TimersOff.code: "INVALID_ARGUMENT",
    errors.HandleInvalid.code: "INVALID_ARGUMENT",
    errors.ConfigInvalid.code: "INVALID_ARGUMENT",
    errors.TopicUnknown.code: "NOT_FOUND",
    errors.TopicExists.code: "ALREADY_EXISTS",
    errors.PermissionMissing.code: "PERMISSION_DENIED",
    errors.AccessDenied.code: "PERMISSION_DENIED",
    errors.QueueUnknown.code: "NOT_FOUND",
    errors.GroupUnknown.code: "NOT_FOUND",
    errors.GroupInUse.code: "FAILED_PRECONDITION",
    errors.MessageNotFound.code: "NOT_FOUND",
    errors.OffsetGone.code: "FAILED_PRECONDITION",
    errors.JobUnknown.code: "NOT_FOUND",
    errors.JobExists.code: "ALREADY_EXISTS",
    errors.JobOver.code: "FAILED_PRECONDITION",
    errors.ExtraMissing.code: "FAILED_PRECONDITION",
    errors.NotSupported.code: "UNIMPLEMENTED",
    errors.StoreDamaged.code: "FAILED_PRECONDITION",
    errors.StoreLocked.code: "FAILED_PRECONDITION",
    errors.RepairRefused.code: "FAILED_PRECONDITION",
    errors.StoreUnavailable.code: "UNAVAILABLE",
    errors.DiskFull.code: "UNAVAILABLE",
    errors.FlushFailed.code: "UNAVAILABLE",
    errors.NotMaster.code: "UNAVAILABLE",
    errors.BrokerClosing.code: "UNAVAILABLE",
    errors.Overloaded.code: "RESOURCE_EXHAUSTED",
    errors.BrokerUnreachable.code: "UNAVAILABLE",
}
"""Code of an error -> name of its gRPC status code."""


def error_to_status(error: RmqliteError) -> tuple[str, str, bytes]:
    """The end of a failed call: the name of the status, its details, and the metadata.

    Details and metadata are cut so that they take at most 8 KiB in gRPC's headers, where one
    byte of details may take three bytes, and three bytes of metadata take four.  If they took
    more, the caller would get another status.
    """
    return STATUS_NAMES[error.code], _cut(str(error), SENTENCE_BYTES_MAX), error_to_metadata(error)


def error_to_metadata(error: RmqliteError) -> bytes:
    """The value of the trailing metadata entry ERROR_METADATA."""
    message = pb.Error(
        code=error.code,
        response_code=error.response_code,
        sentence=_cut(str(error), SENTENCE_BYTES_MAX),
        field=_cut(error.field, FIELD_BYTES_MAX),
        value=_cut(error.value, VALUE_BYTES_MAX),
        rule=_cut(error.rule, RULE_BYTES_MAX),
        can_retry=error.can_retry,
    )
    return message.SerializeToString()


def error_from_metadata(value: bytes) -> RmqliteError:
    """The error that the other side raised."""
    try:
        message = pb.Error.FromString(value)
    except DecodeError:
        return RmqliteError("the broker sent an error that cannot be read")
    return restore(
        message.code, message.sentence, field=message.field, value=message.value, rule=message.rule
    )


def error_from_status(status_name: str, details: str) -> RmqliteError:
    """The error for a failure without our metadata, which comes from the transport."""
    if status_name in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"):
        return BrokerUnreachable(f"no answer from the broker: {details}")
    if status_name == "RESOURCE_EXHAUSTED":
        return errors.MessageTooLarge("request", details, "what one call can carry")
    return RmqliteError(f"{status_name}: {details}")


def _cut(text: str, bytes_max: int) -> str:
    """The text, cut to bytes_max bytes; characters without a UTF-8 form become "?"."""
    data = text.encode("utf-8", "replace")
    if len(data) > bytes_max:
        return data[: bytes_max - 3].decode("utf-8", "ignore") + "…"
    return data.decode()
