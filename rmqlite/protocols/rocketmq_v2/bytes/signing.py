"""How a call of these clients is signed: two entries of its gRPC metadata.

    x-mq-date-time  when the client made the call, such as 20240229T235959Z
    authorization   MQv2-HMAC-SHA1 Credential=NAME, SignedHeaders=x-mq-date-time, Signature=HEX

HEX is HMAC-SHA1(secret, date and time).  So a signature is good for every call, request and broker
with the same account, and whoever reads one can use it: only TLS hides it.  The client for Python
signs the local time and says that it is UTC, so that a signature is refused only when it is older
than a new one from any time zone can seem.  It also signs without an account: then the call counts
as not signed.
"""

from __future__ import annotations

import hmac
import re
from calendar import monthrange, timegm
from collections.abc import Iterable
from typing import Final, NamedTuple

from rmqlite.protocols.rocketmq_v2.bytes.codes import Code, RocketmqRefusal
from rmqlite.protocols.shared.signing import ACCESS_KEY_CHARS_MAX

AUTHORIZATION: Final = "authorization"
DATE_TIME: Final = "x-mq-date-time"
ZONES_S_MAX: Final = 14 * 3_600
"""How far local time may be from UTC."""
SKEW_S_MAX: Final = 900
"""How wrong the clock of a client may be."""
_ALGORITHM: Final = "MQv2-HMAC-SHA1"
_HEADER_CHARS_MAX: Final = 1_024
_PARTS: Final = re.compile(r"([A-Za-z]{1,32})=([^,\s]*)")
_DATE: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_HEX: Final = re.compile("[0-9A-Fa-f]{40}")
_FORM: Final = (
    f"{AUTHORIZATION} must be '{_ALGORITHM} Credential=NAME, SignedHeaders={DATE_TIME},"
    " Signature=HEX'"
)


class SignedMetadata(NamedTuple):
    """Who says to have made a call, and when.  Nothing is proved before is_right()."""

    access_key: str
    date_time: str
    signature: bytes

    def is_fresh(self, now_ms: int) -> bool:
        """May it be of now, with the clock of any time zone?"""
        year, month, day = map(int, (self.date_time[:4], self.date_time[4:6], self.date_time[6:8]))
        hour, minute, second = map(int, re.findall("..", self.date_time[9:15]))
        if not (year and 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]):
            return False
        if hour > 23 or minute > 59 or second > 60:
            return False
        made_at_s = timegm((year, month, day, hour, minute, second))
        return abs(now_ms // 1_000 - made_at_s) <= ZONES_S_MAX + SKEW_S_MAX

    def __repr__(self) -> str:
        """Without the signature, because logs may get this text."""
        return f"Signed({self.access_key!r}, {self.date_time!r})"


def read_signed(metadata: Iterable[tuple[str, str | bytes]]) -> SignedMetadata | None:
    """The signature in a call's metadata; None if it is not signed.

    Raises Refusal, without the value, for an entry that is missing, damaged or given twice.
    """
    found: dict[str, str] = {}
    for key, value in metadata:
        if key in (AUTHORIZATION, DATE_TIME):
            if key in found:
                raise RocketmqRefusal(Code.UNAUTHORIZED, f"{key} must be given once, not twice")
            found[key] = value if isinstance(value, str) else ""
    if AUTHORIZATION not in found:
        return None
    access_key, signature = _read(found[AUTHORIZATION])
    if not access_key:
        return None
    date_time = found.get(DATE_TIME, "")
    # The length first: no work for a text of any length.
    if len(date_time) > 16 or not _DATE.fullmatch(date_time):
        raise RocketmqRefusal(
            Code.UNAUTHORIZED, f"{DATE_TIME} must be a time such as 20240229T235959Z"
        )
    if not _HEX.fullmatch(signature):
        raise RocketmqRefusal(Code.UNAUTHORIZED, _FORM)
    return SignedMetadata(access_key, date_time, bytes.fromhex(signature))


def is_right(signed: SignedMetadata, secret: str) -> bool:
    """Was a call signed with this secret?  Takes the same time for every answer."""
    return hmac.compare_digest(_signature(secret, signed.date_time), signed.signature)


def _signature(secret: str, date_time: str) -> bytes:
    return hmac.digest(secret.encode(), date_time.encode(), "sha1")


def _read(header: str) -> tuple[str, str]:
    """Access key and signature.  Raises Refusal."""
    algorithm, _, rest = header.partition(" ")
    if len(header) > _HEADER_CHARS_MAX or algorithm != _ALGORITHM:
        raise RocketmqRefusal(Code.UNAUTHORIZED, _FORM)
    parts: dict[str, str] = {}
    for part in rest.split(","):
        match = _PARTS.fullmatch(part.strip())
        if match is None or match[1] in parts:
            raise RocketmqRefusal(Code.UNAUTHORIZED, _FORM)
        parts[match[1]] = match[2]
    # Some clients put a region behind a slash.
    access_key = parts.get("Credential", "").partition("/")[0]
    if parts.get("SignedHeaders", "").lower() != DATE_TIME:
        raise RocketmqRefusal(Code.UNAUTHORIZED, _FORM)
    if len(access_key) > ACCESS_KEY_CHARS_MAX or not access_key.isprintable():
        rule = (
            f"the Credential of {AUTHORIZATION} must be at most {ACCESS_KEY_CHARS_MAX} characters"
        )
        raise RocketmqRefusal(Code.UNAUTHORIZED, rule)
    return access_key, parts.get("Signature", "")
