"""Recall handles: written as RocketMQ 5 writes them, read as leniently and as strictly as there."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest

from rmqlite.features.changes.requests import RecallHandle, read_handle
from rmqlite.kernel.words.errors import InvalidValue

CAPTURED = (
    "djEgVF9yZWNhbGwgYnJva2VyLWEgMTc5NTU3NTIzMTAwMSBDMDAwMDIwMjQxMTI1RkZEMkIyNzdDMzZERTk4MDAwMA=="
)
"""In the answer of a RocketMQ 5.3.2; the record's TIMER_OUT_MS was 1795575231000."""
HANDLE = RecallHandle("T_recall", "broker-a", 1795575231000, "C000020241125FFD2B277C36DE980000")


def handle_of(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode()


def test_a_handle_of_rocketmq_is_read_and_written_again() -> None:
    """A client keeps it for years, perhaps over a change of broker."""
    assert HANDLE.text() == CAPTURED
    assert read_handle(CAPTURED) == HANDLE


@pytest.mark.parametrize("message_id", ["x", "xy", "xyz", "¿Ä?", "k" * 30_000])
def test_a_handle_is_read_with_and_without_its_padding(message_id: str) -> None:
    """Whoever puts it into an address may drop the padding."""
    handle = HANDLE._replace(message_id=message_id)
    assert read_handle(handle.text()) == handle
    assert read_handle(handle.text().rstrip("=")) == handle


@pytest.mark.parametrize("message_id", ["", "two words", " x"])
def test_an_id_that_cannot_be_named_gets_no_handle(message_id: str) -> None:
    """A handle that names another message would be worse than none."""
    assert HANDLE._replace(message_id=message_id).text() == ""


def test_a_sixth_part_does_not_count() -> None:
    """As in RocketMQ 5.3.2."""
    assert read_handle(handle_of("v1 t b 8 id more")) == RecallHandle("t", "b", 7, "id")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "***",
            "====",
            "A",
            "djEg=",
            "djE=====",
            "djEg djEg",
            CAPTURED + "=",
            CAPTURED + "\n",
        ),
        *(CAPTURED[:-1], CAPTURED.replace("w", "+"), CAPTURED.replace("w", "/"), "ä" * 8),
        *map(handle_of, ("v2 t b 8 id", "v1 t b 8", "v1 t b 8 ", "v1  t b 8", "v1 t b x id")),
        *map(handle_of, ("v1 t b  id", "v1 t b 8.0 id", "v1 t b 12345678901234567890 id", "v1")),
        urlsafe_b64encode(b"v1 t b 8\xff id").decode(),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """And the error names the field of the request."""
    with pytest.raises(InvalidValue) as raised:
        read_handle(text)
    assert raised.value.field == "recallHandle"
