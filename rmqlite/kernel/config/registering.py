"""Which other brokers may register at this name server: the key brokersAllowed.

Its entries, with ; between two, are addresses as in the accounts' files (addresses.py), or access
keys.  A request that an account has signed is allowed by its access key alone.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rmqlite.kernel.config.addresses import AddressPattern, parse_addresses
from rmqlite.kernel.words.limits import ACCESS_KEY_CHARS_MAX, ACCESS_KEY_CHARS_MIN

RULE: Final = "IP addresses such as 10.0.0.7 or 10.0.0.*, or access keys, with ; between two"
_KEY_LENGTHS: Final = range(ACCESS_KEY_CHARS_MIN, ACCESS_KEY_CHARS_MAX + 1)
_ADDRESS: Final = re.compile(r"[0-9a-fA-F:.,{}*-]*[:.*][0-9a-fA-F:.,{}*-]*")


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
            raise ValueError(RULE)
    return AllowedBrokers(tuple(addresses), frozenset(keys))
