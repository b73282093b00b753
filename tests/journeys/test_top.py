"""rmqlite top in a terminal, a pseudo one, against a real broker that dies meanwhile."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager

from rmqlite.client import AdminClient, Producer
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.message import Message
from tests.support.broker_processes import StartBroker
from tests.support.command_processes import Command, started_command
from tests.support.eventually import WAIT_S

LOCAL_MODES = 3
LINES_AND_ECHO = termios.ICANON | termios.ECHO


class Terminal:
    """A process on a terminal of 80 by 24: what it draws, and keys for it."""

    def __init__(self, process: Command, fd: int, path: str) -> None:
        self.process = process
        self.drawn = b""
        self.path = path
        self._fd = fd

    def until(self, text: str) -> None:
        """Read what is drawn until this is in it; then forget what was drawn."""
        until_s = elapsed_s() + WAIT_S
        while text.encode() not in self.drawn:
            assert elapsed_s() < until_s, f"{text!r} is not in {self.drawn[-2000:]!r}"
            assert self._read(), f"it ended: {self.drawn[-2000:]!r}"
        self.drawn = b""

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def vanish(self) -> None:
        """No SIGHUP comes: it is nobody's controlling terminal."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def end(self) -> int:
        """Its exit code, once it has ended."""
        while self._read():
            pass
        return self.process.wait()

    def _read(self) -> bool:
        """False at the end of the process."""
        waiting = select.poll()
        waiting.register(self._fd, select.POLLIN)
        if not waiting.poll(200):
            return self.process.poll() is None
        try:
            self.drawn += os.read(self._fd, 65_536)
        except OSError:  # Linux's word for: the other side has closed it
            return False
        return True


@contextmanager
def top(endpoint: str, **env: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    command = ("top", "-e", endpoint, "-i", "1s")
    process = started_command(*command, **streams, env={"TERM": "xterm-256color"} | env)
    terminal = Terminal(process, ours, os.ttyname(theirs))
    os.close(theirs)
    try:
        yield terminal
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        terminal.vanish()


def test_top_outlives_the_broker_and_ends_when_it_is_told_to(start_broker: StartBroker) -> None:
    """It says that the broker is gone, goes on when it is back, and leaves with exit code 0."""
    broker = start_broker()
    with AdminClient(broker.endpoint) as admin, Producer(broker.endpoint, "senders") as producer:
        admin.create_topic("orders")
        producer.send(Message("orders", b"later", delay_level=18))
    with top(broker.endpoint) as terminal:
        terminal.until("1 pending")
        broker.kill()
        terminal.until("no answer for")
        broker.start()
        terminal.until("● well")
        terminal.press("q")
        assert terminal.end() == 0
        assert b"Traceback" not in terminal.drawn


def test_top_ends_at_once_while_the_broker_hangs(start_broker: StartBroker) -> None:
    """Whoever has seen enough does not wait for a timeout."""
    broker = start_broker()
    with top(broker.endpoint) as terminal:
        terminal.until("● well")
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            terminal.until("no answer for")
            terminal.press("q")
            assert terminal.end() == 0
        finally:
            os.kill(broker.pid, signal.SIGCONT)


def test_top_gives_the_terminal_back_when_it_is_terminated(start_broker: StartBroker) -> None:
    """A shell behind it would be unreadable."""
    broker = start_broker()
    with top(broker.endpoint) as terminal:
        terminal.until("● well")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 0
        assert b"\x1b[?1049l" in terminal.drawn


def test_top_ends_when_its_terminal_vanishes(start_broker: StartBroker) -> None:
    """It would read an endless nothing, with a whole core, until somebody kills it."""
    broker = start_broker()
    with top(broker.endpoint) as terminal:
        terminal.until("● well")
        terminal.vanish()
        assert terminal.process.wait() == -signal.SIGHUP


def test_sigterm_ends_top_also_if_the_terminal_takes_no_output(start_broker: StartBroker) -> None:
    """Somebody pressed Ctrl-S: the screen cannot be put back, but lines and echo are."""
    broker = start_broker()
    with top(broker.endpoint) as terminal:
        terminal.until("● well")
        theirs = os.open(terminal.path, os.O_RDWR | os.O_NOCTTY)
        try:
            assert not termios.tcgetattr(theirs)[LOCAL_MODES] & LINES_AND_ECHO
            termios.tcflow(theirs, termios.TCOOFF)
            terminal.process.send_signal(signal.SIGTERM)
            assert terminal.process.wait() == -signal.SIGTERM
            assert termios.tcgetattr(theirs)[LOCAL_MODES] & LINES_AND_ECHO == LINES_AND_ECHO
        finally:
            os.close(theirs)


def test_top_says_what_is_wrong_before_it_draws_a_screen(start_broker: StartBroker) -> None:
    """No broker: exit code 3.  A terminal that cannot move its cursor: 2."""
    broker = start_broker()
    with top(broker.endpoint, TERM="dumb") as terminal:
        assert terminal.end() == 2
        assert b"no terminal for a full screen" in terminal.drawn
    endpoint = broker.endpoint
    broker.stop()
    with top(endpoint) as terminal:
        assert terminal.end() == 3
        assert terminal.drawn.startswith(b"error: no answer from the broker")
