"""The page "From Celery, RabbitMQ, SQS, BullMQ": each piece of its code does what the page says."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, Final

import pytest

from rmqlite.client import Message
from rmqlite.client.asyncio import AsyncPushConsumer
from rmqlite.kernel.words.clock import elapsed_s
from tests.support.broker_processes import StartBroker
from tests.support.documents import ROOT, Page
from tests.support.event_loops import until
from tests.support.eventually import WAIT_S, eventually

PAGE: Final = Page.read(ROOT / "rmqlite" / "client" / "FROM_OTHERS.md")
LINES_MAX: Final = 8
"""Of one piece: the page promises to be short."""


class Piece:
    """One piece of code, which has run after what all of them begin with.

    names: what both have defined.  printed: a text for each print().
    """

    def __init__(self, code: str, endpoint: str, closing: ExitStack) -> None:
        self.printed: list[str] = []
        self._closing = closing
        whole = f"{BEGIN}\n{code}".replace("127.0.0.1:8081", endpoint)
        space: dict[str, Any] = {"print": self._print}
        try:
            exec(compile(whole, PAGE.name, "exec"), space)
        finally:
            for each in space.values():
                if hasattr(each, "close") and not isinstance(each, AsyncPushConsumer | type):
                    closing.callback(each.close)
        self.names = SimpleNamespace(**space)

    def _print(self, *values: object) -> None:
        self.printed.append(" ".join(map(str, values)))

    def until(self, *printed: str) -> None:
        """These, in any order, and no more."""
        eventually(lambda: len(self.printed) >= len(printed), f"{printed}")
        assert sorted(self.printed) == sorted(printed)

    def send(self, topic: str, body: bytes = b"{}") -> None:
        self.names.producer.send(Message(topic, body, keys="a-1"))

    def work(self, topic: str, group: str, listener: Callable[..., Any]) -> None:
        """Until the end of the test."""
        self._closing.callback(self.names.work(topic, group, listener).close)

    def run(self, topic: str, *printed: str) -> None:
        """The worker of the piece, until it has printed these in this order."""

        async def service() -> None:
            async with self.names.worker as worker:
                worker.subscribe(topic)
                await worker.start()
                await until(lambda: len(self.printed) >= len(printed), f"{printed}")

        asyncio.run(asyncio.wait_for(service(), WAIT_S))
        assert self.printed == list(printed)

    def waits_ms(self) -> list[int]:
        """How long each waiting message waits from its send on, the next one first."""
        pending = self.names.admin.schedule.pending()
        return [each.deliver_at_ms - each.born_timestamp_ms for each in pending]


def _is_later(piece: Piece) -> None:
    hours, days = piece.waits_ms()
    assert hours == pytest.approx(36 * 3_600_000, abs=WAIT_S * 1000)
    assert days == pytest.approx(300 * 86_400_000, abs=WAIT_S * 1000)


def _is_cancelled(piece: Piece) -> None:
    assert piece.printed == ["DONE"]
    assert piece.waits_ms() == []


def _comes_again(piece: Piece) -> None:
    info = piece.names.admin.group("mailer").info
    assert info.retry_policy == "exponential(10s, 2, 1h, jitter=20%)"
    assert info.max_reconsume_times == 8
    piece.send("mails")
    piece.work("mails", "mailer", piece.names.send_mail)
    piece.until("sent at attempt 2")


def _dies_and_is_redriven(piece: Piece) -> None:
    piece.send("mails")
    piece.work("mails", "mailer", piece.names.send_mail)
    groups = piece.names.admin.dead_letters.groups
    eventually(lambda: bool(groups()), "a dead letter")
    job = piece.names.send_again()
    assert piece.printed == ["('a-1',) no such address"]
    eventually(lambda: piece.names.admin.redrives.job(job.job_id).sent == 1, "it was sent again")


def _is_limited(piece: Piece) -> None:
    """A burst may be there when the first mail is sent; the others come at the rate."""
    info = piece.names.admin.group("mailer").info
    assert (info.max_per_second, info.burst) == (10.0, 20)
    came_s: list[float] = []
    began_s = elapsed_s()
    for _ in range(30):
        piece.send("mails")
    piece.work("mails", "mailer", lambda _: came_s.append(elapsed_s()))
    eventually(lambda: len(came_s) == 30, "all came")
    assert came_s[-1] - began_s >= (30 - 20) / 10


def _goes_on_by_itself(piece: Piece) -> None:
    """A run that is repeated begins no second chain."""
    today = piece.names.datetime.now(piece.names.UTC).date()
    first, second, third = (str(today + piece.names.timedelta(days=n)) for n in (1, 2, 3))
    for day in (first, first, second):
        piece.names.report(SimpleNamespace(body=day.encode()))
    waiting = [each.keys for each in piece.names.admin.schedule.pending()]
    assert waiting == [(f"report-{second}",), (f"report-{third}",)]


def _prints(*texts: str) -> Callable[[Piece], None]:
    return lambda piece: piece.until(*texts)


def _transcodes(piece: Piece) -> None:
    piece.send("video", b"film")
    piece.run("video", "transcoded b'film'")


STEPS: Final = ("paid", "packed", "sent")
CHECKS: Final[dict[str, Callable[[Piece], None]]] = {
    "A task and its worker": _prints("mail to ada"),
    "Later": _is_later,
    "Cancel and move": _is_cancelled,
    "Retries with backoff": _comes_again,
    "Dead letters": _dies_and_is_redriven,
    "Long work": _transcodes,
    "Rate limits": _is_limited,
    "Periodic jobs": _goes_on_by_itself,
    "Once only": _prints("False True"),
    "In order": lambda piece: piece.run("orders", *[f"order-3 {s}" for s in STEPS]),
    "Several receivers": _prints("bill paid", "audit paid"),
}
_HEAD, *_SECTIONS = re.split(r"^## ", PAGE.text, flags=re.MULTILINE)
(BEGIN,) = Page(PAGE.name, _HEAD).fences("python")
PIECES: Final = {
    section.partition("\n")[0]: code
    for section in _SECTIONS
    for code in Page(PAGE.name, section).fences("python")
}


def test_every_piece_is_tried_and_short() -> None:
    """A pattern that needs a page of code is not here."""
    assert list(PIECES) == list(CHECKS)
    assert len(PIECES) == len(PAGE.fences("python")) - 1, "one for each section"
    lines = {title: len(re.findall(r"^.*\S", code, re.MULTILINE)) for title, code in PIECES.items()}
    assert {title: count for title, count in lines.items() if count > LINES_MAX} == {}


def test_what_all_pieces_begin_with_is_used() -> None:
    """Nobody copies an import for nothing."""
    nodes = [*ast.walk(ast.parse("\n".join(PAGE.fences("python"))))]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom | ast.Import)]
    names = [alias.name for node in imports for alias in node.names]
    assert [name for name in names if name not in used | {"annotations"}] == []


@pytest.mark.parametrize("title", CHECKS)
def test_a_piece_does_what_the_page_says(title: str, start_broker: StartBroker) -> None:
    """It is copied as it stands.  The broker's only delay level makes every retry a second long."""
    broker = start_broker(messageDelayLevel="1s")
    with ExitStack() as closing:
        CHECKS[title](Piece(PIECES[title], broker.endpoint, closing))
