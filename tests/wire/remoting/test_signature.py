"""Signatures are those that the real clients made, and a changed request has another one."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.protocols.remoting.bytes.command import (
    ACCESS_KEY,
    SIGNATURE,
    Command,
    is_signed,
    signature,
)
from tests.support.exchanges import command_of, frame_of, scenarios

SECRETS = ("12345678", "wrongpassw", "")
"""Of the captured Java clients; C++ signs with an empty one if it has no credentials."""


def signed_commands() -> list[Command]:
    """All captured requests that were signed and have all their bytes."""
    found = []
    for rows in scenarios().values():
        for row in rows:
            frame = frame_of(row)
            if frame is None or row["dir"] != "client->server":
                continue
            command = command_of(frame)
            # C++ ends a JSON body with a line feed, which some rows do not have any more.
            body = command.body + b"\n" * (row["body_len"] - len(command.body))
            if SIGNATURE in command.ext:
                found.append(command._replace(body=body))
    return found


def test_every_captured_signature_is_computed_again() -> None:
    """Java's and C++'s, with fields that the broker does not know."""
    commands = signed_commands()
    wrong = [each for each in commands if not any(is_signed(each, s) for s in SECRETS)]
    assert wrong == []
    keys = {each.ext.get(ACCESS_KEY) for each in commands}
    assert (len(commands) >= 182, keys >= {"rocketmqadm", "RocketMQ"}) == (True, True)


@pytest.mark.parametrize(
    "changed",
    [
        {"body": b"other"},
        {"ext": {"topic": "orders", "a": "2", "b": "1"}},
        {"ext": {"topic": "orders", "a": "1"}},
        {"ext": {"topic": "orders", "a": "1", "b": "2", "c": "3"}},
    ],
)
def test_a_changed_request_is_not_signed(changed: dict[str, Any]) -> None:
    """Nor one with a cut signature, or none."""
    ext = {"topic": "orders", "b": "2", "a": "1"}
    made = signature(ext, b"body", "a secret")
    command = Command(310, 1, ext | {SIGNATURE: made}, b"body")
    assert is_signed(command, "a secret")
    assert is_signed(command._replace(ext={**command.ext, "_UNIQUE_KEY_QUERY": "true"}), "a secret")
    other = command._replace(**changed)
    assert not is_signed(other._replace(ext={**other.ext, SIGNATURE: made}), "a secret")
    assert not is_signed(command, "b secret")
    for cut in (made[:-1], made + "=", "", "ü" * 28):
        assert not is_signed(command._replace(ext={**ext, SIGNATURE: cut}), "a secret")
    assert not is_signed(command._replace(ext=ext), "a secret")


def test_names_are_sorted_by_their_bytes() -> None:
    """Java sorts a TreeMap of names: capitals come first."""
    assert signature({"a": "2", "B": "1"}, b"", "secret") == signature({"x": "12"}, b"", "secret")
