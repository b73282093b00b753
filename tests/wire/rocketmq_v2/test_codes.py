"""Each error of ours ends a call of RocketMQ 5's protocol with a code that its clients know."""

from __future__ import annotations

import pytest

from rmqlite.kernel.words import errors
from rmqlite.kernel.words.errors import RmqliteError, by_code
from rmqlite.protocols.rocketmq_v2.bytes.codes import (
    CODES,
    SENTENCE_BYTES_MAX,
    Code,
    RocketmqRefusal,
    broken,
    code_of,
    refusal_of,
    status,
)
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import definition


def test_the_table_has_every_error() -> None:
    """A new class must not become an internal error by accident."""
    assert set(CODES) == set(by_code())


def test_the_codes_are_those_of_the_proto() -> None:
    """All but the one that no answer may have."""
    numbers = {name: number for name, number in definition.Code.items() if number}
    assert {code.name: code.value for code in Code} == numbers


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.TopicUnknown("orders"), Code.TOPIC_NOT_FOUND),
        (errors.GroupUnknown("payers"), Code.CONSUMER_GROUP_NOT_FOUND),
        (errors.HandleInvalid("AAAA"), Code.INVALID_RECEIPT_HANDLE),
        (errors.PermissionMissing("orders", "sending to", "perm"), Code.FORBIDDEN),
        (errors.AccessDenied("no right"), Code.FORBIDDEN),
        (errors.FlushFailed("slow"), Code.MASTER_PERSISTENCE_TIMEOUT),
        (errors.Overloaded("maxParkedPolls", 5), Code.TOO_MANY_REQUESTS),
        (errors.DiskFull(0.93, 90, 85), Code.TOO_MANY_REQUESTS),
        (errors.BrokerClosing(), Code.TOO_MANY_REQUESTS),
        (errors.StoreUnavailable("write", "x", "full"), Code.INTERNAL_SERVER_ERROR),
        (errors.ExpressionInvalid("sql", "a >", "a value", at=3), Code.ILLEGAL_FILTER_EXPRESSION),
        (errors.InvalidName("topic", "a b", "letters"), Code.ILLEGAL_TOPIC),
        (errors.InvalidName("group", "a b", "letters"), Code.ILLEGAL_CONSUMER_GROUP),
        (errors.MessageTooLarge("body", 5, "less"), Code.MESSAGE_BODY_TOO_LARGE),
        (errors.MessageTooLarge("properties", 5, "less"), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (errors.MessageTooLarge("messages", 5, "less"), Code.PAYLOAD_TOO_LARGE),
        (errors.InvalidValue("body", "5 bytes", "compressed"), Code.MESSAGE_CORRUPTED),
        (errors.InvalidValue("TIMER_DELIVER_MS", "9", "sooner"), Code.ILLEGAL_DELIVERY_TIME),
        (errors.TimersOff("TIMER_DELIVER_MS", "9", "left out"), Code.ILLEGAL_DELIVERY_TIME),
        (errors.InvalidValue("sysFlag", "9", "another"), Code.BAD_REQUEST),
    ],
    ids=str,
)
def test_an_error_has_the_code_of_what_is_wrong(error: RmqliteError, code: Code) -> None:
    """A client acts on it: it asks again, gives up a handle, or shows a certain exception."""
    assert code_of(error) is code
    refusal = refusal_of(error)
    assert (refusal.code, str(refusal)) == (code, str(error))


def test_a_refusal_says_what_to_change() -> None:
    """The user of an official client reads this sentence."""
    refusal = broken(Code.ILLEGAL_MESSAGE_TAG, "tag", "a|b", "without '|'")
    assert str(refusal) == "tag must be without '|', not 'a|b'"
    assert refusal.status.code == 40004
    assert refusal.status.message == str(refusal)


def test_a_status_is_short_and_text() -> None:
    """It stands in an answer, and protobuf takes valid UTF-8 only."""
    assert status(Code.OK).message == "OK"
    long = status(Code.BAD_REQUEST, "é" * SENTENCE_BYTES_MAX).message
    assert len(long.encode()) <= SENTENCE_BYTES_MAX
    assert long.endswith("é…")
    assert RocketmqRefusal(Code.BAD_REQUEST, "a \ud800 b").status.message == "a ? b"
