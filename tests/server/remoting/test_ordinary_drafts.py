"""Drafts of single sends by the compiled form, beside their plain twin."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rmqlite.kernel import compiled
from rmqlite.kernel.records.drafts import Draft
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.fields import FieldError
from rmqlite.protocols.remoting.bytes.requests.sends import (
    SEND_MESSAGE,
    SEND_MESSAGE_V2,
    SendMessage,
)
from rmqlite.protocols.remoting.requests.sends import call_of, ordinary_draft
from tests.support.forms import needs_compiled
from tests.support.sends import BORN_HOST
from tests.support.thinned import part_of

pytestmark = needs_compiled

SENT = SendMessage("orders", "senders", queue_id=2, born_timestamp=17, properties="KEYS\x01k")
ORDINARY = {**SEND_MESSAGE_V2.fields.write(SENT), "n": "broker-a"}
NUMBERS = ("0", "7", "-1", "2147483647", "-2147483648", "2147483648", "9" * 18, "9" * 19)
ODD = ("", "+7", "-", "1_0", " 1", "1.5", "\u0667", "true", "false", "0x1", "1" * 30)
TEXTS = ("orders", "", "%RETRY%g", "%DLQ%g", "Größe", "x" * 127, "x" * 128, "a\x01b\x02", "\ud800")


def command_of(ext: dict[str, str], code: int = SEND_MESSAGE_V2.code) -> Command:
    return Command(code, 1, ext, b"body", version=399)


def is_ordinary(ext: dict[str, str]) -> bool:
    """Does the compiled form take it?  If so, with the plain form's draft."""
    command = command_of(ext)
    draft = ordinary_draft(command, BORN_HOST)
    if draft is None:
        return False
    send = SEND_MESSAGE_V2.fields.read(ext)
    (plain,) = call_of(send, command, BORN_HOST).drafts
    assert (type(draft), draft) == (Draft, plain)
    assert list(map(type, draft)) == list(map(type, plain))
    return True


@settings(max_examples=part_of(600))
@given(
    some.dictionaries(
        some.sampled_from("abcdefghijklm"), some.sampled_from(NUMBERS + ODD + TEXTS), max_size=3
    ),
    some.sets(some.sampled_from("abcdefghijklm"), max_size=2),
)
def test_every_request_makes_the_same_draft(changed: dict[str, str], absent: set[str]) -> None:
    """Whatever its fields are, and whichever are missing."""
    ext = {name: text for name, text in (ORDINARY | changed).items() if name not in absent}
    is_ordinary(ext)


def test_what_clients_send_is_ordinary() -> None:
    """Otherwise the other tests would compare the plain form with itself."""
    assert is_ordinary(ORDINARY)
    assert is_ordinary({"b": "orders"})
    assert is_ordinary(ORDINARY | {"i": "", "g": "-7", "e": "-1", "f": "-2147483648"})


@pytest.mark.parametrize(
    "odd",
    [
        {"b": ""},
        {"b": "%RETRY%g"},
        {"b": "x" * 128},
        {"a": "x" * 128},
        {"i": "x" * 32_768},
        {"m": "true"},
        {"m": ""},
        *[{letter: "7 "} for letter in "defghjl"],
        *[{letter: "2147483648"} for letter in "defhjl"],
    ],
)
def test_what_is_out_of_the_ordinary_is_left_to_the_plain_form(odd: dict[str, str]) -> None:
    """It decides, and refuses."""
    assert not is_ordinary(ORDINARY | odd)


def test_only_one_request_has_the_short_names() -> None:
    """In the others the letters mean nothing."""
    assert ordinary_draft(command_of(ORDINARY, SEND_MESSAGE.code), BORN_HOST) is None
    with pytest.raises(FieldError):
        SEND_MESSAGE.fields.read(ORDINARY)


def test_another_class_is_an_error() -> None:
    """And no crash."""
    wrong: Any = dict
    with pytest.raises(TypeError):
        compiled.loops.make_draft(ORDINARY, b"", BORN_HOST, wrong)
