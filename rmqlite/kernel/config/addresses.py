"""RocketMQ 4.9's patterns of remote addresses, compiled once and compared as numbers.

    ""                                          no address
    *     *.*.*.*     *:*:*:*:*:*:*:*           every address, of either kind
    192.168.0.1     fe80::1                     one address
    192.168.0.1,192.168.0.7,fe80::1             several addresses
    192.168.0.{1,7}     fe80::{1,7}             several addresses that differ in the last part
    192.168.*.*     192.168.10-20.*             each octet but the first: a number, * or a range
    2::78:*     2::78:1-2ff     2::78:1-2ff:*   IPv6: the last part, or the last two

An IPv6 pattern without "::" may have fewer than eight parts: what follows them is arbitrary, so
"2001:db8:*" is a prefix.

Differences from RocketMQ are on the narrow side: there, "192.168.*.7" and "192.168.10-20.1-9"
ignore what follows the first * or range; and a few patterns are accepted that fail at the first
request, or never match.  They are refused here.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from rmqlite.kernel.words.limits import ACCESS_KEY_CHARS_MAX, ACCESS_KEY_CHARS_MIN

ALLOWED_RULE: Final = (
    "IP addresses such as 10.0.0.7 or 10.0.0.*, or access keys, with ; between two"
)
_ADDRESS: Final = re.compile(r"[0-9a-fA-F:.,{}*-]*[:.*][0-9a-fA-F:.,{}*-]*")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Range = tuple[int, int]

RULE: Final = (
    "an IP address, a list with commas, braces around the choices of the last part,"
    " or * and ranges such as 192.168.10-20.*"
)
_ALL: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_OCTET_MAX: Final = 0xFF
_GROUP_MAX: Final = 0xFFFF
_GROUPS: Final = 8
_BRACES: Final = re.compile(r"([^{}]*[.:])\{([0-9a-fA-F]+(?:,[0-9a-fA-F]+)*)\}")
_OCTETS: Final = re.compile(r"(\d{1,3})\.([\d*-]+)\.([\d*-]+)\.([\d*-]+)", re.ASCII)
_OCTET: Final = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?", re.ASCII)
_IPV6: Final = re.compile(
    r"(?P<head>[0-9a-fA-F:]+)"
    r"(?::(?P<low>[0-9a-fA-F]{1,4})-(?P<high>[0-9a-fA-F]{1,4}))?(?P<any>:\*)?"
)


@dataclass(frozen=True, slots=True)
class AddressPattern:
    """The addresses of a white list; made by parse_addresses()."""

    text: str = ""
    is_all: bool = False
    _singles: frozenset[_Address] = frozenset()
    _ranges: tuple[_Range, ...] = ()
    """Four for IPv4, eight for IPv6; empty if the pattern has none."""

    def matches(self, address: str) -> bool:
        """Is this address meant?  A text that is no IP address matches only "*"."""
        if self.is_all:
            return True
        read = _read(address)
        if read is None:
            return False
        if read in self._singles:
            return True
        parts = _parts(read)
        return len(parts) == len(self._ranges) and all(
            [low <= part <= high for part, (low, high) in zip(parts, self._ranges, strict=True)]
        )


NO_ADDRESS: Final = AddressPattern()


def parse_addresses(text: str) -> AddressPattern:
    """The pattern that a text stands for.  Raises ValueError with the rule."""
    if not text.strip():
        return NO_ADDRESS
    if text in _ALL:
        return AddressPattern(text, is_all=True)
    if text.endswith("}"):
        braces = _matched(_BRACES, text)
        singles = [_single(braces[1] + last) for last in braces[2].split(",")]
        return AddressPattern(text, _singles=frozenset(singles))
    if "," in text or not ("*" in text or "-" in text):
        return AddressPattern(text, _singles=frozenset(map(_single, text.split(","))))
    if ":" in text:
        return AddressPattern(text, _ranges=_ipv6_ranges(text))
    first, *others = _matched(_OCTETS, text).groups()
    ranges = [_octet_range(first), *map(_octet_range, others)]
    return AddressPattern(text, _ranges=tuple(ranges))


@lru_cache(maxsize=4096)
def _read(text: str) -> _Address | None:
    """An address; an IPv4 address that an IPv6 socket shows as ::ffff:10.0.0.1 is IPv4 again."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        # Without the scope: fe80::1%eth0 is fe80::1.
        return address.ipv4_mapped or ipaddress.IPv6Address(address.packed)
    return address


def _single(text: str) -> _Address:
    address = _read(text)
    if address is None or "%" in text:
        raise ValueError(RULE)
    return address


def _parts(address: _Address) -> tuple[int, ...]:
    if isinstance(address, ipaddress.IPv4Address):
        return tuple(address.packed)
    packed = address.packed
    return tuple([packed[at] << 8 | packed[at + 1] for at in range(0, len(packed), 2)])


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError(RULE)
    return found


def _octet_range(text: str) -> _Range:
    if text == "*":
        return 0, _OCTET_MAX
    found = _matched(_OCTET, text)
    low, high = int(found[1]), int(found[2] or found[1])
    if not low <= high <= _OCTET_MAX:
        raise ValueError(f"an octet is 0 to {_OCTET_MAX}, a range of octets goes upwards")
    return low, high


def _ipv6_ranges(text: str) -> tuple[_Range, ...]:
    found = _matched(_IPV6, text)
    ranges: list[_Range] = []
    if found["low"]:
        low, high = int(found["low"], 16), int(found["high"], 16)
        if low > high:
            raise ValueError("a range of IPv6 parts goes upwards")
        ranges.append((low, high))
    if found["any"]:
        ranges.append((0, _GROUP_MAX))
    # Zeros stand for the ranges, and for what may follow a prefix, so that ipaddress can read it.
    whole = found["head"] + ":0" * len(ranges)
    length = _GROUPS if "::" in whole else whole.count(":") + 1
    head = _read(whole + ":0" * (_GROUPS - length))
    if not isinstance(head, ipaddress.IPv6Address):
        raise ValueError(RULE)
    exact = [(part, part) for part in _parts(head)[: length - len(ranges)]]
    return tuple([*exact, *ranges, *[(0, _GROUP_MAX)] * (_GROUPS - length)])


class AllowedBrokers(NamedTuple):
    """Nobody, if it is empty."""

    addresses: tuple[AddressPattern, ...] = ()
    access_keys: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        return not self.addresses and not self.access_keys

    def holds(self, host: str, access_key: str) -> bool:
        """access_key: "" without an account, or if the accounts' files trust the address."""
        if access_key:
            return access_key in self.access_keys
        return any(each.matches(host) for each in self.addresses)


def parse_allowed(text: str) -> AllowedBrokers:
    """What a text stands for.  Raises ValueError with the rule."""
    addresses, keys = [], []
    for entry in text.split(";") if text else ():
        if _ADDRESS.fullmatch(entry):
            addresses.append(parse_addresses(entry))
        elif ACCESS_KEY_CHARS_MIN <= len(entry) <= ACCESS_KEY_CHARS_MAX and not re.search(
            r"\s", entry
        ):
            keys.append(entry)
        else:
            raise ValueError(ALLOWED_RULE)
    return AllowedBrokers(tuple(addresses), frozenset(keys))
