"""Slows down whoever tries secrets: after each failure the next attempt must wait longer.

An address waits, and so does an account, wherever the attempts on it come from.  Nobody can lock
an account out: where it has logged in before, it waits for failures from that address only.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final, NamedTuple

from rmqlite.access.accounts import KEY_CHARS_MAX
from rmqlite.clock import Clock
from rmqlite.server.service.access import host_of

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


class _Name(NamedTuple):
    """Whose failures are counted together; what is empty does not count."""

    host: str
    access_key: str


@dataclass(slots=True)
class _Failures:
    count: int
    last_at_ms: int


class Attempts:
    """Failed log-ins of the last minutes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[_Name, _Failures] = {}
        """The last failure last."""
        self._known: dict[_Name, None] = {}
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
        for name in (both, _Name(both.host, ""), _Name("", both.access_key)):
            self._failed.pop(name, None)
        self._known.pop(both, None)
        self._known[both] = None
        _cut(self._known, KNOWN_MAX)

    def _names(self, address: str, access_key: str) -> tuple[_Name, ...]:
        both = _both(address, access_key)
        if both in self._known:
            return (both,)
        return _Name(both.host, ""), _Name("", both.access_key)

    def _wait_ms(self, name: _Name) -> int:
        failures = self._failed.get(name)
        if failures is None:
            return 0
        wait_s_max = ACCOUNT_WAIT_S_MAX if name.access_key else ADDRESS_WAIT_S_MAX
        # The power of two is cut before it becomes long.
        wait_ms = 1000 * min(wait_s_max, 1 << min(failures.count - 1, 10))
        return max(0, failures.last_at_ms + wait_ms - self._clock.now_ms())


def _both(address: str, access_key: str) -> _Name:
    # A longer key is of no account; it need not fill the table.
    return _Name(_network(host_of(address)), access_key[: KEY_CHARS_MAX + 1])


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


def _cut(table: dict[_Name, _Failures] | dict[_Name, None], size: int) -> None:
    if len(table) > size:
        del table[next(iter(table))]
