"""The audit log: who has changed something, who was refused, and how it ended.

One line each, on the logger rmqlite.audit; cli/output/audit_lines.py makes JSON of it.  No line
has a secret, a signature or a body.

Anybody can be refused as often as the network allows: of each account and host only the first
refusals are logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, NamedTuple

from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import AccessDenied
from rmqlite.kernel.words.visible import shortened

WINDOW_S: Final = 10.0
"""For how long lines of the same key are counted together."""
LINES_MAX: Final = 5
"""How many lines of one key are logged in that time."""
KEYS_MAX: Final = 16
"""How many keys have lines of their own in that time: about ten lines a second at most."""

log = logging.getLogger("rmqlite.audit")


@dataclass(frozen=True, slots=True)
class Event:
    """One line.  client: an address; call: a method of the service, or what the protocol calls it.

    face: the protocol, by the name that readers of the log know.  target: topic, group or job.
    outcome: ok, or an error's code.  times: how many refusals.  note: why the caller does it.
    """

    event: str
    face: str
    account: str
    client: str
    call: str
    target: str
    outcome: str
    rule: str = ""
    times: int = 1
    note: str = ""

    def __str__(self) -> str:
        text = (
            f"{self.event} face={self.face or 'none'} account={self.account!r}"
            f" client={self.client or 'none'} call={self.call!r} target={self.target!r}"
            f" outcome={self.outcome}"
        )
        if self.rule:
            text += f" rule={self.rule!r}"
        if self.note:
            text += f" note={self.note!r}"
        return text if self.times == 1 else f"{text} times={self.times}"


def changed(event: Event) -> None:
    """Log a request that changes something, at its end."""
    log.info("%s", event)


def refused(event: Event) -> None:
    """Log a request that was refused; which ones are logged, Refusals says."""
    log.warning("%s", event)


class _Refused(NamedTuple):
    """Who is refused."""

    account: str
    host: str


_OTHERS: Final = _Refused("", "others")


class Refusals:
    """Which refusals are logged."""

    def __init__(self, elapsed: Callable[[], float] = elapsed_s) -> None:
        self._repeats = Repeats(elapsed)
        self.total = 0

    def note(self, account: str, client: str) -> bool:
        """Count a refusal; is it logged?"""
        self.total += 1
        self.log_repeated()
        return self._repeats.note(_Refused(shortened(account), client.rpartition(":")[0]))

    def log_repeated(self) -> None:
        """At the end of a window, log how many refusals there were beyond those with a line."""
        for key, times in self._repeats.over():
            caller = key if isinstance(key, _Refused) else _OTHERS
            log.warning(
                "%s",
                Event(
                    "refused again",
                    "",
                    caller.account,
                    caller.host,
                    "",
                    "",
                    AccessDenied.code,
                    "",
                    times,
                ),
            )


class Repeats:
    """The lines of one log."""

    def __init__(self, elapsed: Callable[[], float] = elapsed_s) -> None:
        self._elapsed = elapsed
        self._began_s = elapsed()
        self._times: dict[Hashable, int] = {}
        self._others = 0

    def note(self, key: Hashable) -> bool:
        """Count a line; is it logged?"""
        if key not in self._times and len(self._times) >= KEYS_MAX:
            self._others += 1
            return False
        self._times[key] = times = self._times.get(key, 0) + 1
        return times <= LINES_MAX

    def over(self) -> list[tuple[Hashable, int]]:
        """At the end of a window, and once: the keys with more lines than were logged, and how many
        more; None is all keys that had none of their own."""
        now_s = self._elapsed()
        if now_s - self._began_s < WINDOW_S:
            return []
        more = [(key, times - LINES_MAX) for key, times in self._times.items()]
        more.append((None, self._others))
        self._times, self._others, self._began_s = {}, 0, now_s
        return [(key, times) for key, times in more if times > 0]
