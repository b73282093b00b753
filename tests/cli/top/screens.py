"""Driving the application without a terminal: keys in, text out, and no real waiting.

The broker is the fake one behind real gRPC; seconds pass only when a test says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from textual.pilot import Pilot

from rmqlite.cli.top.app import TopApp
from rmqlite.cli.top.overview_screen import OverviewScreen
from rmqlite.client import AdminClient
from tests.support.fake_broker import FakeBroker

CALL_MS_MAX = 20_000


class Shown:
    """The application on a screen of a size."""

    def __init__(self, app: TopApp, pilot: Pilot[None], seconds: Seconds) -> None:
        self.app = app
        self.seconds = seconds
        self._pilot = pilot

    async def press(self, *keys: str) -> None:
        """Press keys, as a person does who waits each time until it shows what was asked for."""
        for key in keys:
            await self._pilot.press(key)
            await self.settle()

    async def press_only(self, *keys: str) -> None:
        """Press keys, whatever is still under way."""
        await self._pilot.press(*keys)

    async def resize(self, width: int, height: int) -> None:
        await self._pilot.resize_terminal(width, height)
        await self.settle()

    async def pass_seconds(self, seconds: float) -> None:
        """Time passes, and its tick is answered."""
        self.seconds.now_s += seconds
        self.app.tick()
        await self.settle()

    async def settle(self) -> None:
        await self._pilot.pause()
        while any([not worker.is_finished for worker in self.app.workers]):
            await self.app.workers.wait_for_complete()
            await self._pilot.pause()
        await self._pilot.pause()

    @property
    def lines(self) -> list[str]:
        """What a terminal would show."""
        strips = self.app.screen._compositor.render_strips()
        return [strip.text.rstrip() for strip in strips]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class Seconds:
    """elapsed_s() that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def drive(
    broker: FakeBroker,
    look: Callable[[Shown], Coroutine[Any, Any, None]],
    *,
    size: tuple[int, int] = (80, 24),
) -> TopApp:
    """Run the application against the broker, and look at it."""
    seconds = Seconds()
    admin = AdminClient(broker.endpoint, timeout_ms=CALL_MS_MAX)
    app = TopApp(admin, "127.0.0.1:10911", OverviewScreen, elapsed=seconds)

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            shown = Shown(app, pilot, seconds)
            await shown.settle()
            await look(shown)

    asyncio.run(run())
    return app
