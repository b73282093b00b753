"""A running program of an official client: commands go in as JSON lines, events come out."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self

from rmqlite.kernel.words.clock import elapsed_s

WAIT_S: Final = 120.0
"""For a machine that has much else to do: only a test that fails waits so long."""
ENDS_S: Final = 3.0
"""After so long without input it is killed: how clients end is no concern of the tests."""
Event = dict[str, Any]


class Program:
    """events: everything that it has said.  Leaving the context ends it."""

    def __init__(
        self,
        command: Sequence[str],
        name_server: str,
        log: Path,
        **environment: str,
    ) -> None:
        self._log = log
        # Broadcast consumers keep their offsets on disk: those of an earlier run are not ours.
        offsets = f"-Drocketmq.client.localOffsetStoreDir={log.parent / 'offsets'}"
        # Java's consumers look every 20 s whose queues are whose, if nothing tells them to.
        looks = "-Drocketmq.client.rebalance.waitInterval=1000"
        java = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {offsets} {looks}".strip()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, name_server],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | {"JAVA_TOOL_OPTIONS": java} | environment,
            )
        self.events: list[Event] = []
        self._changed = threading.Condition()
        self._number = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def do(self, what: str, **asked: Any) -> list[Event]:
        """Run a command to its end; what was said meanwhile."""
        begin = len(self.events)
        self._number += 1
        number = str(self._number)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, "id": number, **asked}) + "\n")
        self._process.stdin.flush()
        self.until(lambda: self._ended(number) is not None, f"{what} {asked}")
        ended = self._ended(number) or {}
        assert "error" not in ended, f"{what}: {ended['error']}"
        return self.events[begin:]

    def send(self, topic: str, *keys: str, **asked: Any) -> list[Event]:
        """Send these messages; the events of those that were sent."""
        said = self.do("send", **({"topic": topic, "group": "senders", "keys": keys} | asked))
        assert not [event for event in said if "failed" in event], said
        return [event for event in said if "sent" in event]

    def push(self, group: str, *topics: str, **asked: Any) -> None:
        """Start a push consumer; its name is the group's unless another one is given."""
        defaults = {"name": group, "expression": "*"}
        self.do("push", **(defaults | {"group": group, "topics": topics} | asked))

    def mqadmin(self, *words: str) -> str:
        """What a command line prints.

        It gives a name server 5 s, of which a cold virtual machine on a busy machine may need all
        before it asks: then the line is run again.
        """
        until_s = elapsed_s() + WAIT_S
        while True:
            said = self.do("mqadmin", words=words)
            printed = "".join([event["printed"] for event in said if "printed" in event])
            if "RemotingTimeoutException" not in printed or elapsed_s() > until_s:
                return printed

    def got(self, by: str | None = None, **equal: Any) -> list[Event]:
        """The messages that a consumer has got."""
        return [
            event
            for event in tuple(self.events)
            if "got" in event and by in (None, event["by"])
            if all(event.get(name) == value for name, value in equal.items())
        ]

    def keys(self, by: str | None = None, **equal: Any) -> list[str]:
        return [event["got"] for event in self.got(by, **equal)]

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Return as soon as it is so; fail when it is not in time, or the program has ended."""
        until_s = elapsed_s() + WAIT_S
        with self._changed:
            while not is_so():
                last = [event for event in self.events][-5:]
                assert self._process.poll() is None, f"it ended: {self._errors()}"
                left_s = until_s - elapsed_s()
                assert left_s > 0, f"not in {WAIT_S:.0f} s: {what}; last {last}; {self._errors()}"
                self._changed.wait(min(left_s, 0.5))

    # ---- inside

    def _ended(self, number: str) -> Event | None:
        for event in reversed(self.events):
            if event.get("done") == number or ("error" in event and event.get("id") == number):
                return event
        return None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("{"):
                # The C++ client prints for itself.
                continue
            with self._changed:
                self.events.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _errors(self) -> str:
        return self._log.read_text(errors="replace")[-2_000:]
