"""Which lines a log gets of what anybody can cause as often as the network allows.

Of each key, such as a caller, only the first lines in a window are logged, and afterwards how many
more there were; so are the many keys beyond a limit, all together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from rmqlite.kernel.words.clock import elapsed_s

WINDOW_S: Final = 10.0
"""For how long lines of the same key are counted together."""
LINES_MAX: Final = 5
"""How many lines of one key are logged in that time."""
KEYS_MAX: Final = 16
"""How many keys have lines of their own in that time: about ten lines a second at most."""


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
