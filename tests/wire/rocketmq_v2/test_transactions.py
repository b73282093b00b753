"""The id of a transaction names its half message, and its end is what the producer said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.features.transactions.requests import TransactionEnd, TransactionQuestion
from rmqlite.kernel.records.encoding import encode
from rmqlite.kernel.words.message import encode_properties
from rmqlite.protocols.rocketmq_v2.bytes.codes import OK, Code
from rmqlite.protocols.rocketmq_v2.bytes.messages import (
    end_of,
    offsets_of,
    recover_command,
    transaction_id,
)
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import definition, service
from tests.support.rocketmq_v2 import refused
from tests.support.stores import new_record

OFFSETS = st.integers(0, 2**63 - 1)


@given(OFFSETS, OFFSETS)
def test_an_id_is_its_two_offsets(queue_offset: int, physical_offset: int) -> None:
    """A client only hands it back."""
    text = transaction_id(queue_offset, physical_offset)
    assert offsets_of(text) == (queue_offset, physical_offset)


@pytest.mark.parametrize(
    "text", ["", " ", "17", "1-", "-1-2", "1-2-3", "1-g", "a-b", "8000000000000000-0", "1-2\n"]
)
def test_another_text_is_no_id(text: str) -> None:
    """A wrong one must not end somebody else's transaction."""
    with refused(Code.INVALID_TRANSACTION_ID, "transaction_id must be the id that the answer"):
        offsets_of(text)


def request(resolution: int, topic: str = "orders") -> service.EndTransactionRequest:
    made = service.EndTransactionRequest(
        topic=definition.Resource(name=topic), transaction_id=transaction_id(3, 4_096)
    )
    made.resolution = resolution  # type: ignore[assignment]
    return made


def test_a_producer_commits_or_rolls_back() -> None:
    """Its topic stands for its group."""
    assert end_of(request(definition.COMMIT)) == TransactionEnd("orders", 3, 4_096, is_commit=True)
    end = end_of(request(definition.ROLLBACK))
    assert end == TransactionEnd("orders", 3, 4_096, is_commit=False)


def test_a_producer_that_does_not_know_ends_nothing() -> None:
    """Python says so in words, and is asked again later."""
    assert end_of(request(0)) is None


def test_an_end_that_breaks_a_rule_is_refused() -> None:
    """As every other call."""
    with refused(Code.BAD_REQUEST, "resolution must be COMMIT or ROLLBACK, not '7'"):
        end_of(request(7))
    with refused(Code.ILLEGAL_TOPIC, "topic must be"):
        end_of(request(definition.COMMIT, topic=""))


def test_a_question_carries_the_whole_message() -> None:
    """The checker of the application looks at it."""
    own = encode_properties({"UNIQ_KEY": "17", "TRAN_MSG": "true", "PGROUP": "orders", "a": "b"})
    record = encode(
        new_record(b"half", properties=own),
        queue_offset=3,
        physical_offset=4_096,
        store_timestamp_ms=5_000,
    )
    command = recover_command(TransactionQuestion("orders", 3, 4_096, "17", "OFFSET", record))
    asked = command.recover_orphaned_transaction_command
    assert command.status == OK
    assert offsets_of(asked.transaction_id) == (3, 4_096)
    message = asked.message
    assert (message.topic.name, message.body) == ("orders", b"half")
    assert message.system_properties.message_id == "17"
    assert message.system_properties.message_type == definition.TRANSACTION
    assert message.system_properties.HasField("body_digest")
    assert dict(message.user_properties) == {"a": "b"}
