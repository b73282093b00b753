"""The event loop of a broker, whose timers are exact to a tenth of a millisecond.

A message comes when a timer ends.  asyncio's own loop waits in whole milliseconds and rounds up, so
that each message would come half a millisecond late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from select import select
from selectors import EpollSelector, SelectorKey
from typing import Final

SELECTED_MAX: Final = 1_024
"""select() takes descriptors below this number."""
_MS: Final = 0.001


def event_loop() -> tuple[Callable[[], asyncio.AbstractEventLoop], str]:
    """uvloop's loop and name if the extra is installed, or asyncio's own loop."""
    try:
        from uvloop import __version__, new_event_loop
    except ImportError:
        return partial(asyncio.SelectorEventLoop, ExactSelector()), "asyncio"
    return new_event_loop, f"uvloop {__version__}"


class ExactSelector(EpollSelector):
    """Waits by epoll for whole milliseconds, and by select() on epoll's descriptor for the rest.

    The rest is one more turn of the loop, and only before a timer ends.
    """

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """May return before the time is over; the loop then asks for the rest."""
        if timeout is None or timeout <= 0 or self.fileno() >= SELECTED_MAX:
            return super().select(timeout)
        if timeout >= _MS:
            # Half a millisecond less: it is rounded up.
            return super().select((int(timeout / _MS) - 0.5) * _MS)
        select([self.fileno()], [], [], timeout)
        return super().select(0)
