"""Which letters were redriven, by whom: the set that listings and jobs ask."""

from __future__ import annotations

import json

from rmqlite.features.dead_letters.redriven import EARLIER, Redriven

DLQ = "%DLQ%billing"


def test_a_letter_that_no_job_has_sent_is_open() -> None:
    """Nothing is redriven by itself."""
    redriven = Redriven()
    assert redriven.of(DLQ, 0).count_between(0, 100) == 0
    assert redriven.job_of(DLQ, 0, 7) == ""
    assert redriven.version == 0


def test_what_was_sent_is_known_by_its_job() -> None:
    """Ranges stay apart, and so do queues and groups."""
    redriven = Redriven()
    redriven.add("first", DLQ, 0, 5, 8)
    redriven.add("second", DLQ, 0, 10, 11)
    assert [redriven.job_of(DLQ, 0, n) for n in (4, 5, 7, 8, 10)] == [
        *("", "first", "first", "", "second")
    ]
    assert redriven.job_of(DLQ, 1, 5) == redriven.job_of("%DLQ%other", 0, 5) == ""
    assert redriven.of(DLQ, 0).count_between(0, 100) == 4


def test_of_two_jobs_the_later_one_is_named() -> None:
    """Who redrives a letter again, knowingly, is the one to ask about it."""
    redriven = Redriven()
    redriven.add("first", DLQ, 0, 0, 3)
    redriven.add("again", DLQ, 0, 1, 2)
    assert [redriven.job_of(DLQ, 0, n) for n in range(3)] == ["first", "again", "first"]


def test_what_a_forgotten_job_has_sent_stays_known() -> None:
    """Else its letters would be sent a second time."""
    redriven = Redriven()
    redriven.add("first", DLQ, 0, 0, 3)
    redriven.add("second", DLQ, 0, 3, 4)
    version = redriven.version
    redriven.forget("first", DLQ)
    assert redriven.version > version
    assert [redriven.job_of(DLQ, 0, n) for n in (0, 2, 3)] == [EARLIER, EARLIER, "second"]
    assert redriven.of(DLQ, 0).ranges() == [(0, 4)]


def test_it_is_the_same_from_its_table() -> None:
    """A restart forgets nothing."""
    redriven = Redriven()
    redriven.add("first", DLQ, 0, 100_000, 200_000)
    redriven.add("second", DLQ, 3, 1, 2)
    redriven.forget("second", DLQ)
    again = Redriven()
    for job_id in (EARLIER, "first"):
        tree = json.loads(json.dumps(redriven.to_json(DLQ, job_id)))
        again.load(DLQ, tree, job_id, end_of=lambda _topic, _queue_id: 200_000)
    assert again.topics() == [DLQ]
    assert again.of(DLQ, 0).ranges() == [(100_000, 200_000)]
    assert again.job_of(DLQ, 0, 150_000) == "first"
    assert again.job_of(DLQ, 3, 1) == EARLIER


def test_letters_that_the_log_does_not_have_are_not_redriven() -> None:
    """After a repair that cut the log, others come in their places."""
    redriven = Redriven()
    redriven.load(DLQ, {"0": [[0, 5], [8, 12]], "1": [[3, 4]]}, "first", end_of=_ends)
    assert redriven.of(DLQ, 0).ranges() == [(0, 5), (8, 10)]
    assert redriven.of(DLQ, 1).ranges() == []


def _ends(_topic: str, queue_id: int) -> int:
    return (10, 2)[queue_id]
