"""A server of S3's protocol, and a proxy before it that has bad days."""

from __future__ import annotations

import http.client
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from rmqlite.kernel.words.clock import pause_s
from tests.support import toolchains
from tests.support.broker_processes import free_port
from tests.support.eventually import eventually
from tests.support.fake_s3 import FakeS3

_REFUSAL: Final = "<Error><Code>{0}</Code><Message>{0}</Message></Error>"


@contextmanager
def s3_server(log: Path) -> Iterator[str]:
    """The address of a server of S3 with an empty bucket, named "bucket"."""
    address = f"http://127.0.0.1:{free_port()}"
    command = [*toolchains.s3_server(), "-H", "127.0.0.1", "-p", address.rsplit(":", 1)[1]]

    def is_made() -> bool:
        try:
            made = urllib.request.Request(f"{address}/bucket", method="PUT")
            with urllib.request.urlopen(made, timeout=5):
                return True
        except OSError:
            return False

    with log.open("w") as lines:
        process = subprocess.Popen(command, stdout=lines, stderr=lines)
        try:
            eventually(is_made, "the server of S3 makes a bucket")
            yield address
        finally:
            process.kill()
            process.wait()


class BadBucket:
    """Passes requests on to the server at an address, or to a few lines of our own without one.

    away: no answer.  broken: the status 500, each second time.  refused: the status and code.
    bytes_per_s: how slowly bodies are taken.  requests: how many have come.
    """

    def __init__(self, address: str) -> None:
        self.is_away = self.is_broken = False
        self.refused: tuple[int, str] | None = None
        self.bytes_per_s = 0
        self.requests = 0
        self._own = FakeS3()
        host = address.removeprefix("http://")
        bucket = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                bucket.requests += 1
                if bucket.is_away:
                    self.close_connection = True
                    return
                if bucket.bytes_per_s:
                    pause_s(len(body) / bucket.bytes_per_s)
                answer = bucket.answer(self, body, host)
                self.send_response_only(answer[0])
                for name, value in answer[1]:
                    self.send_header(name, value)
                self.end_headers()
                with suppress(OSError):
                    self.wfile.write(answer[2])

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = pass_on

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def answer(
        self, asked: BaseHTTPRequestHandler, body: bytes, host: str
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Status, headers and body."""
        refused = self.refused
        if self.is_broken and self.requests % 2:
            refused = 500, "InternalError"
        if refused:
            text = _REFUSAL.format(refused[1]).encode()
            return refused[0], [("content-length", str(len(text)))], text
        if not host:
            headers = {name.lower(): value for name, value in asked.headers.items()}
            status, about, text = self._own.answer(asked.command, asked.path, headers, body)
            about.append(("content-length", str(len(text))))
            return status, about, text if asked.command != "HEAD" else b""
        link = http.client.HTTPConnection(host, timeout=60)
        link.request(asked.command, asked.path, body, dict(asked.headers.items()))
        found = link.getresponse()
        text = found.read()
        kept = [each for each in found.getheaders() if each[0].lower() not in _OF_ONE_LINK]
        size = found.getheader("content-length", "0") if asked.command == "HEAD" else str(len(text))
        link.close()
        return found.status, [*kept, ("content-length", size)], text

    def __enter__(self) -> BadBucket:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


_OF_ONE_LINK: Final = {"connection", "content-length", "transfer-encoding", "keep-alive"}
