"""How soon each kind of client goes on when one of two brokers is lost.

    python -m tests.benchmarks.fail_over --rounds 3

A master and its standby; rmqlite's client, and RocketMQ's for Java 4.9, Java 5 and Python with
their own intervals, each of which sends ten messages a second and receives them.  For each loss:
seconds from its end, as the first column says it, until the client has sent a message, and until
its consumer has got that one; the shortest and the longest of all rounds.  At the end nothing that
was acknowledged may be missing.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rmqlite.client.admin_client import AdminClient
from rmqlite.kernel.words.clock import pause_s
from rmqlite.testing import BrokerProcess
from tests.support.fail_over import NAMES, GoneOn, lost, measured, promoted, streaming
from tests.support.standbys import Pair, is_master, wait_for_copy

AWAY_S: Final = 10.0
SETTLED_S: Final = 5.0


class Losses:
    """What can happen to two brokers."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._lost: BrokerProcess | None = None

    @property
    def _both(self) -> tuple[BrokerProcess, BrokerProcess]:
        """The master, and its standby."""
        first, second = self._pair.first, self._pair.second
        return (first, second) if is_master(first.endpoint) else (second, first)

    def master_killed(self) -> None:
        """Its standby is promoted at once, and is the master."""
        master, standby = self._both
        master.kill()
        self._lost = master
        promoted(standby.endpoint)

    def switched(self) -> None:
        """rmqlite standby switch has ended."""
        with AdminClient(self._pair.endpoints) as admin:
            admin.switch()

    def standby_killed(self) -> None:
        """It was away for 10 s, and is started."""
        _, standby = self._both
        standby.kill()
        pause_s(AWAY_S)
        standby.start()

    def both_killed(self) -> None:
        """Both are started."""
        both = self._both
        for each in both:
            each.kill()
        for each in both:
            each.start()

    def mended(self) -> None:
        """Two copies again."""
        if self._lost is not None:
            self._lost.start()
            self._lost = None
        wait_for_copy(self._both[0])
        pause_s(SETTLED_S)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=1)
    rounds = arguments.parse_args().rounds
    found: dict[tuple[str, str], list[GoneOn]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        with Pair(folder) as pair, streaming(pair, folder, NAMES) as clients:
            losses = Losses(pair)
            kinds: list[Callable[[], None]] = [losses.master_killed, losses.switched]
            kinds += [losses.standby_killed, losses.both_killed]
            for kind in kinds * rounds:
                for name, gone_on in measured(clients, kind).items():
                    found[kind.__name__, name].append(gone_on)
                    print(kind.__name__, name, gone_on, flush=True)
                losses.mended()
            missing = lost(clients)
    for (loss, name), times in found.items():
        sent, got = _range([each.sent_s for each in times]), _range([each.got_s for each in times])
        print(f"{loss:16} {name:8} sent after {sent:12} got after {got:12} {times[-1].said[:100]}")
    print(f"acknowledged and not received: {missing}")


def _range(times: list[float | None]) -> str:
    known = [each for each in times if each is not None]
    return f"{min(known):.1f} to {max(known):.1f} s" if len(known) == len(times) else "never"


if __name__ == "__main__":
    main()
