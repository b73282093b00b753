"""Sessions: the browsers in which somebody has logged in with an account; and failed log-ins.

A session proves again with every request what its log-in has proved: it keeps a digest of the
secret, and the account of this moment must still have that secret.  So a session ends when its
account is deleted or gets another secret, and white lists count as on the other protocols.  Nothing
here can be turned back into a secret or into a browser's cookie.

Whoever tries secrets is slowed down: after each failure the next attempt must wait longer.  An
address waits, and so does an account, wherever the attempts on it come from.  Nobody can lock an
account out: where it has logged in before, it waits for failures from that address only.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rmqlite.kernel.service import audit
from rmqlite.kernel.service.access import Access, Caller, host_of
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.errors import AccessDenied
from rmqlite.kernel.words.limits import ACCESS_KEY_CHARS_MAX
from rmqlite.web.guard import new_session

SESSIONS_MAX: Final = 1_000
"""More are not kept in memory; the oldest ends."""
ACCOUNT_SESSIONS_MAX: Final = 100
"""The same of one account, so that one account cannot end the sessions of all others."""
IDLE_MS_MAX: Final = 30 * 60_000
"""A session ends after this time without a request of a person: somebody left the desk."""
SESSION_MS_MAX: Final = 12 * 3_600_000
"""A session ends after this time, however busy it is."""
ADDRESS_WAIT_S_MAX: Final = 60
ACCOUNT_WAIT_S_MAX: Final = 5
"""Short: a stranger makes the account's owner wait."""
FORGOTTEN_MS: Final = 15 * 60_000
"""Failures count together if no more than this lies between two of them."""
ATTEMPTS_MAX: Final = 10_000
"""How many addresses and accounts have their failures counted; the longest unused is forgotten."""
KNOWN_MAX: Final = 1_000
"""From how many addresses, each with its account, a log-in is remembered."""
_IPV6_BITS: Final = 64
"""Of an IPv6 address; whoever has one has all that begin with these."""
PROTOCOL: Final = "web"
"""This protocol's name in the audit log."""
_WRONG: Final = "the access key or the secret is wrong"
_CHANGED: Final = "the account of this session was deleted, or has another secret"


@dataclass(slots=True)
class _Session:
    access_key: str
    digest: bytes = field(repr=False)
    opened_at_ms: int
    used_at_ms: int

    def is_over(self, now_ms: int) -> bool:
        is_idle = now_ms - self.used_at_ms >= IDLE_MS_MAX
        return is_idle or now_ms - self.opened_at_ms >= SESSION_MS_MAX


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks for a page.  access_key: of the session; empty if there is none."""

    caller: Caller
    access_key: str = ""


class Sessions:
    """The sessions of one broker process; a restart ends them all."""

    def __init__(self, access: Access, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._sessions: dict[bytes, _Session] = {}
        """By the digest of the session's id, the oldest first."""

    def visitor(self, address: str, session_id: str, *, is_use: bool) -> Visitor | None:
        """Who asks from this address; None if nobody has logged in there.

        is_use: does a person ask?  A page that updates itself keeps no session alive.
        """
        session = self._found(session_id)
        if session is not None:
            try:
                caller = self._caller(address, session.access_key, session.digest, _CHANGED)
            except AccessDenied:
                self._end(session_id)
                return None
            if is_use:
                session.used_at_ms = self._clock.now_ms()
            return Visitor(caller, session.access_key)
        return (
            Visitor(Caller(None, address, PROTOCOL)) if self._access.is_trusted(address) else None
        )

    def log_in(self, address: str, access_key: str, secret: str) -> str:
        """The id of a new session.  Raises AccessDenied for a wrong pair."""
        digest = self._digest(secret)
        self._caller(address, access_key, digest, _WRONG)
        self._make_room(access_key)
        session_id, now_ms = new_session(), self._clock.now_ms()
        self._sessions[_name(session_id)] = _Session(access_key, digest, now_ms, now_ms)
        audit.changed(audit.Event("log-in", PROTOCOL, access_key, address, "", "", "ok"))
        return session_id

    def log_out(self, address: str, session_id: str) -> None:
        session = self._found(session_id)
        if session is not None:
            self._end(session_id)
            audit.changed(
                audit.Event("log-out", PROTOCOL, session.access_key, address, "", "", "ok")
            )

    def _found(self, session_id: str) -> _Session | None:
        session = self._sessions.get(_name(session_id))
        if session is not None and session.is_over(self._clock.now_ms()):
            self._end(session_id)
            return None
        return session

    def _end(self, session_id: str) -> None:
        self._sessions.pop(_name(session_id), None)

    def _make_room(self, access_key: str) -> None:
        now_ms = self._clock.now_ms()
        for name in [name for name, each in self._sessions.items() if each.is_over(now_ms)]:
            del self._sessions[name]
        own = [name for name, each in self._sessions.items() if each.access_key == access_key]
        if len(own) >= ACCOUNT_SESSIONS_MAX:
            del self._sessions[own[0]]
        elif len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]

    def _caller(self, address: str, access_key: str, digest: bytes, wrong: str) -> Caller:
        def is_right(secret: str) -> bool:
            return hmac.compare_digest(self._digest(secret), digest)

        return self._access.caller(
            address, access_key, is_right, protocol=PROTOCOL, call="log-in", wrong=wrong
        )

    def _digest(self, secret: str) -> bytes:
        """With a key of this process: it helps nobody to try secrets against it elsewhere."""
        return hmac.digest(self._key, secret.encode("utf-8", "surrogatepass"), "sha256")


def _name(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode("utf-8", "replace")).digest()


class _Tried(NamedTuple):
    """Whose failures are counted together; what is empty does not count."""

    host: str
    access_key: str


@dataclass(slots=True)
class _Failures:
    count: int
    last_at_ms: int


class LoginAttempts:
    """Failed log-ins of the last minutes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[_Tried, _Failures] = {}
        """The last failure last."""
        self._known: dict[_Tried, None] = {}
        """Addresses with accounts that have logged in there; the last one last."""

    def wait_s(self, address: str, access_key: str) -> int:
        """In how many seconds the next attempt may be made; 0 if now."""
        waits_ms = [self._wait_ms(name) for name in self._names(address, access_key)]
        return -(-max(waits_ms) // 1000)

    def fail(self, address: str, access_key: str) -> None:
        now_ms = self._clock.now_ms()
        while self._failed:
            name, oldest = next(iter(self._failed.items()))
            if now_ms - oldest.last_at_ms < FORGOTTEN_MS:
                break
            del self._failed[name]
        for name in self._names(address, access_key):
            before = self._failed.pop(name, None)
            self._failed[name] = _Failures(before.count + 1 if before else 1, now_ms)
            _cut(self._failed, ATTEMPTS_MAX)

    def succeed(self, address: str, access_key: str) -> None:
        both = _both(address, access_key)
        for name in (both, _Tried(both.host, ""), _Tried("", both.access_key)):
            self._failed.pop(name, None)
        self._known.pop(both, None)
        self._known[both] = None
        _cut(self._known, KNOWN_MAX)

    def _names(self, address: str, access_key: str) -> tuple[_Tried, ...]:
        both = _both(address, access_key)
        if both in self._known:
            return (both,)
        return _Tried(both.host, ""), _Tried("", both.access_key)

    def _wait_ms(self, name: _Tried) -> int:
        failures = self._failed.get(name)
        if failures is None:
            return 0
        wait_s_max = ACCOUNT_WAIT_S_MAX if name.access_key else ADDRESS_WAIT_S_MAX
        # The power of two is cut before it becomes long.
        wait_ms = 1000 * min(wait_s_max, 1 << min(failures.count - 1, 10))
        return max(0, failures.last_at_ms + wait_ms - self._clock.now_ms())


def _both(address: str, access_key: str) -> _Tried:
    # A longer key is of no account; it need not fill the table.
    return _Tried(_network(host_of(address)), access_key[: ACCESS_KEY_CHARS_MAX + 1])


def _network(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, _IPV6_BITS), strict=False))


def _cut(table: dict[_Tried, _Failures] | dict[_Tried, None], size: int) -> None:
    if len(table) > size:
        del table[next(iter(table))]
