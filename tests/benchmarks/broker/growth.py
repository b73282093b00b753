"""The scenario growth: the rates of batch sends and of pulls as a store and its users become many.

The points of one curve differ in one number: of topics, of GB of log, or of consumers that wait.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from rmqlite.client import Producer, PullConsumer
from rmqlite.kernel.records.record import encode_blank
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.message import Message
from rmqlite.testing import BrokerProcess
from tests.benchmarks.broker.bench import Bench
from tests.benchmarks.broker.figures import Figure, case_at, spread
from tests.benchmarks.broker.loads import ENDLESS, GROUP, Load, parked_polls

TOPICS: Final = (1, 100, 10_000)
LOG_GB: Final = (1, 50)
"""Not scaled: the files are holes and cost nothing."""
CONSUMERS: Final = (10, 5_000)
SECONDS: Final = 3.0
WARM_UP_SECONDS: Final = 0.5
BATCH: Final = 32
THREADS: Final = 4
BODY_BYTES: Final = 1024
_LOG_FILE_BYTES: Final = 1 << 30
_TOPICS_PER_FILL: Final = 500


def growth(bench: Bench) -> Iterator[Figure]:
    """Sends and pulls with more topics, a longer log, and more consumers that wait."""
    with _broker(bench, "growth") as broker:
        for count in _sizes(bench, CONSUMERS):
            with parked_polls(broker.endpoint, "quiet", count):
                yield from _point(bench, broker.endpoint, "waiting consumers", count)
        for count in _sizes(bench, TOPICS):
            yield from _point(bench, broker.endpoint, "topics", count, topics=count)
    for gb in LOG_GB:
        with _broker(bench, "long log") as broker:
            broker.stop()
            shutil.rmtree(broker.store)
            lay_log(broker.store, gb)
            broker.start()
            yield from _point(bench, broker.endpoint, "GB of log", gb)


def _broker(bench: Bench, name: str) -> AbstractContextManager[BrokerProcess]:
    """Every topic has one queue, so that a pull finds the messages of _fill()."""
    topics_max = max(_sizes(bench, TOPICS)) + 1_000
    return bench.broker(name, defaultTopicQueueNums=1, maxTopics=topics_max)


def lay_log(store: Path, files: int) -> None:
    """Make a store whose log has so many files of 1 GiB, each a blank record over a hole.

    A blank is what ends a log file in RocketMQ's format, so every reader can walk these files.
    The persisted end lets the broker begin behind them.  The files have no messages: this measures
    the length of the log and the number of its files, not of messages.
    """
    (store / "commitlog").mkdir(parents=True)
    (store / "config").mkdir()
    for number in range(files):
        with (store / "commitlog" / f"{number * _LOG_FILE_BYTES:020d}").open("wb") as file:
            file.write(encode_blank(_LOG_FILE_BYTES))
            file.truncate(_LOG_FILE_BYTES)
    progress = {
        "physicalOffset": files * _LOG_FILE_BYTES,
        "newestTimestamp": 0,
        "queues": {},
        "completed": {},
    }
    (store / "config" / "storeProgress.json").write_text(json.dumps(progress))


def _sizes(bench: Bench, full: Sequence[int]) -> list[int]:
    """At this scale; a small scale makes some of them equal."""
    return sorted({bench.size(each) for each in full})


def _point(
    bench: Bench, endpoint: str, noun: str, number: int, *, topics: int = 1
) -> Iterator[Figure]:
    case, sends = case_at(noun, number), case_at(f"sends, {noun}", number)
    load = Load(
        endpoint,
        THREADS,
        ENDLESS,
        bench.seconds(SECONDS),
        BATCH,
        BODY_BYTES,
        topics=topics,
        warm_up_s=bench.seconds(WARM_UP_SECONDS),
    )
    names = load.topic_names()
    with bench.phase(f"growth: {case}: fill"), Producer(endpoint, GROUP) as producer:
        _fill(producer, names)
    result = bench.load(f"growth: {case}: send", load)
    yield Figure("growth", sends, "rate", result.per_second, "msg/s")
    yield from spread("growth", sends, result.calls_ms)
    with bench.phase(f"growth: {case}: pull"), PullConsumer(endpoint, GROUP) as consumer:
        _pull(consumer, names, load.warm_up_s)
        rate = _pull(consumer, names, load.seconds)
    yield Figure("growth", case_at(f"pulls, {noun}", number), "rate", rate, "msg/s")


def _fill(producer: Producer, topics: Sequence[str]) -> None:
    """Make the topics, and give queue 0 of each as many messages as one pull takes."""
    body = bytes(BODY_BYTES)
    for begin in range(0, len(topics), _TOPICS_PER_FILL):
        part = topics[begin : begin + _TOPICS_PER_FILL]
        # The first message of each makes all topics of the part in one write of their table.
        producer.send_batch([Message(topic, body) for topic in part])
        producer.send_batch([Message(topic, body) for topic in part for _ in range(BATCH - 1)])


def _pull(consumer: PullConsumer, topics: Sequence[str], seconds: float) -> float:
    """Pull the first messages of the topics in turn; returns messages per second."""
    began_s = elapsed_s()

    def pull(thread: int) -> int:
        count, at = 0, len(topics) * thread // THREADS
        while elapsed_s() - began_s < seconds:
            count += len(consumer.pull(topics[at], 0, 0, max_messages=BATCH).messages)
            at = (at + 1) % len(topics)
        return count

    with ThreadPoolExecutor(THREADS) as pool:
        pulled = sum(pool.map(pull, range(THREADS)))
    return pulled / (elapsed_s() - began_s)
