"""Every value that a user hands to a client is checked before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rmqlite import client
from rmqlite.client import (
    AdminClient,
)
from rmqlite.kernel.words.errors import InvalidValue
from tests.support.fake_broker import FakeBroker

c: Any = client
"""For mypy, which would see every one of these mistakes."""
IN_A_REQUEST = "request must be of the types that it declares, not "
WRONG: list[tuple[Callable[..., Any], str]] = [
    (lambda _: c.Producer(5, "g"), "endpoint must be str, not int"),
    (lambda e: c.Producer(e, "g").send("text"), "message must be a Message"),
    (lambda e: c.Producer(e, "g").send_async(b"x"), "message must be a Message"),
    (lambda e: c.Producer(e, "g").send_batch(["x"]), "message must be a Message"),
    (lambda e: c.Producer(e, "g").send_batch(5), "messages must be a sequence of Message, not int"),
    (lambda e: c.Producer(e, "g").send(c.Message("orders", b"x"), "2"), IN_A_REQUEST),
    (lambda e: c.PushConsumer(e, 5), "group must be str, not int"),
    (lambda e: c.PushConsumer(e, "g", 5), "listener must be a function"),
    (lambda e: c.PushConsumer(e, "g").listen("print"), "listener must be a function"),
    (lambda e: c.PushConsumer(e, "g").subscribe(["orders"]), "topic must be str, not list"),
    (lambda e: c.PullConsumer(e, "g").pull("orders", "0"), IN_A_REQUEST),
    (lambda e: c.AdminClient(e).create_topic("t", "4"), IN_A_REQUEST),
    (lambda e: c.AdminClient(e).schedule.cancel("A", 5), IN_A_REQUEST),
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
