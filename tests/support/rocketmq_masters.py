"""A master of RocketMQ, as far as a standby that follows it sees one: scripted, on two ports."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from rmqlite.features.ha.frames import HEADER, REPORT
from rmqlite.protocols.remoting.bytes.frame import FrameDecoder, encode
from tests.support.rocketmq_slaves import HOST

PIECE_BYTES: Final = 1_000
OFFSETS, DELAYS, TOPICS, GROUPS, MODES = 43, 45, 21, 201, 402
SETTINGS, RUNTIME = 26, 28


class FakeMaster:
    """log: all of it is sent, in pieces.  frames: instead of it, after the first report.

    settings, bodies: what it answers; it knows no other codes.  refuses: codes that it answers with
    an error.
    """

    def __init__(self, log: bytes, file_bytes: int, levels: str) -> None:
        self.log = log
        self.file_bytes = file_bytes
        self.frames: list[bytes] = []
        self.settings = {"mappedFileSizeCommitLog": str(file_bytes), "messageDelayLevel": levels}
        self.bodies: dict[int, bytes] = {
            OFFSETS: b'{"offsetTable":{}}',
            DELAYS: b'{"offsetTable":{}}',
            TOPICS: b'{"dataVersion":{"counter":1,"timestamp":5},"topicConfigTable":{}}',
            GROUPS: b'{"dataVersion":{"counter":1,"timestamp":5},"subscriptionGroupTable":{}}',
        }
        self.refuses: set[int] = set()
        self.asked: list[int] = []
        """The codes that it was asked."""
        self.reports: list[int] = []
        self.firsts: list[int] = []
        """The first report of each connection."""
        self._listening = [socket.create_server((HOST, 0)) for _ in range(2)]
        self._open: list[socket.socket] = []
        self._is_over = False

    @property
    def ha_address(self) -> str:
        return f"{HOST}:{self._listening[0].getsockname()[1]}"

    @property
    def address(self) -> str:
        return f"{HOST}:{self._listening[1].getsockname()[1]}"

    def start(self) -> None:
        for listening, serve in zip(self._listening, (self._send_log, self._answer), strict=True):
            threading.Thread(target=self._accept, args=(listening, serve), daemon=True).start()

    def stop(self) -> None:
        self._is_over = True
        for each in (*self._listening, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def end_all(self) -> None:
        """End all connections; others may come."""
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self, listening: socket.socket, serve: Any) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                self._open.append(connection)
                threading.Thread(target=self._run, args=(serve, connection), daemon=True).start()

    def _run(self, serve: Any, connection: socket.socket) -> None:
        with suppress(OSError, EOFError), connection:
            serve(connection)

    def _send_log(self, connection: socket.socket) -> None:
        file = connection.makefile("rb")
        first = self._report(file)
        self.firsts.append(first)
        sending = threading.Thread(target=self._send, args=(connection, first), daemon=True)
        sending.start()
        while True:
            self._report(file)

    def _report(self, file: Any) -> int:
        data = file.read(REPORT.size)
        if len(data) < REPORT.size:
            raise EOFError
        self.reports.append(REPORT.unpack(data)[0])
        return self.reports[-1]

    def _send(self, connection: socket.socket, at: int) -> None:
        with suppress(OSError):
            if self.frames:
                for frame in self.frames:
                    connection.sendall(frame)
                return
            pause = threading.Event()
            while not self._is_over:
                size = min(PIECE_BYTES, len(self.log) - at, self.file_bytes - at % self.file_bytes)
                if size <= 0:
                    pause.wait(0.02)
                    continue
                connection.sendall(HEADER.pack(at, size) + self.log[at : at + size])
                at += size

    def _answer(self, connection: socket.socket) -> None:
        decoder = FrameDecoder()
        while data := connection.recv(1 << 16):
            for command in decoder.feed(data):
                self.asked.append(command.code)
                if command.code in self.refuses:
                    answer = command.answer(1, remark="no right")
                elif command.code not in {SETTINGS, RUNTIME, *self.bodies}:
                    answer = command.answer(3, remark="not supported")
                else:
                    answer = command.answer(0, {}, self._body_of(command.code))
                connection.sendall(encode(answer))

    def _body_of(self, code: int) -> bytes:
        if code == SETTINGS:
            return "".join([f"{key}={value}\n" for key, value in self.settings.items()]).encode()
        if code == RUNTIME:
            table = {"commitLogMinOffset": "0", "commitLogMaxOffset": str(len(self.log))}
            return json.dumps({"table": table}).encode()
        return self.bodies[code]


@contextmanager
def fake_master(log: bytes, file_bytes: int, levels: str) -> Iterator[FakeMaster]:
    master = FakeMaster(log, file_bytes, levels)
    master.start()
    try:
        yield master
    finally:
        master.stop()


def frame(at: int, data: bytes, size: int | None = None) -> bytes:
    return HEADER.pack(at, len(data) if size is None else size) + data
