"""A standby is promoted in the middle of everything that lasts: each goes on at the new master.

    python -m tests.conformance.standby.promotions --timers 1000000

A redrive runs, a bulk job sends, a lease is held, a transaction is open, and timers wait, when the
master is killed.  Then nothing is missing and nothing comes twice, and the first timer that is due
is delivered soon.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.client import (
    AdminClient,
    BulkMessage,
    BulkProgress,
    BulkScheduler,
    LeasedMessage,
    Message,
    Producer,
    RedriveSpec,
    SimpleConsumer,
)
from rmqlite.features.redrive.requests import JobState
from rmqlite.kernel.words.clock import elapsed_s, pause_s, utc, wall_ms
from tests.support.eventually import WAIT_S, eventually
from tests.support.fail_over import promoted
from tests.support.open_transactions import begun, ended
from tests.support.standbys import Pair, bodies_of, replication, wait_for_copy

LETTERS: Final = 60
LETTERS_PER_SECOND: Final = 10
DUE: Final = 100
DUE_IN_MS: Final = 3_000
PATIENT_MS: Final = 60_000
"""A broker with much to do, on a machine with much to do."""
FIRST_S_MAX: Final = 5.0
"""Within so many seconds of the promotion a timer that is due is delivered."""
HOUR_MS: Final = 3_600_000
TIMERS_PER_S_MIN: Final = 5_000
"""How many timers a broker with a standby takes a second, on a machine with much to do."""
LEASE: Final = "20m"


class Found(NamedTuple):
    """first_s: from the promotion to the first delivery of a timer that was due.

    rejoined_s: from the start of the killed broker until there are two copies again.
    """

    timers: int
    first_s: float
    rejoined_s: float


def drained(consumer: SimpleConsumer) -> Iterator[LeasedMessage]:
    while found := consumer.receive(32, wait="1s"):
        yield from found
        consumer.ack(found)


def schedule(
    endpoints: str, timers: int, goes_on: threading.Event, sent: list[BulkProgress]
) -> None:
    """So many timers in one bulk job, which has a quarter to send when it goes on."""
    due_ms = wall_ms() + HOUR_MS

    def messages() -> Iterator[BulkMessage]:
        for n in range(timers):
            if n == timers * 3 // 4:
                assert goes_on.wait(WAIT_S + timers / TIMERS_PER_S_MIN)
            name = f"timer-{n}"
            yield BulkMessage("timers", b"later", message_id=name, deliver_at_ms=due_ms + n)

    with BulkScheduler(endpoints, job_id="timers") as bulk:
        sent.append(bulk.schedule_all(messages()))


def run(folder: Path, timers: int) -> Found:
    """Raises AssertionError for whatever is missing, or comes twice."""
    # One file of the key index has all: a bulk job looks each message up in every one.
    with Pair(folder, maxHashSlotNum=str(timers), maxIndexNum=str(4 * timers)) as pair:
        master, endpoints = pair.first.endpoint, pair.endpoints
        with Producer(endpoints, "shop") as producer:
            producer.send_batch([Message("orders", b"%d" % n) for n in range(LETTERS)])
            producer.send(Message("leased", b"held"))
        workers, holder = [SimpleConsumer(endpoints, group) for group in ("workers", "holders")]
        workers.subscribe("orders")
        holder.subscribe("leased")
        buried = 0
        while buried < LETTERS:
            some = workers.receive(32, wait="5s")
            workers.bury(some, "no stock")
            buried += len(some)
        [held] = holder.receive(1, wait="5s", invisible=LEASE)
        entry = begun(master, "bills", b"open")
        sent: list[BulkProgress] = []
        goes_on = threading.Event()
        sending = threading.Thread(target=schedule, args=(endpoints, timers, goes_on, sent))
        sending.start()
        with AdminClient(master, timeout_ms=PATIENT_MS) as admin:
            eventually(
                lambda: sum(each.pending for each in admin.schedule.count_pending()) > timers // 2,
                "half of the timers wait",
                WAIT_S + timers / TIMERS_PER_S_MIN,
            )
            job = admin.redrives.start(
                RedriveSpec("workers", max_per_second=LETTERS_PER_SECOND), job_id="again"
            )
        due_ms = wall_ms() + DUE_IN_MS
        with Producer(endpoints, "shop") as producer:
            producer.send_batch([Message("timers", b"due", deliver_at=utc(due_ms))] * DUE)
        wait_for_copy(pair.first)
        with AdminClient(master, timeout_ms=PATIENT_MS) as admin:
            assert admin.redrives.job(job.job_id).state is JobState.RUNNING
        while wall_ms() < due_ms - 500:
            pause_s(0.05)
        goes_on.set()
        pair.first.kill()
        promoted(pair.second.endpoint)
        began_s = elapsed_s()
        eventually(lambda: b"due" in bodies_of(pair.second, "timers"), "a timer that was due")
        first_s = elapsed_s() - began_s
        # It waits for a second copy, as everything does.
        began_s = elapsed_s()
        pair.first.start()
        eventually(lambda: not replication(pair.second).alone_since_ms, "there are two copies")
        rejoined_s = elapsed_s() - began_s
        sending.join()
        wait_for_copy(pair.second)
        check_all(pair, workers, holder, held)
        assert ended(pair.second.endpoint, "bills", entry, is_kept=True)
        eventually(lambda: bodies_of(pair.second, "bills") == [b"open"], "the transaction")
        check_timers(pair, timers, sent)
        for each in (workers, holder):
            each.close()
    return Found(timers, first_s, rejoined_s)


def check_all(
    pair: Pair, workers: SimpleConsumer, holder: SimpleConsumer, held: LeasedMessage
) -> None:
    with AdminClient(pair.second.endpoint) as admin:
        eventually(lambda: admin.redrives.job("again").state is JobState.DONE, "the redrive ends")
        assert admin.redrives.job("again").sent == LETTERS
    again = Counter(each.body for each in drained(workers))
    assert again == Counter(b"%d" % n for n in range(LETTERS)), again
    assert not holder.receive(1, wait="1s"), "a held message came to another"
    holder.ack(held)


def check_timers(pair: Pair, timers: int, sent: list[BulkProgress]) -> None:
    assert sent[0].messages == timers
    assert not sent[0].refused
    with AdminClient(pair.second.endpoint) as admin:
        waiting = sum(each.pending for each in admin.schedule.count_pending())
    assert waiting == timers, (waiting, timers)
    assert bodies_of(pair.second, "timers") == [b"due"] * DUE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timers", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmqlite-promotions-") as folder:
        found = run(Path(folder), options.timers)
    first = f"first_delivery={found.first_s:.2f} s (at most {FIRST_S_MAX})"
    print(f"timers={found.timers} {first} two_copies={found.rejoined_s:.2f} s")


if __name__ == "__main__":
    main()
