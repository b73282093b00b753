"""Refuses a copy of a signed call: somebody may have captured it on its way.

A call counts only if its date is near the broker's time, so nothing older has to be remembered.
Of each client that called lately, the highest counter is remembered, and which of the counters
just below it were used: calls of one client overtake each other.

Nothing of this survives a restart.  A copy counts once more if it comes after a restart of the
broker, or after its wall clock stepped back, and its date is near again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from rmqlite.protocols.shared.signing import Signed

SKEW_MS_MAX: Final = 60_000
"""How far the date of a call may be from the broker's time, either way."""
FORGET_MS: Final = 2 * SKEW_MS_MAX
"""A client that was silent for so long is forgotten: the dates of all its calls are too old.
Its last call came at most SKEW_MS_MAX before the date that it names."""
WINDOW: Final = 4_096
"""How many calls of the same client may overtake a call."""
INSTANCES_MAX: Final = 20_000
"""How many clients are remembered: 1.2 kB each at most."""
KEY_INSTANCES_MAX: Final = 5_000
"""How many of one account: it makes 40 clients a second for two minutes, a busy Spark stream 30."""
FORGOTTEN_MAX: Final = 1_000
"""How many clients one call forgets: this takes a millisecond, for all of them it would be 20."""

_WINDOW_BITS: Final = (1 << WINDOW) - 1


class Replays:
    """Remembers the calls of all clients.  Only the broker's own thread calls it."""

    def __init__(self) -> None:
        self._clients: OrderedDict[tuple[str, str], _Client] = OrderedDict()
        """By access key and instance; the one that was silent for longest comes first."""
        self._counts: dict[str, int] = {}
        """Access key -> how many clients it has."""

    def check(self, signed: Signed, now_ms: int) -> str | None:
        """The rule that forbids the call; None if the call counts, which it does once.

        Only for a call whose signature is right: else anybody could use up the counters of a
        client, or fill the memory with clients.  The same request, signed anew, may count.
        """
        late_ms = now_ms - signed.date_ms
        if abs(late_ms) > SKEW_MS_MAX:
            side = "behind" if late_ms > 0 else "ahead of"
            return (
                f"the date of a call is at most {SKEW_MS_MAX} ms from the broker's time;"
                f" this one is {abs(late_ms)} ms {side} it: compare the clocks"
            )
        self._forget(now_ms)
        name = signed.access_key, signed.instance
        client = self._clients.get(name)
        if client is None:
            if rule := self._rule_of_limits(signed.access_key):
                return rule
            client = self._clients[name] = _Client()
            self._counts[signed.access_key] = self._counts.get(signed.access_key, 0) + 1
        rule = client.take(signed.counter)
        if rule is None:
            client.called_at_ms = now_ms
            self._clients.move_to_end(name)
        return rule

    def _rule_of_limits(self, access_key: str) -> str | None:
        """The limit that one more client would exceed.  Forgetting another would let copies in."""
        if self._counts.get(access_key, 0) >= KEY_INSTANCES_MAX:
            return f"an account has at most {KEY_INSTANCES_MAX} clients in {FORGET_MS} ms"
        if len(self._clients) >= INSTANCES_MAX:
            return f"all accounts have at most {INSTANCES_MAX} clients in {FORGET_MS} ms"
        return None

    def _forget(self, now_ms: int) -> None:
        """Forget clients that are silent.  One call adds one at most, so this keeps up."""
        clients = self._clients
        for _ in range(min(FORGOTTEN_MAX, len(clients))):
            name = next(iter(clients))
            # abs: if the clock stepped back, old times must not stay until it has caught up.
            if abs(now_ms - clients[name].called_at_ms) <= FORGET_MS:
                return
            del clients[name]
            access_key, _ = name
            self._counts[access_key] -= 1
            if not self._counts[access_key]:
                del self._counts[access_key]


class _Client:
    """The counters that one client has used."""

    __slots__ = ("_newest", "_used", "called_at_ms")

    def __init__(self) -> None:
        self.called_at_ms = 0
        self._newest = -1
        """The highest counter."""
        self._used = 0
        """Bit n stands for the counter n below the highest."""

    def take(self, counter: int) -> str | None:
        """Use a counter; the rule that forbids it."""
        behind = self._newest - counter
        # Both limits come before the shifts: a shift by any number would fill the memory.
        if behind < 0:
            self._used = (self._used << -behind | 1) & _WINDOW_BITS if -behind < WINDOW else 1
            self._newest = counter
            return None
        if behind >= WINDOW:
            return f"at most {WINDOW - 1} calls of its client overtake a call"
        if self._used >> behind & 1:
            return "a call counts once, and this one has come before"
        self._used |= 1 << behind
        return None
