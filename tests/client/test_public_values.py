"""Every public value of the clients goes through a queue of processes, and through copy."""

from __future__ import annotations

import copy
import enum
import inspect
import pickle
import types
import typing
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

import rmqlite.client
import rmqlite.client.asyncio
from rmqlite.client import BulkMessage, Message, Producer, PullConsumer, Queue
from rmqlite.kernel.words.errors import RmqliteError
from tests.support.fake_broker import FakeBroker

CLIENTS = {
    "AdminClient",
    "BulkScheduler",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "RawReader",
    "SimpleConsumer",
    "AsyncAdmin",
    "AsyncDeadLetterAdmin",
    "AsyncProducer",
    "AsyncPushConsumer",
    "AsyncRedriveAdmin",
    "AsyncScheduleAdmin",
    "AsyncSimpleConsumer",
}
PUBLIC = {
    name: getattr(module, name)
    for module in (rmqlite.client, rmqlite.client.asyncio)
    for name in module.__all__
    if name not in CLIENTS
}
MESSAGE = Message("t", b"x", "a", "k l", {"p": "q"}, deliver_after=timedelta(hours=1))
SAMPLES: dict[Any, Any] = {
    str: "text",
    int: 3,
    float: 0.5,
    bool: True,
    bytes: b"x",
    type(None): None,
    Message: MESSAGE,
    BulkMessage: BulkMessage("t", b"x", "id", deliver_at_ms=1_800_000_000_000),
    RmqliteError: None,  # two errors are never equal; tests/base has them
    rmqlite.client.RetryLater: None,
}


def survives(value: Any) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        back = pickle.loads(pickle.dumps(value, protocol))
        assert back == value
        assert type(back) is type(value)
    assert copy.copy(value) == copy.deepcopy(value) == value


def sample(kind: Any) -> Any:
    """A value of a type, with something in all of its fields."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in SAMPLES:
        return SAMPLES[kind]
    if origin in (typing.Union, types.UnionType):
        return sample(arguments[0])
    if origin is tuple:
        return (sample(arguments[0]),)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {sample(arguments[0]): sample(arguments[1])}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return list(kind)[-1]
    hints = typing.get_type_hints(kind)
    return kind(**{name: sample(hints[name]) for name in inspect.signature(kind).parameters})


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_value_survives_pickle_and_copy(name: str) -> None:
    """A pool of processes is where the work of a listener often goes."""
    public = PUBLIC[name]
    survives(public)
    if isinstance(public, enum.EnumType):
        for each in list[Any](public):
            survives(each)
    elif isinstance(public, type):
        survives(sample(public))


def test_what_a_broker_has_answered_survives_too(broker: FakeBroker) -> None:
    """The compiled loops make these without a call of their class."""
    with Producer(broker.endpoint, "shop") as producer:
        survives(producer.send(Message("orders", b"x", tags="a", keys="k", properties={"p": "q"})))
        survives(producer.send_batch([Message("orders", b"y"), Message("orders", b"z")]))
    with PullConsumer(broker.endpoint, "report") as consumer:
        result = consumer.pull("orders", 0)
    assert len(result.messages) == 3
    survives(result)
    survives(result.messages[0])
    survives({Queue("orders", 0): 3})
