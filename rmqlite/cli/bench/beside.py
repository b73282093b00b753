"""A small steady load during a measurement: it times other calls meanwhile.

It sends to and pulls from its own topic, in its own process.  A call's time counts from its
planned start, not from its real one: if a broker hangs for a second, every call of that second
shows it, and not only the one under way.
"""

from __future__ import annotations

import multiprocessing
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Final

from rmqlite.cli.bench.figures import Figure, spread
from rmqlite.clock import elapsed_s, pause_s
from rmqlite.errors import BrokerUnreachable, RmqliteError
from rmqlite.message import Message

TOPIC: Final = "beside"
SENDERS: Final = 20
SENDS_PER_S: Final = 200
PULLERS: Final = 5
PULLS_PER_S: Final = 50
BODY_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Calls:
    """The duration of each call."""

    sends_ms: tuple[float, ...]
    pulls_ms: tuple[float, ...]

    def figures(self, scenario: str, when: str) -> Iterator[Figure]:
        """when: what else the broker did."""
        yield from spread(scenario, f"send {when}", self.sends_ms)
        yield from spread(scenario, f"pull {when}", self.pulls_ms)


class Beside:
    """Its process starts with the object, and makes calls from begin() to end()."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._hear()

    def begin(self, endpoint: str) -> None:
        """Connect, and make calls; returns when the first ones are answered."""
        self._pipe.send(endpoint)
        self._hear()

    def end(self) -> Calls:
        """Stop the calls; returns the durations of those since begin()."""
        self._pipe.send("")
        calls = self._hear()
        assert isinstance(calls, Calls)
        return calls

    def __enter__(self) -> Beside:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pipe.close()
        self._process.terminate()
        self._process.join()

    def _hear(self) -> Calls | None:
        try:
            told = self._pipe.recv()
        except EOFError:
            raise BrokerUnreachable("the process that made calls has ended") from None
        if isinstance(told, str):
            raise BrokerUnreachable(f"the process that made calls failed: {told}")
        assert told is None or isinstance(told, Calls)
        return told


def _work(pipe: Connection) -> None:
    # Import it before the first answer: that takes longer than a broker's start.
    import rmqlite.client  # noqa: F401

    pipe.send(None)
    try:
        while True:
            pipe.send(_called(pipe.recv(), pipe))
    except RmqliteError as error:
        # Send text: an exception with its own arguments does not survive a pipe.
        pipe.send(str(error))
    except EOFError:
        return


def _called(endpoint: str, pipe: Connection) -> Calls:
    from rmqlite.client import Producer, PullConsumer

    message = Message(TOPIC, bytes(BODY_BYTES))
    with (
        Producer(endpoint, "rmqlite-bench") as producer,
        PullConsumer(endpoint, "rmqlite-bench") as consumer,
        ThreadPoolExecutor(SENDERS + PULLERS) as pool,
    ):

        def send() -> None:
            producer.send(message)

        def pull() -> None:
            consumer.pull(TOPIC, 0, 0, max_messages=1)

        producer.send(message, queue_id=0)
        pull()
        pipe.send(None)
        ended = threading.Event()
        began_s = elapsed_s()

        def calls(
            call: Callable[[], None], threads: int, per_second: int
        ) -> list[Future[array[float]]]:
            interval_s = threads / per_second
            first_s = [began_s + thread / per_second for thread in range(threads)]
            return [pool.submit(_timed, call, at_s, interval_s, ended) for at_s in first_s]

        sends = calls(send, SENDERS, SENDS_PER_S)
        pulls = calls(pull, PULLERS, PULLS_PER_S)
        try:
            pipe.recv()
        finally:
            ended.set()
        return Calls(_all_of(sends), _all_of(pulls))


def _all_of(calls: Iterable[Future[array[float]]]) -> tuple[float, ...]:
    return tuple([ms for each in calls for ms in each.result()])


def _timed(
    call: Callable[[], None], first_s: float, interval_s: float, ended: threading.Event
) -> array[float]:
    """Call at least once, at even intervals, until `ended` is set."""
    calls_ms = array("d")
    turn_s = first_s
    while not (ended.is_set() and calls_ms):
        pause_s(max(0.0, turn_s - elapsed_s()))
        call()
        calls_ms.append((elapsed_s() - turn_s) * 1000)
        turn_s += interval_s
    return calls_ms
