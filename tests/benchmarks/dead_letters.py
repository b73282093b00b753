"""How fast 100,000 dead letters of one group are looked at, found, redriven and purged.

    python -m tests.benchmarks.dead_letters --letters 100000

The store is made first; then a broker process of its own on it answers, SYNC_FLUSH, and one
client asks: on a machine of two cores both share these.  Bodies of about 60 bytes, five
reasons, three topics, four tags.  Every figure is one run; "again" is the same call once more.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from rmqlite.client import AdminClient
from rmqlite.features.dead_letters.requests import (
    DEAD_LETTERS_MAX,
    EVERY_DEAD_LETTER,
    DeadLetter,
    DeadLetterFilter,
    DeadLettersQuery,
    PurgeRequest,
)
from rmqlite.features.redrive.requests import RedriveJob, RedriveSpec
from rmqlite.kernel.words.clock import elapsed_s, wall_ms
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import peak_mib
from tests.support.dead_letters import (
    GROUP,
    REASONS,
    dead_letter_store,
    key_of,
    message_id_of,
    reason_of,
    tag_of,
    topic_of,
)

T = TypeVar("T")
SETTINGS = {"diskSpaceWarningLevelRatio": "100", "cleanFileForciblyEnable": "false"}
ANSWER_MS_MAX = 60_000
LOOK_S = 0.05
"""How often a job is asked how far it is."""


def measured(name: str, ask: Callable[[], T], letters: int = 0) -> T:
    """Ask, and print how long that took, and how many letters a second that is."""
    began_s = elapsed_s()
    answer = ask()
    took_s = elapsed_s() - began_s
    rate = f"{letters / took_s:12,.0f} letters/s" if letters else ""
    print(f"{name:44} {took_s * 1000:9,.1f} ms{rate}", flush=True)
    return answer


def every(admin: AdminClient, wanted: DeadLetterFilter = EVERY_DEAD_LETTER) -> list[DeadLetter]:
    """All letters that fit, page by page."""
    return list(admin.dead_letters.dead(GROUP, wanted))


def look(admin: AdminClient, count: int) -> None:
    """The group's summary, pages, and every kind of filter."""
    for name in ("groups, the first call", "groups, again"):
        (group,) = measured(name, admin.dead_letters.groups)
        assert group.letters == count
    pages = {
        "first page of 100": DeadLettersQuery(GROUP),
        "first page of 1,000": DeadLettersQuery(GROUP, max_letters=DEAD_LETTERS_MAX),
        "newest page of 100": DeadLettersQuery(GROUP, newest_first=True),
    }
    for name, query in pages.items():
        page = measured(name, partial(admin.dead_letters.list_dead, query))
        assert page.letters
    rare = REASONS[3].split("\n")[0]
    filters = {
        "a reason of a tenth": DeadLetterFilter(reason=rare.lower()),
        "a topic of a third": DeadLetterFilter(topic=topic_of(0)),
        "a tag of a quarter": DeadLetterFilter(tag=tag_of(0)),
        "one key": DeadLetterFilter(key=key_of(count // 2)),
        "one message id": DeadLetterFilter(ids=(message_id_of(count // 2),)),
    }
    expected = {
        "a reason of a tenth": [n for n in range(count) if reason_of(n) == REASONS[3]],
        "a topic of a third": [n for n in range(count) if topic_of(n) == topic_of(0)],
        "a tag of a quarter": [n for n in range(count) if tag_of(n) == tag_of(0)],
        "one key": [count // 2],
        "one message id": [count // 2],
    }
    for name, wanted in filters.items():
        # A key and an id are found by the index; the rest is looked for in every letter.
        looked_at = count if len(expected[name]) > 1 else 0
        found = measured(f"all with {name}", partial(every, admin, wanted), looked_at)
        assert [each.message_id for each in found] == [message_id_of(n) for n in expected[name]]
    oldest = measured("all pages", partial(every, admin), count)
    assert len(oldest) == count
    newest = measured(
        "all pages, newest first",
        lambda: list(admin.dead_letters.dead(GROUP, newest_first=True)),
        count,
    )
    assert newest[::-1] == oldest


def finished(admin: AdminClient, job: RedriveJob) -> RedriveJob:
    """The job when it is over."""
    pause = threading.Event()
    while not job.is_over:
        pause.wait(LOOK_S)
        job = admin.redrives.job(job.job_id)
    return job


def redrive(admin: AdminClient, count: int) -> None:
    spec = RedriveSpec(GROUP)
    preview = measured("preview of a redrive", lambda: admin.redrives.preview(spec), count)
    assert preview.sent == count
    job = measured("redrive", lambda: finished(admin, admin.redrives.start(spec)), count)
    assert (job.sent, job.already, job.refused) == (count, 0, 0)
    sent = sum(
        [each.max_offset for n in range(3) for each in admin.ranges(topic_of(n))], start=-count
    )
    assert sent == count, f"{sent} letters are in their topics again"
    preview = measured("preview, all redriven", lambda: admin.redrives.preview(spec), count)
    assert preview.already == count
    job = measured("redrive, all redriven", lambda: finished(admin, admin.redrives.start(spec)))
    assert (job.sent, job.already) == (0, count)
    outcomes = measured("every outcome", lambda: list(admin.redrives.outcomes(job.job_id)), count)
    assert len(outcomes) == count
    (group,) = measured("groups, all redriven", admin.dead_letters.groups)
    assert (group.letters, group.open) == (count, 0)


def purge(admin: AdminClient, count: int) -> None:
    for name, request in {
        "purge of all, dry": PurgeRequest(GROUP, dry_run=True),
        "purge of all": PurgeRequest(GROUP),
    }.items():
        purged = measured(name, partial(admin.dead_letters.purge, request))
        assert purged.letters == count
    (group,) = measured("groups, all purged", admin.dead_letters.groups)
    assert (group.letters, group.purged) == (0, count)
    back = measured(
        "purge taken back", lambda: admin.dead_letters.purge(PurgeRequest(GROUP, restore=True))
    )
    assert back.letters == count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--letters", type=int, default=100_000)
    count = parser.parse_args().letters
    with tempfile.TemporaryDirectory() as folder:
        measured(
            "(the store, made without a broker)",
            lambda: dead_letter_store(
                Path(folder) / "store", count, begins_ms=wall_ms() - 10 * count
            ),
            count,
        )
        with BrokerProcess(Path(folder), SETTINGS, is_forked=False) as broker:
            with AdminClient(broker.endpoint, timeout_ms=ANSWER_MS_MAX) as admin:
                look(admin, count)
                redrive(admin, count)
                purge(admin, count)
            print(f"{'(the broker, resident, at most)':44} {peak_mib(broker):9,.0f} MiB")
            broker.stop()
            measured("(the broker's next start)", broker.start)
            with AdminClient(broker.endpoint, timeout_ms=ANSWER_MS_MAX) as admin:
                (group,) = measured("groups after it, the first call", admin.dead_letters.groups)
                assert (group.letters, group.open) == (count, 0)


if __name__ == "__main__":
    main()
