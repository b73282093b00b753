"""A port that passes bytes on to another one; a direction can be held up."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

PIECE_BYTES: Final = 1 << 16


class Relay:
    """Runs inside the context.  What is held up comes when the cut is over."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._open = {"there": threading.Event(), "back": threading.Event()}
        for each in self._open.values():
            each.set()
        self._ends: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept)

    @contextmanager
    def cut(self, direction: str) -> Iterator[None]:
        """direction: "there", to the target, or "back"."""
        self._open[direction].clear()
        try:
            yield
        finally:
            self._open[direction].set()

    def __enter__(self) -> Relay:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._accepting.join()
        for each in self._ends:
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                try:
                    far = socket.create_connection(self._target)
                except OSError:
                    near.close()
                    continue
                self._ends += near, far
                for one, other, name in ((near, far, "there"), (far, near, "back")):
                    passing = (one, other, self._open[name])
                    threading.Thread(target=_pass, args=passing, daemon=True).start()


def _pass(one: socket.socket, other: socket.socket, is_open: threading.Event) -> None:
    with suppress(OSError):
        while data := one.recv(PIECE_BYTES):
            is_open.wait()
            other.sendall(data)
    for each in (one, other):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
