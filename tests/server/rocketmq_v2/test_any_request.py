"""Whatever a client sends: an answer with a code, no bug, and a broker that goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import RocketmqRpc
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import turns_until
from tests.support.rocketmq_v2_client import (
    GROUP,
    TOPIC,
    V2,
    code_of,
    delayed,
    half,
    message,
    served_v2,
)
from tests.support.thinned import few

CALLS_MAX = 8
EXAMPLES = 5
DEPTH_MAX = 6
TEXTS = st.one_of(
    st.sampled_from(
        [
            *(TOPIC, GROUP, "", " ", "*", "a || b", "a > 1", "%RETRY%billing", "%DLQ%billing"),
            *("TBW102", "x" * 128, "x" * 5_000, "0-0", "\x00", "\x01\x02", "ä\U0001f600"),
        ]
    ),
    st.text(max_size=20),
)
NUMBERS = st.one_of(
    st.sampled_from((0, 1, -1, 2, 4, 7, 32, 33, 1_000, 2**31 - 1, -(2**31))), st.integers(0, 5)
)
LARGE = st.one_of(NUMBERS, st.sampled_from((2**63 - 1, -(2**63), 10**15, 1_700_000_000)))
BODIES = st.one_of(st.binary(max_size=40), st.just(bytes(600_000)), st.just(b"\x1f\x8b\x08" * 9))
GIVEN_OUT = frozenset({"receipt_handle", "recall_handle", "transaction_id", "name"})
"""Fields with texts that only the broker knows."""
VALID = "<valid>"
"""Stands for such a text until the request is made."""
Draw = Callable[[Any], Any]
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_STRING: TEXTS,
    FieldDescriptor.TYPE_BYTES: BODIES,
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_INT32: NUMBERS,
    FieldDescriptor.TYPE_INT64: LARGE,
    FieldDescriptor.TYPE_ENUM: NUMBERS,
    FieldDescriptor.TYPE_FLOAT: st.floats(width=32),
}


def _value(draw: Draw, field: FieldDescriptor, depth: int) -> Any:
    if field.message_type is not None:
        return _drawn(draw, field.message_type, depth + 1)
    if field.name in GIVEN_OUT:
        return draw(st.one_of(st.just(VALID), TEXTS))
    return draw(SCALARS[field.type])


def _drawn(draw: Draw, descriptor: Descriptor, depth: int = 0) -> Message:
    """Any message of this kind."""
    made = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        # Most fields are set: a request without a topic gets no further.
        if not draw(st.integers(0, 5)) or depth > DEPTH_MAX:
            continue
        if not field.is_repeated:
            value = _value(draw, field, depth)
            if isinstance(value, Message):
                getattr(made, field.name).CopyFrom(value)
            else:
                setattr(made, field.name, value)
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            for _ in range(draw(st.integers(0, 2))):
                getattr(made, field.name)[draw(TEXTS)] = draw(TEXTS)
        else:
            values = [_value(draw, field, depth) for _ in range(draw(st.integers(0, 2)))]
            getattr(made, field.name).extend(values)
    return made


def _fill(request: Message, known: dict[str, str]) -> None:
    """Put what the broker has given out in its places."""
    for field, value in request.ListFields():
        if value == VALID:
            setattr(request, field.name, known[field.name])
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in value if field.is_repeated else [value]:
                _fill(each, known)


async def given_out(v2: V2) -> dict[str, str]:
    """Handles and ids that are valid now."""
    later = v2.under_test.clock.now_ms() + 60_000
    _, waiting, prepared = await v2.sent(message("a"), delayed("b", later), half("c"))
    received = await v2.received()
    handles = [each.system_properties.receipt_handle for each in received]
    return {
        "receipt_handle": handles[-1] if handles else "",
        "recall_handle": waiting.recall_handle,
        "transaction_id": prepared.transaction_id,
        "name": TOPIC,
    }


async def asked(v2: V2, rpc: RocketmqRpc[Any, Any], request: Message) -> list[Any]:
    if rpc is not rpcs.TELEMETRY:
        return await v2.answers(rpc, request, left_s=0.5)
    call = v2.telemetry()
    call.put(request.SerializeToString())
    call.done_writing()
    await turns_until(call.call.done)
    return list(call.frames)


@pytest.mark.parametrize("rpc", rpcs.ALL, ids=lambda rpc: rpc.name)
def test_any_request_is_answered(
    rpc: RocketmqRpc[Any, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No stack in the log, no internal error in the answer, and the next send is stored."""
    caplog.set_level(logging.ERROR)
    under_test = BrokerUnderTest(tmp_path / "store", mapped_file_size_commit_log=64 << 20)

    async def asking(v2: V2, requests: list[Message]) -> None:
        known = await given_out(v2)
        for request in requests:
            _fill(request, known)
            for answer in await asked(v2, rpc, request):
                if answer.HasField("status"):
                    code = code_of(answer)
                    assert code is not Code.INTERNAL_SERVER_ERROR, answer.status.message
                    assert "Traceback" not in answer.status.message
        assert len(await v2.sent(message("z"))) == 1

    @settings(suppress_health_check=list(HealthCheck), database=None, max_examples=few(EXAMPLES))
    @given(st.data())
    def run(data: st.DataObject) -> None:
        calls = data.draw(st.integers(1, CALLS_MAX))
        requests = [_drawn(data.draw, rpc.descriptor) for _ in range(calls)]
        caplog.clear()
        served_v2(under_test, lambda v2: asking(v2, requests))
        assert not caplog.records, caplog.text

    run()
    under_test.store.release()
