"""Every value that a user hands to a client is checked before anything is sent."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from rmqlite import client
from rmqlite.client import (
    AdminClient,
    BulkScheduler,
    Producer,
    PullConsumer,
    PushConsumer,
    RawReader,
)
from rmqlite.client.admin.dead_letters import DeadLetterAdmin
from rmqlite.client.admin.redrive import RedriveAdmin
from rmqlite.client.admin.schedule import ScheduleAdmin
from rmqlite.errors import InvalidValue
from tests.support.fake_broker import FakeBroker

CLIENTS = (AdminClient, BulkScheduler, Producer, PullConsumer, PushConsumer, RawReader)
PARTS = (DeadLetterAdmin, RedriveAdmin, ScheduleAdmin)
BY_HAND = {"Producer.send", "Producer.send_async", "Producer.send_batch"}
"""They run for every message; the calls below try them."""


def methods(of: type) -> dict[str, Any]:
    public = {name: each for name, each in vars(of).items() if name[0] != "_" or name == "__init__"}
    return {f"{of.__name__}.{k}": each for k, each in public.items() if inspect.isfunction(each)}


def test_every_method_of_every_client_checks_its_arguments() -> None:
    """A new client, or a new method, does too."""
    closing = [each for each in vars(client).values() if hasattr(each, "close")]
    assert set(closing) == set(CLIENTS)
    of_all = {name: each for of in (*CLIENTS, *PARTS) for name, each in methods(of).items()}
    unchecked = {name for name, each in of_all.items() if not hasattr(each, "__wrapped__")}
    assert unchecked == BY_HAND


c: Any = client
"""For mypy, which would see every one of these mistakes."""
WRONG: list[tuple[Callable[..., Any], str]] = [
    (lambda _: c.Producer(5, "g"), "endpoint must be str, not int"),
    (lambda e: c.Producer(e, 5), "group must be str, not int"),
    (lambda e: c.Producer(e, "g", linger_ms="5"), "linger_ms must be float, not str"),
    (lambda e: c.Producer(e, "g").send("text"), "message must be a Message"),
    (lambda e: c.Producer(e, "g").send_async(b"x"), "message must be a Message"),
    (
        lambda e: c.Producer(e, "g").send_batch(["x"]),
        "messages must be a sequence of Message, not ",
    ),
    (lambda e: c.Producer(e, "g").cancel(5), "message_id must be str, not int"),
    (
        lambda e: c.Producer(e, "g").send(c.Message("orders", b"x"), "2"),
        "queue_id must be int, not str",
    ),
    (lambda e: c.PushConsumer(e, 5), "group must be str, not int"),
    (lambda e: c.PushConsumer(e, "g", 5), "listener must be a function or None, not int"),
    (lambda e: c.PushConsumer(e, "g").listen("print"), "listener must be a function, not str"),
    (lambda e: c.PushConsumer(e, "g", consume_threads="3"), "consume_threads must be int, not str"),
    (lambda e: c.PushConsumer(e, "g").subscribe(["orders"]), "topic must be str, not list of str"),
    (lambda e: c.PushConsumer(e, "g").subscribe("t", 5), "expression must be str, not int"),
    (lambda e: c.PullConsumer(e, "g").pull("orders", "0"), "queue_id must be int, not str"),
    (lambda e: c.PullConsumer(e, "g").seek(("t", 0), 5), "queue must be Queue, not tuple of"),
    (lambda e: c.AdminClient(e).create_topic("t", "4"), "queues must be int, not str"),
    (lambda e: c.AdminClient(e).set_group("g", can_consume=1), "can_consume must be bool or None"),
    (lambda e: c.AdminClient(e).schedule.cancel("A", 5), "message_ids must be str, not int"),
    (
        lambda e: list(c.AdminClient(e).schedule.pending(c.PendingFilter(levels=("3",)))),
        "levels must be a sequence of int, not tuple of str",
    ),
    (lambda e: c.RawReader(e).offset_at("t", "0", 0), "queue_id must be int, not str"),
    (lambda e: c.BulkScheduler(e, job_id=5), "job_id must be str, not int"),
    (lambda _: c.Credentials("a", b"secret"), "secret must be str, not bytes"),
    (lambda _: c.reconsume_later(reason=5), "reason must be str, not int"),
]


@pytest.mark.parametrize(("call", "sentence"), WRONG)
def test_a_wrong_type_is_named_and_nothing_is_sent(
    broker: FakeBroker, call: Callable[[str], Any], sentence: str
) -> None:
    """The field as the user wrote it, the rule and the type; the broker hears nothing of it."""
    with pytest.raises(InvalidValue) as error:
        call(broker.endpoint)
    assert str(error.value).startswith(sentence)
    assert not any(broker.asked.values())


@pytest.mark.parametrize(
    "endpoint",
    [
        *("", "127.0.0.1", "127.0.0.1:", ":8081", "127.0.0.1:http", "127.0.0.1:0"),
        *("127.0.0.1:65536", "::1:8081", "[::1]", "http://127.0.0.1:8081"),
        *("tls://", "tls://localhost", "tls://unix:/x"),
    ],
)
def test_an_endpoint_is_a_host_and_a_port(endpoint: str) -> None:
    """gRPC would take port 443, or the scheme for a host, and only say that it cannot connect."""
    rule = "endpoint must be host:port, such as 127.0.0.1:8081, or tls://host:port, not "
    with pytest.raises(InvalidValue) as error:
        AdminClient(endpoint)
    assert str(error.value) == f"{rule}{endpoint!r}"
