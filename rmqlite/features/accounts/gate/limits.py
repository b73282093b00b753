"""Limits of each account and of each connection, so that one caller leaves room for the others.

Requests and bytes are counted with token buckets: a bucket holds what a caller may do in one
second, and fills up at that rate.  What keeps a consumer in its group (heartbeats, offsets, locks)
has buckets of its own, ten times as large: a consumer that pulls too fast does not lose its place,
and yet nobody can do it without end.  Callers are names here: an access key, or an address.

The store must always be able to open a file: so connections get what the rest of the broker does
not need of the process's open files, and a limit that leaves none stops the start.
"""

from __future__ import annotations

import logging
import resource
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Final

from rmqlite.kernel.config.config import KEYS, BrokerConfig
from rmqlite.kernel.service.access import CountedRequest, Limits
from rmqlite.kernel.store.disk.files import OPEN_FILES_MAX
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import InvalidValue, Overloaded
from rmqlite.protocols.shared.tls import OPENING_MAX

KEEPING_FACTOR: Final = 10
"""How much more of what keeps a consumer in its group is let in than of other requests.  A
consumer commits each of its queues every five seconds, all in the same moment."""
PROTOCOLS: Final = 2
"""How many protocols have maxConnections each."""
OTHER_FILES: Final = OPEN_FILES_MAX + 288
"""File descriptors that connections must leave free, for the store, the metrics and the page."""
log = logging.getLogger(__name__)


class Buckets:
    """A bucket for each name, at most names_max of them; rate: a second, burst: of a full one.

    The bucket that was used least recently is forgotten first, and begins full again.
    """

    def __init__(self, rate: float, burst: float, names_max: int) -> None:
        self._rate = rate
        self._burst = burst
        self._names_max = names_max
        self._known: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        """What was left in each bucket, and when."""

    def left(self, name: Hashable, now_s: float) -> float:
        """What is in a bucket; below 0 if a large amount was taken before."""
        left, at_s = self._known.get(name, (self._burst, now_s))
        return min(self._burst, left + (now_s - at_s) * self._rate)

    def take(self, name: Hashable, amount: float, now_s: float) -> bool:
        """Take an amount; False, and nothing is taken, if the bucket has less.

        More than a full bucket is taken from a full one, so that a large request can pass; the
        next ones wait until that is made up for.
        """
        left = self.left(name, now_s)
        is_enough = left >= min(amount, self._burst)
        self._known[name] = (left - amount if is_enough else left, now_s)
        self._known.move_to_end(name)
        if len(self._known) > self._names_max:
            self._known.popitem(last=False)
        return is_enough

    def __len__(self) -> int:
        return len(self._known)


class _Rate:
    """One limit a second of every account, or of every connection.  name: of its key."""

    def __init__(self, name: str, config: BrokerConfig, names_max: int) -> None:
        self._key, self._limit = KEYS[name], getattr(config, name)
        kept = self._limit * KEEPING_FACTOR
        self._buckets = Buckets(self._limit, self._limit, names_max)
        self._keeping = Buckets(kept, kept, names_max)

    def take(self, name: str, amount: int, now_s: float, keeps_member: bool) -> None:
        if not self._limit or not amount:
            return
        buckets = self._keeping if keeps_member else self._buckets
        if not buckets.take(name, amount, now_s):
            raise Overloaded(self._key, self._limit)


class _Count:
    """One limit of how many things an account may have at the same time."""

    def __init__(self, name: str, config: BrokerConfig) -> None:
        self._key, self._limit = KEYS[name], getattr(config, name)
        self._counts: dict[str, int] = {}

    def add(self, account: str) -> None:
        count = self._counts.get(account, 0)
        if self._limit and count >= self._limit:
            raise Overloaded(self._key, self._limit)
        self._counts[account] = count + 1

    def remove(self, account: str) -> None:
        self._counts[account] -= 1
        if not self._counts[account]:
            del self._counts[account]


class AccountLimits(Limits):
    """The limits of one broker, in memory."""

    def __init__(self, config: BrokerConfig, elapsed: Callable[[], float] = elapsed_s) -> None:
        self._elapsed = elapsed
        names_max = PROTOCOLS * config.connections_max
        # At most that many accounts can call at the same time.
        self._of_account = (
            _Rate("account_requests_per_s_max", config, names_max),
            _Rate("account_bytes_per_s_max", config, names_max),
        )
        self._of_connection = (
            _Rate("connection_requests_per_s_max", config, names_max),
            _Rate("connection_bytes_per_s_max", config, names_max),
        )
        self._connections = _Count("account_connections_max", config)
        self._parked = _Count("account_parked_polls_max", config)
        self._owners: dict[Hashable, str] = {}
        """The account of each connection that has one."""

    def of_connection(self, address: str, request: CountedRequest) -> None:
        self._count(self._of_connection, address, request)

    def of_account(self, account: str, request: CountedRequest) -> None:
        if account:
            self._count(self._of_account, account, request)

    def own(self, connection: Hashable, account: str) -> None:
        owner = self._owners.get(connection, "")
        if owner == account or not account:
            return
        self._connections.add(account)
        if owner:
            self._connections.remove(owner)
        self._owners[connection] = account

    def ended(self, connection: Hashable) -> None:
        owner = self._owners.pop(connection, "")
        if owner:
            self._connections.remove(owner)

    @contextmanager
    def parked(self, account: str) -> Iterator[None]:
        if not account:
            yield
            return
        self._parked.add(account)
        try:
            yield
        finally:
            self._parked.remove(account)

    def _count(self, rates: tuple[_Rate, _Rate], name: str, request: CountedRequest) -> None:
        of_requests, of_bytes = rates
        now_s = self._elapsed()
        of_requests.take(name, request.requests, now_s, request.keeps_member)
        of_bytes.take(name, request.size, now_s, request.keeps_member)


LIMITS: Final = (
    "account_requests_per_s_max",
    "account_bytes_per_s_max",
    "account_connections_max",
    "account_parked_polls_max",
    "connection_requests_per_s_max",
    "connection_bytes_per_s_max",
)
"""The keys, by attribute."""


def limits_of(config: BrokerConfig) -> AccountLimits | None:
    """The limits of a configuration; None if it sets none, so that they cost nothing."""
    return AccountLimits(config) if any(getattr(config, name) for name in LIMITS) else None


def connections_max(config: BrokerConfig) -> int:
    """The most connections that each protocol may accept: maxConnections, or fewer with a warning.

    Raises the process's limit of open files if it is too low, at most to the hard limit.  Raises
    InvalidValue if not even one connection to each protocol fits.
    """
    others = OTHER_FILES + (0 if config.tls_mode == "disabled" else OPENING_MAX)
    wanted = PROTOCOLS * config.connections_max + others
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    found = min(config.connections_max, (files - others) // PROTOCOLS)
    if found < 1:
        setting = f"{KEYS['connections_max']}={config.connections_max}"
        rule = f"at least {others + PROTOCOLS}, and {wanted} for {setting}"
        raise InvalidValue("limit of open files (ulimit -Hn)", hard, rule)
    if found < config.connections_max:
        log.warning(
            "the limit of open files (ulimit -Hn) is too low for maxConnections, each protocol"
            " accepts fewer connections=%d open_files=%d wanted=%d",
            found,
            files,
            wanted,
        )
    return found
