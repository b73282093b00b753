"""Errors cross the wire whole: class, sentence, field, value and rule."""

from __future__ import annotations

import base64
import inspect
from typing import Any
from urllib.parse import quote

import grpc
import pytest

from rmqlite.kernel.words import errors
from rmqlite.kernel.words.errors import BrokerUnreachable, MessageTooLarge, RmqliteError, by_code
from rmqlite.kernel.words.visible import ECHO_CHARS_MAX
from rmqlite.protocols.pb import rmqlite_pb2 as pb
from rmqlite.protocols.shared.status import (
    ERROR_METADATA,
    STATUS_NAMES,
    error_from_metadata,
    error_from_status,
    error_to_metadata,
    error_to_status,
)

RAISED: tuple[RmqliteError, ...] = (
    RmqliteError("a sentence"),
    errors.Refused("a sentence", field="f", value=1, rule="r"),
    errors.Unavailable("a sentence"),
    errors.InvalidValue("queue_id", 9, "0 <= queue_id < 4"),
    errors.InvalidName("topic", "a b", "only letters"),
    errors.ExpressionInvalid("sql", "a >", "expected a value", at=3),
    errors.MessageTooLarge("body", 5_000_000, "at most 4194304 bytes"),
    errors.DelayUnknown("4s", "1s 5s"),
    errors.TimersOff("TIMER_DELAY_MS", "5000", "left out"),
    errors.HandleInvalid("AAAA"),
    errors.ConfigInvalid("a.conf", 3, "listenPort", "x", "a whole number"),
    errors.TopicUnknown("orders"),
    errors.TopicExists("orders"),
    errors.PermissionMissing("orders", "sending to", "perm lacks 2"),
    errors.AccessDenied("access denied: a rule", rule="a rule"),
    errors.QueueUnknown("orders", 9, 4),
    errors.GroupUnknown("g"),
    errors.GroupInUse("g", 3),
    errors.MessageNotFound(2**40),
    errors.OffsetGone("topic orders queue 1", 17, 4096),
    errors.JobUnknown("nightly"),
    errors.JobExists("nightly"),
    errors.JobOver("nightly", "cancelled"),
    errors.ExtraMissing("pyarrow 18 or newer", "none", "pip install it"),
    errors.NotSupported("transactions are not supported"),
    errors.StoreDamaged("commitlog/0", 17, "a record", "zeros"),
    errors.StoreLocked("/data"),
    errors.RepairRefused("a repair would take away 2 files"),
    errors.StoreUnavailable("write", "/data/x", "No space left on device"),
    errors.DiskFull(0.93, 90, 85),
    errors.FlushFailed("no flush within 5000 ms", field="syncFlushTimeout", value=5000),
    errors.NotMaster("10.0.0.7:8081"),
    errors.BrokerClosing(),
    errors.Overloaded("maxParkedPolls", 100_000),
    errors.BrokerUnreachable("no answer"),
)


def test_every_error_has_a_status() -> None:
    """An error without one would reach the client as INTERNAL."""
    assert set(STATUS_NAMES) == set(by_code())


def test_every_status_is_one_of_grpcs() -> None:
    """The table is by name, so that the wire does not load gRPC."""
    assert set(STATUS_NAMES.values()) <= {status.name for status in grpc.StatusCode}


@pytest.mark.parametrize("code", sorted(STATUS_NAMES))
def test_a_status_says_as_the_error_does_whether_a_retry_can_help(code: str) -> None:
    """The proto's opening comment promises it to clients that know only gRPC."""
    may_work_later = {"UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
    assert (STATUS_NAMES[code] in may_work_later) == by_code()[code].can_retry


@pytest.mark.parametrize("error", RAISED, ids=lambda error: error.code)
def test_an_error_arrives_as_it_was_raised(error: RmqliteError) -> None:
    """So a caller catches TopicUnknown on either side of the wire."""
    restored = error_from_metadata(error_to_metadata(error))
    assert type(restored) is type(error)
    assert str(restored) == str(error)
    assert (restored.field, restored.value, restored.rule) == (
        error.field,
        error.value,
        error.rule,
    )


def test_every_error_class_is_tried_above() -> None:
    """A new class comes with its line in RAISED."""
    assert {type(error) for error in RAISED} == set(by_code().values())


@pytest.mark.parametrize("error", RAISED, ids=lambda error: error.code)
def test_programs_that_know_only_the_proto_see_codes_too(error: RmqliteError) -> None:
    """RocketMQ's response code and whether to try again, beside our own code."""
    message = pb.Error.FromString(error_to_metadata(error))
    assert message.code == type(error).code
    assert message.response_code == type(error).response_code
    assert message.can_retry is type(error).can_retry


def test_the_metadata_key_is_a_binary_one() -> None:
    """gRPC refuses arbitrary bytes under any other key."""
    assert ERROR_METADATA.endswith("-bin")
    assert ERROR_METADATA.islower()


HOSTILE = ("a" * 20_000, "€" * 20_000, "\U0001f4a5" * 20_000, "\x00" * 20_000, "b" * (1 << 20))


def raised_with(cls: type[RmqliteError], text: str) -> RmqliteError:
    """An error of a class, with this as every text that it takes."""
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= {"field": text, "value": text, "rule": text}
        elif parameter.annotation in ("str", "object"):
            given[name] = text
        elif parameter.default is parameter.empty:
            given[name] = 2**62
    return cls(**given)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("cls", by_code().values(), ids=lambda cls: cls.code)
@pytest.mark.parametrize("text", HOSTILE, ids=["ascii", "euro", "astral", "nul", "1 MiB"])
def test_an_error_fits_into_grpcs_headers_whatever_it_is_about(
    cls: type[RmqliteError], text: str
) -> None:
    """Beyond 8 KiB the caller gets RESOURCE_EXHAUSTED in its place, and never learns why."""
    name, details, metadata = error_to_status(raised_with(cls, text))
    # As they are sent: percent-encoded, and in base64.
    sent = len(quote(details)) + len(base64.b64encode(metadata))
    assert sent + len(ERROR_METADATA) + 200 < 8_192
    restored = error_from_metadata(metadata)
    assert type(restored) is cls
    assert (name, details) == (STATUS_NAMES[cls.code], str(restored))


@pytest.mark.parametrize("name", ["a" * 20_000, "€" * 20_000])
def test_a_sentence_about_a_long_name_still_ends_with_what_is_wrong(name: str) -> None:
    """Only the name is cut, and it says how long it was."""
    _, details, _ = error_to_status(errors.InvalidName("topic", name, "at most 127 characters"))
    assert details.startswith(
        f"topic must be at most 127 characters, not '{name[:ECHO_CHARS_MAX]}…"
    )
    assert details.endswith("(20,000 characters)'")


def test_text_that_utf8_cannot_write_does_not_hide_the_error() -> None:
    """Half a surrogate pair, as a form can send it."""
    _, details, metadata = error_to_status(errors.TopicUnknown("\ud83d"))
    assert details == str(error_from_metadata(metadata))


def test_metadata_that_cannot_be_read_is_an_error_all_the_same() -> None:
    """The call failed; only why is lost."""
    assert type(error_from_metadata(b"\xff")) is RmqliteError


def test_a_transport_failure_is_an_unreachable_broker() -> None:
    """These may work later; a proxy's or gRPC's own status carries no metadata of ours."""
    for name in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"):
        error = error_from_status(name, "connection refused")
        assert isinstance(error, BrokerUnreachable)
        assert error.can_retry
        assert "connection refused" in str(error)


def test_a_call_too_large_for_grpc_is_too_large() -> None:
    """gRPC's own limit answers RESOURCE_EXHAUSTED before the broker sees the call."""
    assert isinstance(error_from_status("RESOURCE_EXHAUSTED", "too big"), MessageTooLarge)


def test_any_other_status_keeps_its_name() -> None:
    """For a bug report."""
    error = error_from_status("UNIMPLEMENTED", "Method not found!")
    assert type(error) is RmqliteError
    assert str(error) == "UNIMPLEMENTED: Method not found!"
