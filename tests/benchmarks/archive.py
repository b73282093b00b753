"""What an archive costs and what it gives.

    python -m tests.benchmarks.archive --seconds 20

A broker process without and with an archive in a folder, in turns: MB a second of one producer, as
fast as it can, and the broker's CPU for them.  Then messages at 20 MB a second, and how far behind
the archive is, each 100 ms; what an idle broker writes; a restore of all of it.  Then SIGKILLs,
each with a restore elsewhere: how much of what was acknowledged is lost.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from rmqlite.client import AdminClient, Message, Producer
from rmqlite.features.archive.restoring import Until, download, planned
from rmqlite.kernel.words.clock import pause_s
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.store_tools.moving.new_store import NewStore
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import cpu_s_of

BODY: Final = b"x" * 4_000
BATCH: Final = 250
MB: Final = 1_000_000


def settings(folder: Path | None) -> dict[str, str]:
    archive = {"archiveUrl": f"file://{folder}"} if folder else {}
    return {"diskSpaceWarningLevelRatio": "100", "cleanFileForciblyEnable": "false", **archive}


def sent_for(endpoint: str, seconds: float, bytes_per_s: float = 0) -> list[tuple[float, int]]:
    """Send batches; the time of each answer, and the log's bytes then as the sender counts them."""
    batch = [Message("orders", BODY) for _ in range(BATCH)]
    found, count, began_s = [], 0, time.monotonic()
    with Producer(endpoint, "senders") as producer:
        while (now_s := time.monotonic()) < began_s + seconds:
            producer.send_batch(batch)
            count += BATCH * len(BODY)
            found.append((time.monotonic(), count))
            if bytes_per_s:
                pause_s(max(0, began_s + count / bytes_per_s - now_s))
    return found


def lag_s(endpoint: str, seconds: float) -> list[float]:
    """For how long the archive has been lacking something, by samples."""
    found, began_s = [], time.monotonic()
    with AdminClient(endpoint) as admin:
        while time.monotonic() < began_s + seconds:
            status = admin.broker_status()
            (archive,) = status.archives
            if archive.archived_at_ms:
                is_behind = archive.behind_bytes > 0
                found.append((status.now_ms - archive.archived_at_ms) / 1000 * is_behind)
            pause_s(0.1)
    return found


def restore(url: str, target: Path) -> tuple[int, float, float]:
    """Bytes of the log, seconds for the download, seconds for the store made of it."""
    began_s = time.monotonic()
    plan = planned(url, Until())
    with NewStore(target) as made:
        made.make_part(plan.log_bytes)
        end = download(url, plan, made.disk, made.part, lambda _done, _total: None)
        downloaded_s = time.monotonic()
        made.complete(plan.state.files, end, plan.state.sizes)
        made.keep()
    return plan.log_bytes, downloaded_s - began_s, time.monotonic() - downloaded_s


def throughput(folder: Path, seconds: float, turns: int) -> None:
    ratios: list[tuple[float, float]] = []
    for turn in range(turns):
        found = []
        for has_archive in (False, True):
            place = folder / f"{turn}{has_archive}"
            archive = place / "archive" if has_archive else None
            with BrokerProcess(place, settings(archive), is_forked=False) as broker:
                sent_for(broker.endpoint, 1)
                cpu_s, began_s = cpu_s_of(broker.pid), time.monotonic()
                answers = sent_for(broker.endpoint, seconds)
                mb = answers[-1][1] / MB
                cpu_s = cpu_s_of(broker.pid) - cpu_s
                found.append((mb / (answers[-1][0] - began_s), cpu_s * 1e3 / mb))
        (rate, cpu_ms), (rate_with, cpu_ms_with) = found
        ratios.append((rate_with / rate, cpu_ms_with / cpu_ms))
        print(
            f"MB/s without, with: {rate:.1f}, {rate_with:.1f}; CPU ms a MB: {cpu_ms:.2f},"
            f" {cpu_ms_with:.2f}"
        )
    rates, cpus = zip(*ratios, strict=True)
    print(f"ratio of MB/s {statistics.median(rates):.3f}, of CPU {statistics.median(cpus):.3f}")


def lost(folder: Path, kills: int) -> None:
    """The oldest acknowledged message that a restore lacks: how old it was at the kill."""
    ages, url = [], f"file://{folder}/archive"
    broker = BrokerProcess(folder, settings(folder / "archive"), is_forked=False)
    for number in range(kills):
        broker.start()
        answers: list[tuple[float, int]] = []
        sending = threading.Thread(target=_quietly, args=(broker.endpoint, answers))
        sending.start()
        pause_s(2.5 + number % 7 * 0.3)
        with AdminClient(broker.endpoint) as admin:
            end, at_s = admin.broker_status().log_max_offset, time.monotonic()
        broker.kill()
        sending.join()
        log_bytes, _, _ = restore(url, folder / f"copy-{number}")
        # The log grows evenly: what it lacks, as time.
        begin_s, first = answers[0]
        acknowledged = [each for each in answers if each[0] <= at_s]
        rate = (acknowledged[-1][1] - first) / max(0.001, acknowledged[-1][0] - begin_s)
        ages.append(max(0, end - log_bytes) / rate)
    print(f"lost at {kills} SIGKILLs: median {statistics.median(ages):.2f} s, most {max(ages):.2f}")


def _quietly(endpoint: str, answers: list[tuple[float, int]]) -> None:
    batch, count = [Message("orders", BODY) for _ in range(10)], 0
    try:
        with Producer(endpoint, "senders", send_timeout_ms=1_000, retries=0) as producer:
            while True:
                producer.send_batch(batch)
                count += 10 * len(BODY)
                answers.append((time.monotonic(), count))
                pause_s(0.02)
    except RmqliteError:
        return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--only-cost", action="store_true", help="the turns alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        throughput(folder, options.seconds, options.turns)
        if options.only_cost:
            return
        place = folder / "paced"
        with BrokerProcess(place, settings(place / "archive"), is_forked=False) as broker:
            lags: list[float] = []
            looking = threading.Thread(
                target=lambda: lags.extend(lag_s(broker.endpoint, options.seconds))
            )
            looking.start()
            sent_for(broker.endpoint, options.seconds, 20 * MB)
            looking.join()
            print(f"lag at 20 MB/s: median {statistics.median(lags):.2f} s, most {max(lags):.2f}")
            pause_s(8)
            before = sorted((place / "archive").rglob("*"))
            pause_s(20)
            after = sorted((place / "archive").rglob("*"))
            print(f"objects that an idle broker writes in 20 s: {len(after) - len(before)}")
        size, download_s, rest_s = restore(f"file://{place}/archive", folder / "copy")
        print(
            f"restore: {size / MB:,.0f} MB, download {size / MB / download_s:,.0f} MB/s, its queues"
            f" {size / MB / rest_s:,.0f} MB/s"
        )
        lost(folder / "killed", options.kills)


if __name__ == "__main__":
    main()
