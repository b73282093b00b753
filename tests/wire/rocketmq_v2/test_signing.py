"""A signature as RocketMQ 5's clients make it is read; all else is refused without a value."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from rmqlite.protocols.rocketmq_v2.bytes.codes import Code, RocketmqRefusal
from rmqlite.protocols.rocketmq_v2.calls import (
    SKEW_S_MAX,
    ZONES_S_MAX,
    SignedMetadata,
    is_right,
    read_signed,
)
from tests.support.rocketmq_v2 import header_of

SECRET = "a secret of some length"
DATE = "20231114T221320Z"
NOW_MS = 1_700_000_000_000
HEX = "69a91d9e3cc65a8fd1cbe7b2a17c6e8dd0ee02ca"


def signed(header: str | bytes | None, date: str | None = DATE) -> SignedMetadata | None:
    entries: list[tuple[str, str | bytes]] = [("x-mq-client-id", "a"), ("x-mq-namespace", "")]
    if header is not None:
        entries.append(("authorization", header))
    if date is not None:
        entries.append(("x-mq-date-time", date))
    return read_signed(entries)


def header(credential: str = "operator", signature: str = HEX) -> str:
    return (
        f"MQv2-HMAC-SHA1 Credential={credential}, SignedHeaders=x-mq-date-time,"
        f" Signature={signature}"
    )


def read(text: str) -> SignedMetadata:
    found = signed(text)
    assert found is not None
    return found


def test_the_signature_is_that_of_the_time() -> None:
    """HMAC-SHA1, in hex of either case: Python writes lower case, Node upper case."""
    made = hmac.new(SECRET.encode(), DATE.encode(), hashlib.sha1).hexdigest()
    for text in (made, made.upper()):
        assert is_right(read(header(signature=text)), SECRET)
    assert signed(header_of("operator", SECRET, DATE)) == read(header(signature=made))
    assert not is_right(read(header()), SECRET)
    assert not is_right(read(header(signature=made)), SECRET + "x")


def test_the_account_is_what_stands_before_the_first_slash() -> None:
    """Clients for Java put a region and a service behind it."""
    found = read(header("operator/cn/RocketMQ"))
    assert (found.access_key, found.date_time) == ("operator", DATE)


@pytest.mark.parametrize("text", [None, header(""), header("", "")])
def test_a_call_without_an_account_is_not_signed(text: str | None) -> None:
    """Python signs with an empty name and an empty secret if it has none."""
    assert signed(text) is None


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("", DATE),
        (b"MQv2", DATE),
        ("Basic b3BlcmF0b3I6cGFzcw==", DATE),
        (header().replace("SHA1", "SHA256"), DATE),
        (header(signature=HEX[:-1]), DATE),
        (header(signature=HEX[:-1] + "g"), DATE),
        (header().replace("x-mq-date-time", "x-mq-client-id"), DATE),
        (header().replace(", Signature", " Signature"), DATE),
        (header() + ", Credential=other", DATE),
        (header().replace("Credential=", "Credential:"), DATE),
        (header("x" * 256), DATE),
        (header() + "," * 1_024, DATE),
        (header("a\x00b"), DATE),
        (header(), None),
        (header(), ""),
        (header(), "2023-11-14T22:13:20Z"),
        (header(), DATE + "\n"),
        (header(), "1" * 100_000),
    ],
    ids=repr,
)
def test_a_damaged_entry_is_refused(text: str | bytes, date: str | None) -> None:
    """And logs show neither a signature nor a credential."""
    with pytest.raises(RocketmqRefusal) as raised:
        signed(text, date)
    assert raised.value.code is Code.UNAUTHORIZED
    assert HEX[:8] not in str(raised.value)
    assert "operator" not in str(raised.value)


@pytest.mark.parametrize("name", ["authorization", "x-mq-date-time"])
def test_an_entry_that_is_given_twice_is_refused(name: str) -> None:
    """Which of the two counts would be anybody's guess."""
    entries = [("authorization", header()), ("x-mq-date-time", DATE)]
    with pytest.raises(RocketmqRefusal, match=f"{name} must be given once"):
        read_signed([*entries, (name, dict(entries)[name])])


def test_a_signature_of_any_time_zone_is_fresh_for_a_day() -> None:
    """Python writes the local time as if it were UTC."""
    found = read(header())
    most_ms = 1_000 * (ZONES_S_MAX + SKEW_S_MAX)
    assert found.is_fresh(NOW_MS)
    assert found.is_fresh(NOW_MS + most_ms)
    assert found.is_fresh(NOW_MS - most_ms)
    assert not found.is_fresh(NOW_MS + most_ms + 1_000)
    assert not found.is_fresh(NOW_MS - most_ms - 1_000)


@pytest.mark.parametrize(
    "date", ["00000000T000000Z", "20231399T996199Z", "99999999T999999Z", "00000101T000000Z"]
)
def test_a_time_that_never_was_is_not_fresh(date: str) -> None:
    """It has the form of one."""
    found = signed(header(), date)
    assert found is not None
    assert not found.is_fresh(NOW_MS)


@pytest.mark.parametrize("date", ["20231132T000000Z", "20231114T240000Z", "20231114T226000Z"])
def test_a_time_that_another_one_is_meant_by_is_not_fresh(date: str) -> None:
    """Adding it up would give one of this day."""
    found = signed(header(), date)
    assert found is not None
    assert not found.is_fresh(NOW_MS)


def test_logs_do_not_show_a_signature() -> None:
    """Whoever reads it could use it."""
    assert repr(read(header())) == f"Signed('operator', '{DATE}')"
