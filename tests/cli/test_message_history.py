"""rmqlite message history: a message's life, told hop by hop, and what comes next."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.cells import cell_len

from rmqlite.features.dead_letters.requests import EventKind, History, HistoryQuery
from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.errors import GroupUnknown, MessageNotFound
from tests.cli.conftest import Run
from tests.support.fake_broker import FakeBroker
from tests.support.fake_retries import ID, RETRY, Record, has_life
from tests.support.fake_schedule import HOSTILE, NOW_MS

DLQ = "%DLQ%billing"
SECOND, MINUTE = 1_000, 60_000


def told(run: Run, broker: FakeBroker, record: Record) -> list[str]:
    """The lines of a life, without the head and the day."""
    has_life(broker, record)
    result = run("message", "history", ID)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()[2:]


def words(lines: list[str]) -> list[str]:
    """What happened, without times and places."""
    return [line[24:] for line in lines if line[22:24] == "  " and line[24:].strip()]


def test_a_life_is_told_from_the_first_hop_to_what_comes_next(run: Run, broker: FakeBroker) -> None:
    """When, how long after, what, how late; and where each record lies."""
    record = Record()
    record(EventKind.SCHEDULED, 0, "SCHEDULE_TOPIC_XXXX", level=3, due_in_ms=10 * SECOND)
    record(EventKind.DELIVERED, 10_003, "orders", readers=("billing",))
    record.failed(1, 10 * SECOND, "card declined", is_pending=True)
    has_life(broker, record)
    result = run("message", "history", ID)
    assert (result.exit_code, result.stderr) == (0, "")
    start, delivered, failed, due = [
        local_text(NOW_MS + ms)[11:] for ms in (0, 10_003, 10_008, 20_008)
    ]
    assert result.stdout.splitlines() == [
        f"{ID}  3 events in 10.0s",
        local_text(NOW_MS)[:10],
        f"{start}            scheduled at level 3 (10s), due {local_text(NOW_MS + 10_000)[11:]}",
        f"              SCHEDULE_TOPIC_XXXX/0@0  {0:032x}",
        f"{delivered}    +10.0s  delivered to orders, 3ms after it was due",
        "                        read by billing",
        f"              orders/0@1  {1:032x}",
        f"{failed}      +5ms  failed in billing, attempt 1: card declined",
        f"                        retry at level 3 (10s), due {due}",
        f"              SCHEDULE_TOPIC_XXXX/0@2  {2:032x}",
        "",
        f"It waits for attempt 2 of 17 in billing: {due[:8]}, in 9.0s.",
    ]
    assert broker.asked["GetLife"] == [HistoryQuery(ID)]


def lives() -> Iterator[tuple[str, Record, list[str]]]:
    """A name, a life, and the words of its last hop and of its end."""
    yield "sent", Record()(EventKind.SENT, 0, "orders"), ["sent to orders"]
    dead = Record().failed(1, SECOND, "no").retried(1_000, 1)
    dead(EventKind.DEAD, 7, DLQ, group="billing", attempt=17, reason="no")
    yield "dead", dead, ["dead in billing after 17 attempts, for the same reason"]
    cancelled = Record().failed(1, MINUTE)(EventKind.CANCELLED, 5, "x", group="billing")
    yield "cancelled", cancelled, ["cancelled in billing: it is not delivered"]
    fired = Record().failed(1, MINUTE)(EventKind.FIRED, 5_000, RETRY, group="billing", attempt=1)
    yield "fired", fired, ["delivered now: given to billing again, 55.0s early"]
    again = Record().failed(1, MINUTE)
    again(
        *(EventKind.RESCHEDULED, 5, "SCHEDULE_TOPIC_XXXX"),
        group="billing",
        attempt=1,
        level=5,
        due_in_ms=MINUTE,
        is_pending=True,
    )
    due = local_text(again.at_ms + MINUTE)[11:]
    yield "rescheduled", again, [f"rescheduled in billing to level 5 (1m), due {due}"]
    lost = Record()(EventKind.UNDELIVERABLE, 0, "%DLQ%SCHEDULE_CONSUMER", reason="no such topic")
    yield "undeliverable", lost, ["came due and could not be delivered: no such topic"]
    redriven = Record()(EventKind.DEAD, 0, DLQ, group="billing", attempt=1)
    redriven(EventKind.REDRIVEN, 60_000, "orders", job_id="job-7", message_id="NEW")
    yield "redriven", redriven, ["sent again by job job-7 to orders, as NEW"]
    waits = Record()(EventKind.DEAD, 0, DLQ, group="billing", attempt=1)
    waits(
        *(EventKind.REDRIVEN, 60_000, "SCHEDULE_TOPIC_XXXX"),
        job_id="job-7",
        message_id="NEW",
        level=5,
        due_in_ms=MINUTE,
        is_pending=True,
    )
    due = local_text(waits.at_ms + MINUTE)[11:]
    said = f"sent again by job job-7, as NEW scheduled at level 5 (1m), due {due}"
    yield "redriven with a delay", waits, [said]


ENDS = {
    "sent": "It is in orders/0@0, not read by any group.",
    "dead": f"It is dead in billing; to send it again: rmqlite dlq redrive billing --id {ID}",
    "cancelled": "It was cancelled in billing.",
    "fired": "It is not consumed yet by billing.",
    "rescheduled": "It waits for attempt 2 of 17 in billing: ",
    "undeliverable": "It could not be delivered, and is a dead letter of the schedule.",
    "redriven": "NEW is in orders/0@1, not read by any group.",
    "redriven with a delay": "NEW waits for its delivery: ",
}


@pytest.mark.parametrize(("name", "record", "said"), list(lives()), ids=list(ENDS))
def test_every_hop_and_every_end_is_said_in_words(
    run: Run, broker: FakeBroker, name: str, record: Record, said: list[str]
) -> None:
    """A reader has not learnt the names of the kinds."""
    lines = told(run, broker, record)
    blank = lines.index("")
    text = " ".join([each.strip() for each in words(lines[:blank])])
    assert said[0] in text
    end = " ".join([each.strip() for each in lines[blank + 1 :]])
    assert end.startswith(ENDS[name])


def test_seventeen_deliveries_stay_readable(run: Run, broker: FakeBroker) -> None:
    """In 80 columns; a reason is told when it is another one, a reader when it says something."""
    record = Record()(EventKind.SENT, 0, "orders", readers=("audit", "billing"))
    for attempt in range(1, 17):
        reason = "card declined: " + "the bank is closed, " * 5 if attempt < 9 else "timed out"
        record.failed(attempt, attempt * MINUTE, reason)
        record.retried(attempt * MINUTE, attempt, readers=("billing",))
    record(EventKind.DEAD, 5, DLQ, group="billing", attempt=17, reason="timed out")
    lines = told(run, broker, record)
    assert max(map(cell_len, lines)) <= 80
    assert len(lines) < 100
    text = "\n".join(lines)
    assert [text.count(each) for each in ("card declined", ": timed out", "the same reason")] == [
        *(1, 1, 15)
    ]
    assert text.count("read by") == 1
    assert "It was read from orders/0@0 by audit." in lines


def test_nobody_there_to_read_it_is_said(run: Run, broker: FakeBroker) -> None:
    """The next thing an operator would ask."""
    record = Record().failed(1, SECOND).retried(1_000, 1)
    has_life(broker, record)
    status = broker.answers["DescribeGroup"]("billing")
    broker.answers["DescribeGroup"] = lambda _: replace(status, members=())
    shown = run("message", "history", ID).stdout.splitlines()
    assert shown[-1] == "It is not consumed yet by billing. billing has no member now."


def test_a_group_that_is_gone_does_not_hide_the_life(run: Run, broker: FakeBroker) -> None:
    """How many attempts it allows is not known then."""
    has_life(broker, Record().failed(1, MINUTE, is_pending=True))

    def refuse(group: str) -> None:
        raise GroupUnknown(group)

    broker.answers |= {"DescribeGroup": refuse}
    assert "It waits for attempt 2 in billing: " in run("message", "history", ID).stdout


def test_the_senders_limit_is_what_the_next_attempt_is_counted_to(
    run: Run, broker: FakeBroker
) -> None:
    """It goes before the group's."""
    has_life(broker, Record().failed(1, MINUTE, is_pending=True, max_reconsume_times=4))
    assert "It waits for attempt 2 of 5 in billing: " in run("message", "history", ID).stdout


def test_another_day_has_its_date(run: Run, broker: FakeBroker) -> None:
    """Before its first hop; the times below it stay short."""
    day_ms = 24 * 60 * MINUTE
    lines = told(run, broker, Record()(EventKind.SENT, 0, "orders").failed(1, 2 * day_ms))
    assert f"due {local_text(NOW_MS + 5 + 2 * day_ms)}" in lines[3]
    lines = told(run, broker, Record()(EventKind.SENT, 0, "a")(EventKind.DELIVERED, day_ms, "b"))
    assert local_text(NOW_MS + day_ms)[:10] in lines
    assert "+1d 0h" in "\n".join(lines)


def test_a_life_that_is_cut_says_so(run: Run, broker: FakeBroker) -> None:
    """The first hop that is shown is not the first one."""
    has_life(broker, Record()(EventKind.SENT, 0, "orders"))
    plain = broker.answers["GetLife"](None)
    broker.answers["GetLife"] = lambda _: replace(plain, is_cut=True)
    assert run("message", "history", ID).stdout.splitlines()[1] == "older events are left out"


def test_a_life_as_json(run: Run, broker: FakeBroker) -> None:
    """Every field of every hop; kinds by name."""
    has_life(broker, Record().failed(1, MINUTE, "no", is_pending=True))
    tree = json.loads(run("message", "history", ID, "--json").stdout)
    assert (tree["message_id"], tree["is_cut"]) == (ID, False)
    assert tree["now_ms"] == NOW_MS + 5 + SECOND
    (hop,) = tree["hops"]
    assert (hop["kind"], hop["attempt"], hop["is_pending"], hop["reason"]) == (
        *("failed", 1, True, "no"),
    )


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_message_that_is_not_there_is_exit_code_1(
    run: Run, broker: FakeBroker, options: tuple[str, ...]
) -> None:
    """Whether the broker answers with nothing or refuses."""
    broker.answers["GetLife"] = lambda query: History(query.message_id, ())
    result = run("message", "history", "NOBODY", *options)
    assert (result.exit_code, result.stderr) == (1, "no message with the id NOBODY\n")

    def refuse(_: object) -> None:
        raise MessageNotFound(7)

    broker.answers["GetLife"] = refuse
    assert run("message", "history", "NOBODY", *options).exit_code == 1
    assert run("message", "history", " ").exit_code == 2


def test_nothing_of_a_life_drives_the_terminal(run: Run, broker: FakeBroker) -> None:
    """A reason may have many lines; none of them leaves its column."""
    record = Record(HOSTILE)(EventKind.SENT, 0, HOSTILE, readers=(HOSTILE,))
    record(
        *(EventKind.DEAD, 5, HOSTILE),
        group=HOSTILE,
        reason=f"Traceback:\n  {HOSTILE}\n\rline",
        message_id=HOSTILE,
    )
    record(EventKind.REDRIVEN, 5, HOSTILE, job_id=HOSTILE)
    has_life(broker, record)
    for options in ((), ("--json",)):
        result = run("message", "history", ID, *options)
        assert "owned" in result.stdout
        assert result.stdout.replace("\n", "").isprintable()
    lines = run("message", "history", ID).stdout.splitlines()
    reason = next(n for n, line in enumerate(lines) if "Traceback:" in line)
    assert all(line.startswith(" " * 24) for line in lines[reason + 1 : reason + 3])
