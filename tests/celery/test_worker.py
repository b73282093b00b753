"""A real worker does what Celery's users expect of a broker; one broker, one worker, all cases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rmqlite.celery.names import key_of
from rmqlite.client import (
    AdminClient,
    Message,
    MessageQuery,
    PendingFilter,
    Producer,
    ScheduleAction,
)
from rmqlite.testing import BrokerProcess, broker
from tests.support.celery_tasks import (
    app,
    broken,
    deadly,
    nested,
    now_ms,
    plain,
    repeated,
    urgent,
)
from tests.support.celery_worker import Worker, sending_to, url_of, worker
from tests.support.eventually import eventually

QUEUES = "--queues=celery,urgent.mail"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture(scope="module", autouse=True)
def _to_broker(running: BrokerProcess) -> Iterator[None]:
    with sending_to(url_of(running.endpoint)):
        yield


@pytest.fixture(scope="module")
def at_work(running: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A child runs four tasks, so that others are forked while the worker waits for messages."""
    # Sent before any worker has ever been there: it waits for one.
    plain.apply_async((0,))
    folder = tmp_path_factory.mktemp("worker")
    options = ("--concurrency=2", "--max-tasks-per-child=4", QUEUES)
    with worker(url_of(running.endpoint), folder, *options) as started:
        yield started
        assert started.stop() == 0, started.said()[-2_000:]


def test_tasks_run_once_from_two_queues_and_from_a_child(at_work: Worker) -> None:
    """A child of the worker sends, too, after a fork in the middle of a wait."""
    for number in range(1, 11):
        nested.apply_async((number,))
    urgent.apply_async((7,))
    eventually(lambda: len(at_work.of("plain")) >= 11 and bool(at_work.of("urgent")), "all ran")
    assert sorted(each.number for each in at_work.of("plain")) == list(range(11))
    assert len(at_work.of("nested")) == 10
    assert [each.number for each in at_work.of("urgent")] == [7]
    assert "forked while" not in at_work.said()


def test_a_countdown_is_a_timer_of_the_broker_and_never_early(
    at_work: Worker, running: BrokerProcess
) -> None:
    """The promise of the product, for Celery's users."""
    due_ms = now_ms() + 1_500
    for number in (101, 102, 103):
        plain.apply_async((number, due_ms), countdown=1.5)
    with AdminClient(running.endpoint) as admin:
        # The worker does not have it: prefetched, it would be lost with the worker's memory.
        waiting = list(admin.schedule.pending())
    assert {each.tags for each in waiting} == {plain.name}
    eventually(lambda: sum(each.number > 100 for each in at_work.of("plain")) == 3, "three ran")
    late = [each.late_ms for each in at_work.of("plain") if each.number > 100]
    assert min(late) >= 0, late


def test_a_revoked_task_is_cancelled_in_the_broker(running: BrokerProcess) -> None:
    """Celery's workers only remember an id, which a restart forgets; others' keys stay theirs."""
    with Producer(running.endpoint, "others") as producer:
        producer.send(Message("letters", b"x", keys="order-1", delay="1h"))
    app.control.revoke("order-1")
    sent = [plain.apply_async((each,), countdown=3_600) for each in (201, 202, 203)]
    app.control.revoke(sent[0].id)
    app.control.revoke([sent[1].id])
    with AdminClient(running.endpoint) as admin:
        left = {each.keys for each in admin.schedule.pending()}
        assert left == {(key_of(sent[2].id),), ("order-1",)}
        admin.schedule.change_pending(ScheduleAction.CANCEL, PendingFilter(topic="letters"))
    app.control.revoke(sent[2].id)


def test_a_retry_with_a_countdown_comes_as_often_as_it_may(at_work: Worker) -> None:
    """Celery sends the message anew, each time as a timer."""
    repeated.apply_async((301,))
    eventually(lambda: len(at_work.of("repeated")) == 3, "three runs")
    assert [each.retries for each in at_work.of("repeated")] == [0, 1, 2]


def test_a_failure_is_a_dead_letter_with_the_exception_as_its_reason(
    at_work: Worker, running: BrokerProcess
) -> None:
    """Who reads the dead letter sees why, without the worker's log."""
    sent = broken.apply_async((401,))
    with AdminClient(running.endpoint) as admin:
        eventually(lambda: bool(list(admin.dead_letters.dead("celery"))), "a dead letter")
        [dead] = admin.dead_letters.dead("celery")
    assert dead.keys == (key_of(sent.id),)
    assert dead.reason == "ValueError: no stock for order 401"
    assert len(at_work.of("broken")) == 1


def test_a_task_that_kills_its_process_counts_as_failed(
    at_work: Worker, running: BrokerProcess
) -> None:
    """It comes again after a while, not at once and for ever."""
    deadly.apply_async((501,))
    eventually(lambda: "WorkerLostError" in at_work.said(), "the process is missed")
    with AdminClient(running.endpoint) as admin:
        eventually(lambda: bool(list(admin.dead_letters.retries("celery"))), "a retry waits")
    running.deliver_now()
    eventually(lambda: len(at_work.of("deadly")) == 2, "it ran again")


@pytest.mark.usefixtures("at_work")
def test_remote_control_answers() -> None:
    """`celery inspect`, within its time-out."""
    [(_, answer)] = app.control.inspect(timeout=20, limit=1).ping().items()
    assert answer == {"ok": "pong"}
    [(_, queues)] = app.control.inspect(timeout=20, limit=1).active_queues().items()
    assert {each["name"] for each in queues} == {"celery", "urgent.mail"}


@pytest.mark.usefixtures("at_work")
def test_events_reach_who_listens() -> None:
    """As Flower and `celery events` do it."""
    seen: list[str] = []

    def on_event(event: dict[str, Any]) -> None:
        seen.append(event["type"])
        receiver.should_stop = "worker-online" in seen or "worker-heartbeat" in seen

    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": on_event})
        receiver.capture(limit=None, timeout=60, wakeup=True)
    assert seen


def test_a_priority_is_refused_in_words() -> None:
    """Silence would be a promise that nobody keeps."""
    with pytest.raises(Exception, match="queue of their own"):
        plain.apply_async((601,), priority=5)


def test_the_log_of_the_worker_has_no_failure_of_ours(at_work: Worker) -> None:
    """Neither a traceback nor a warning of the transport's."""
    assert not [line for line in at_work.said().splitlines() if "rmqlite/celery" in line]


def test_a_task_stays_readable_for_people(running: BrokerProcess) -> None:
    """On the page and in the command line its id, its name and its arguments can be read."""
    with AdminClient(running.endpoint) as admin:
        sent = plain.apply_async((701,), countdown=3_600)
        [found] = admin.find_messages(
            MessageQuery("celery", key_of(sent.id), history=True)
        ).messages
        assert b"[[701], {}" in found.message.body.replace(b"\\", b"")
        app.control.revoke(sent.id)
