"""How a call of rmqlite.v1 is signed: four entries of its gRPC metadata.

    rmqlite-access-key   the name of the account
    rmqlite-date         when the client made the call, in milliseconds since 1970
    rmqlite-nonce        16 hex digits of the client, "-", and the client's count of its calls
    rmqlite-signature    base64 of HMAC-SHA256(secret, access key \\n path \\n date \\n nonce)

A right signature proves that somebody with the secret made this call at this time.  Date and
nonce let the broker refuse a copy of the call (protocols/native/replays.py).

The signature covers neither the body of the request nor the broker's address.  Whoever can change
what travels can put another body under a signature, or take a call to another broker with the
same account.  Only TLS protects against both, and only TLS hides what is sent.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
import threading
from collections.abc import Iterable
from typing import Final, NamedTuple

from rmqlite.kernel.words.errors import InvalidValue

ACCESS_KEY: Final = "rmqlite-access-key"
DATE: Final = "rmqlite-date"
NONCE: Final = "rmqlite-nonce"
SIGNATURE: Final = "rmqlite-signature"

ACCESS_KEY_CHARS_MAX: Final = 255
DATE_CHARS_MAX: Final = 15
NONCE_CHARS_MAX: Final = 35
SIGNATURE_CHARS_MAX: Final = 44
_INSTANCE_BYTES: Final = 8

# One text for each value, without a line feed: so two calls never sign the same text.
_FORMS: Final = {
    ACCESS_KEY: (ACCESS_KEY_CHARS_MAX, re.compile("[!-~]+"), "visible ASCII characters"),
    DATE: (DATE_CHARS_MAX, re.compile("0|[1-9][0-9]*"), "milliseconds since 1970"),
    NONCE: (
        NONCE_CHARS_MAX,
        re.compile("[0-9a-f]{16}-(?:0|[1-9][0-9]*)"),
        "16 hex digits in lower case, '-' and a whole number",
    ),
    SIGNATURE: (SIGNATURE_CHARS_MAX, re.compile("[A-Za-z0-9+/]{43}="), "32 bytes in base64"),
}
"""For each entry: its length, its form, and the form in words."""


class Signed(NamedTuple):
    """Who says to have made a call, and when.  Nothing is proved before is_right()."""

    access_key: str
    date_ms: int
    instance: str
    """The client: each one draws 64 random bits."""
    counter: int
    """Which of the client's calls it is."""
    signature: bytes

    def __repr__(self) -> str:
        """Without the signature, because logs may get this text."""
        return f"Signed({self.access_key!r}, {self.date_ms}, {self.instance}-{self.counter})"


class Signer:
    """Signs the calls of one client.  Usable from any thread; a forked process makes its own."""

    __slots__ = ("_access_key", "_counter", "_instance", "_lock", "_secret")

    def __init__(self, access_key: str, secret: str) -> None:
        """Raises InvalidValue, without the value: somebody may have exchanged the two."""
        _check_form(ACCESS_KEY, access_key, "accessKey")
        try:
            self._secret = secret.encode()
        except UnicodeEncodeError:
            raise InvalidValue("secretKey", "", "text in UTF-8") from None
        if not secret:
            raise InvalidValue("secretKey", "", "at least one character")
        self._access_key = access_key
        self._instance = secrets.token_hex(_INSTANCE_BYTES)
        self._counter = 0
        self._lock = threading.Lock()

    def metadata(self, path: str, now_ms: int) -> tuple[tuple[str, str], ...]:
        """The entries for one call, such as of "/rmqlite.v1.Messaging/Send"; no two are equal."""
        with self._lock:
            self._counter += 1
            counter = self._counter
        signature = _signature(
            self._secret, self._access_key, path, now_ms, self._instance, counter
        )
        return (
            (ACCESS_KEY, self._access_key),
            (DATE, str(now_ms)),
            (NONCE, f"{self._instance}-{counter}"),
            (SIGNATURE, base64.b64encode(signature).decode()),
        )


def read_signed(metadata: Iterable[tuple[str, str | bytes]]) -> Signed | None:
    """The entries of a call's metadata; None if it has no access key: the call is not signed.

    Raises InvalidValue, without the value, for an entry that is missing, damaged or given twice.
    """
    found: dict[str, str] = {}
    for key, value in metadata:
        if key in _FORMS:
            if key in found:
                raise InvalidValue(key, "given twice", "given once")
            found[key] = value if isinstance(value, str) else ""
    if ACCESS_KEY not in found:
        return None
    for key in _FORMS:
        _check_form(key, found.get(key, ""), key)
    instance, _, counter = found[NONCE].partition("-")
    return Signed(
        found[ACCESS_KEY],
        int(found[DATE]),
        instance,
        int(counter),
        base64.b64decode(found[SIGNATURE]),
    )


def is_right(signed: Signed, path: str, secret: str) -> bool:
    """Was a call of this path signed with this secret?  Takes the same time for every answer."""
    access_key, date_ms, instance, counter, signature = signed
    expected = _signature(secret.encode(), access_key, path, date_ms, instance, counter)
    return hmac.compare_digest(expected, signature)


def _signature(
    secret: bytes, access_key: str, path: str, date_ms: int, instance: str, counter: int
) -> bytes:
    text = f"{access_key}\n{path}\n{date_ms}\n{instance}-{counter}"
    return hmac.digest(secret, text.encode(), "sha256")


def _check_form(key: str, value: str, field: str) -> None:
    chars_max, form, words = _FORMS[key]
    # The length first: no work for a text of any length.
    if len(value) > chars_max or not form.fullmatch(value):
        rule = f"{words}, 1 to {chars_max} characters"
        raise InvalidValue(field, f"{len(value)} characters", rule)
