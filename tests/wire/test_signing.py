"""A signature of a call: one known vector, and everything else is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.protocols.shared import signing
from rmqlite.protocols.shared.signing import (
    ACCESS_KEY,
    ACCESS_KEY_CHARS_MAX,
    DATE,
    NONCE,
    SIGNATURE,
    Signed,
    Signer,
    is_right,
    read_signed,
)

PATH = "/rmqlite.v1.Messaging/Send"
NOW_MS = 1_700_000_000_000
SECRET = "a secret of some length"
VECTOR = {
    ACCESS_KEY: "operator",
    DATE: "1700000000000",
    NONCE: "0011223344556677-1",
    SIGNATURE: "tVsbLLkC2EUxPCO2VfRD4Xk74Y3Erl4O6ji9QHXgmP8=",
}


def signed(**changes: str | None) -> Signed | None:
    """The vector with other entries, by the last word of their names; None: without it."""
    entries = dict(VECTOR) | {f"rmqlite-{name}": value for name, value in changes.items()}
    return read_signed([(key, value) for key, value in entries.items() if value is not None])


def read(**changes: str) -> Signed:
    found = signed(**changes)
    assert found is not None
    return found


def test_the_signature_is_that_of_a_known_call() -> None:
    """A client in another language must be able to make the same one."""
    text = b"operator\n/rmqlite.v1.Messaging/Send\n1700000000000\n0011223344556677-1"
    made = hmac.new(SECRET.encode(), text, hashlib.sha256).digest()
    assert base64.b64encode(made).decode() == VECTOR[SIGNATURE]
    assert is_right(read(), PATH, SECRET)


def test_what_is_signed_is_read_and_right() -> None:
    """The server reads what the client writes."""
    signer = Signer("operator", SECRET)
    found = read_signed([("user-agent", "grpc"), *signer.metadata(PATH, NOW_MS), ("x-bin", b"\0")])
    assert found is not None
    assert (found.access_key, found.date_ms, found.counter) == ("operator", NOW_MS, 1)
    assert is_right(found, PATH, SECRET)


@pytest.mark.parametrize(
    "changed",
    [
        read()._replace(access_key="operatos"),
        read()._replace(date_ms=1_700_000_000_001),
        read()._replace(instance="0011223344556678"),
        read()._replace(counter=2),
        read()._replace(signature=bytes(32)),
        read()._replace(signature=b""),
    ],
)
def test_a_changed_entry_makes_the_signature_wrong(changed: Signed) -> None:
    """Two accounts may have the same secret, so the access key is signed, too."""
    assert not is_right(changed, PATH, SECRET)


def test_another_path_or_secret_makes_the_signature_wrong() -> None:
    """A captured look at the topics must not become a purge."""
    assert not is_right(read(), PATH + "Back", SECRET)
    assert not is_right(read(), PATH, SECRET + "s")
    assert not is_right(read(), PATH, "")


def test_a_call_without_an_access_key_is_not_signed() -> None:
    """It is up to the rules of the broker whether it is allowed."""
    assert signed(**{"access-key": None}) is None
    assert read_signed([]) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("access-key", ""),
        ("access-key", "k" * (ACCESS_KEY_CHARS_MAX + 1)),
        ("access-key", "a\nb"),
        ("access-key", "two words"),
        ("access-key", "schlüssel"),
        ("date", None),
        ("date", "soon"),
        ("date", "-1"),
        ("date", "01"),
        ("date", "1" * 16),
        ("date", "\u0661\u0667"),
        ("nonce", None),
        ("nonce", "0011223344556677"),
        ("nonce", "0011223344556677-"),
        ("nonce", "001122334455667-1"),
        ("nonce", "001122334455667A-1"),
        ("nonce", "0011223344556677-01"),
        ("nonce", "0011223344556677--1"),
        ("nonce", "0011223344556677-" + "9" * 19),
        ("signature", None),
        ("signature", ""),
        ("signature", VECTOR[SIGNATURE][:-1]),
        ("signature", VECTOR[SIGNATURE] + "\n"),
        ("signature", "!" * 43 + "="),
        ("signature", "A" * 1_000_000),
    ],
)
def test_a_damaged_entry_is_refused_by_its_name(field: str, value: str | None) -> None:
    """The rule says what is expected; the value may be a secret in the wrong place."""
    with pytest.raises(InvalidValue) as raised:
        signed(**{field: value})
    assert raised.value.field == f"rmqlite-{field}"
    assert raised.value.rule
    assert not value or len(value) < 2 or value not in str(raised.value)


def test_an_entry_that_comes_twice_or_as_bytes_is_refused() -> None:
    """Else two programs on the way could each look at another one."""
    with pytest.raises(InvalidValue, match="given once"):
        read_signed([*VECTOR.items(), (DATE, VECTOR[DATE])])
    with pytest.raises(InvalidValue, match=SIGNATURE):
        read_signed((VECTOR | {SIGNATURE: VECTOR[SIGNATURE].encode()}).items())


KEYS = st.sampled_from([*VECTOR, "user-agent"])
VALUES = st.sampled_from([*VECTOR.values()]) | st.text(max_size=50) | st.binary(max_size=50)


@given(st.lists(st.tuples(KEYS, VALUES), max_size=6))
def test_any_metadata_is_read_or_refused(metadata: list[tuple[str, str | bytes]]) -> None:
    """Nothing else gets out: an outsider chooses every byte of it."""
    try:
        found = read_signed(metadata)
    except InvalidValue:
        return
    if found is None:
        assert ACCESS_KEY not in dict(metadata)
        return
    assert dict(metadata)[NONCE] == f"{found.instance}-{found.counter}"
    assert is_right(found, PATH, SECRET) == (dict(metadata) | VECTOR == dict(metadata))


@given(st.text(min_size=1, max_size=100), st.integers(0, 10**15 - 1))
def test_any_secret_of_unicode_signs(secret: str, now_ms: int) -> None:
    """Secrets are made by other programs; a lone surrogate has no bytes and is refused."""
    try:
        signer = Signer("k", secret)
    except InvalidValue:
        assert any("\ud800" <= each <= "\udfff" for each in secret)
        return
    found = read_signed(signer.metadata(PATH, now_ms))
    assert found is not None
    assert is_right(found, PATH, secret)
    assert not is_right(found, PATH, secret + "x")


def test_no_two_calls_of_a_client_have_the_same_nonce() -> None:
    """Also from several threads; and two clients differ by the random part."""
    signer, other = Signer("k", SECRET), Signer("k", SECRET)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: dict(signer.metadata(PATH, NOW_MS))[NONCE], range(2_000)))
    assert len(set(made)) == 2_000
    assert {each.split("-")[0] for each in made}.isdisjoint(
        [dict(other.metadata(PATH, NOW_MS))[NONCE].split("-")[0]]
    )


@pytest.mark.parametrize(
    ("access_key", "secret", "field"),
    [("", "s", "accessKey"), ("a b", "s", "accessKey"), ("a", "", "secretKey")],
)
def test_a_signer_refuses_what_cannot_travel(access_key: str, secret: str, field: str) -> None:
    """At the start of a client, not at each of its calls."""
    with pytest.raises(InvalidValue) as raised:
        Signer(access_key, secret)
    assert raised.value.field == field


def test_neither_secret_nor_signature_is_shown() -> None:
    """A value lands in a log sooner or later."""
    assert SECRET not in repr(Signer("k", SECRET))
    found = read()
    assert found.signature.hex() not in f"{found!r} {found}"
    assert repr(found.signature) not in f"{found!r} {found}"
    assert repr(found) == "Signed('operator', 1700000000000, 0011223344556677-1)"


def test_the_limits_are_those_of_the_longest_values() -> None:
    """A limit below them would refuse right calls one day."""
    last = signing.read_signed(
        [
            (ACCESS_KEY, "k" * ACCESS_KEY_CHARS_MAX),
            (DATE, "9" * signing.DATE_CHARS_MAX),
            (NONCE, "f" * 16 + "-" + "9" * (signing.NONCE_CHARS_MAX - 17)),
            (SIGNATURE, VECTOR[SIGNATURE]),
        ]
    )
    assert last is not None
    assert last.counter == 10**18 - 1
