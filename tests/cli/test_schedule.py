"""rmqlite schedule list, count, timeline: what is asked, what a person and a program see."""

from __future__ import annotations

import bisect
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from rmqlite.cli.main import app
from rmqlite.features.changes.requests import (
    PENDING_PAGE_MAX,
    TIMELINE_BOUNDS_MAX,
    LevelTimeline,
    PendingCount,
    PendingFilter,
    PendingQuery,
    TimelineRequest,
)
from rmqlite.kernel.requests.broker import LevelsInForce
from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.errors import DelayUnknown, InvalidValue
from rmqlite.views.numbers import delay_text
from tests.cli.conftest import Run
from tests.support.fake_broker import STATUS, FakeBroker
from tests.support.fake_schedule import HOSTILE, NOW_MS, asked_for, has_schedule, waiting

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    "command", ["", "list", "count", "timeline", "cancel", "deliver-now", "fire", "reschedule"]
)
def test_every_command_explains_itself(run: Run, command: str) -> None:
    """--help is the manual; it fits a terminal and needs no broker."""
    result = run("schedule", *command.split(), "--help")
    assert (result.exit_code, "Usage:" in result.stdout) == (0, True)
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


# ---- list


def test_what_waits_is_listed_in_due_order(run: Run, broker: FakeBroker) -> None:
    """When, in how long, at which level, for whom; below it the id to change it by."""
    retry = waiting(9, topic="%RETRY%workers", keys=(), tags="paid", reconsume_times=3, level=7)
    has_schedule(broker, [waiting(-5), waiting(0, body_size=2_048), retry])
    result = run("schedule", "list")
    assert (result.exit_code, result.stderr) == (0, "")
    late, now, soon = [local_text(NOW_MS + seconds * SECOND) for seconds in (-5, 0, 9)]
    assert result.stdout.splitlines() == [
        "DUE                      IN         LEVEL   TOPIC           KEYS",
        f"{late}  5.0s late  5 (1m)  orders          order--5",
        f"  {waiting(-5).message_id}  17 bytes",
        f"{now}  now        5 (1m)  orders          order-0",
        f"  {waiting(0).message_id}  2.0 KiB",
        f"{soon}  9.0s       7 (1m)  %RETRY%workers  -",
        f"  {retry.message_id}  tags paid, failed 3 times, 17 bytes",
    ]
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    assert broker.asked["ListPending"] == [PendingQuery(max_messages=50)]


def test_the_delay_is_what_the_message_was_promised(run: Run, broker: FakeBroker) -> None:
    """Not what its level means by now, which may be something else."""
    has_schedule(broker, [waiting(9, level=18, store_timestamp_ms=NOW_MS + 9_000 - 5_400_000)])
    assert "18 (1h 30m)" in run("schedule", "list").stdout


def test_a_message_without_an_id_is_named_by_its_place(run: Run, broker: FakeBroker) -> None:
    """RocketMQ's own tools can store such; only a filter changes it."""
    has_schedule(broker, [waiting(9, message_id="")])
    shown = run("schedule", "list").stdout.splitlines()
    offset_id = waiting(9).offset_message_id
    assert shown[2] == f"  no message id, offset id {offset_id}  17 bytes"


def test_columns_line_up_whatever_is_in_them(run: Run, broker: FakeBroker) -> None:
    """A character may be two columns wide."""
    has_schedule(broker, [waiting(1, topic="\u8ba2\u5355"), waiting(2, topic="abcd")])
    _, first, _, second, _ = run("schedule", "list").stdout.splitlines()
    assert cell_len(first) == cell_len(second)


def test_every_option_reaches_the_broker(run: Run, broker: FakeBroker) -> None:
    """Levels by number or delay, times as local time or in milliseconds."""
    has_schedule(broker, [])
    run(
        *("schedule", "list", "--level", "7", "--level", "1m", "--topic", "orders", "--key", "k"),
        *("--from", local_text(NOW_MS), "--until", str(NOW_MS + 1), "--id", "ID", "--id", "B"),
        *("--max", "1200", "--cursor", "C0"),
    )
    wanted = PendingFilter((5, 7), "orders", NOW_MS, NOW_MS + 1, "k", ("ID", "B"))
    assert broker.asked["ListPending"] == [PendingQuery(wanted, "C0", PENDING_PAGE_MAX)]


def test_a_time_may_be_relative_to_the_brokers_clock(run: Run, broker: FakeBroker) -> None:
    """The clock of whoever asks may be another one."""
    has_schedule(broker, [])
    run("schedule", "list", "--from", "now", "--until", "+30m", "--group", "workers")
    until_ms = NOW_MS + 30 * MINUTE
    assert asked_for(broker) == PendingFilter((), "%RETRY%workers", NOW_MS, until_ms)


@pytest.mark.parametrize(
    "options",
    [
        ("--topic", "a", "--group", "b"),
        ("--topic", ""),
        ("--key", ""),
        ("--level", ""),
        ("--level", "0"),
        ("--level", "65"),
        ("--level", "\u0661"),
        ("--level", "99999999999999999999"),
        ("--level", "ten"),
        ("--from", "yesterday"),
        ("--from", "+ten"),
        ("--from", "+10"),
        ("--until", ""),
        ("--until", "0"),
        ("--from", "6", "--until", "6"),
        ("--max", "0"),
        ("surplus",),
    ],
)
def test_a_wrong_command_line_asks_nothing(
    run: Run, broker: FakeBroker, options: tuple[str, ...]
) -> None:
    """Exit code 2, as for every command; an empty value of a script is not everything."""
    has_schedule(broker, [])
    assert run("schedule", "list", *options).exit_code == 2
    assert not broker.asked


def test_a_delay_that_no_level_has_is_refused_by_name(run: Run, broker: FakeBroker) -> None:
    """With the levels that there are."""
    has_schedule(broker, [])
    result = run("schedule", "list", "--level", "11m")
    assert result.exit_code == 1
    assert str(DelayUnknown("11m", broker.levels)) in result.stderr


def test_pages_are_followed_until_there_are_enough(run: Run, broker: FakeBroker) -> None:
    """Also empty ones; and the cursor for the rest is said beside the output."""
    has_schedule(broker, [waiting(1)], [], [], [waiting(2)], [waiting(3)])
    result = run("schedule", "list", "--max", "2")
    assert len(result.stdout.splitlines()) == 5
    assert result.stderr == "3 messages, the first 2 of them here\nmore: --cursor C4\n"
    asked = broker.asked["ListPending"]
    assert [(each.cursor, each.max_messages) for each in asked] == [
        ("", 2),
        ("C1", 1),
        ("C2", 1),
        ("C3", 1),
        ("C4", 1_000),
    ]
    result = run("schedule", "list", "--max", "2", "--cursor", "C4")
    assert (len(result.stdout.splitlines()), result.stderr) == (3, "")


def test_what_has_a_key_is_put_in_due_order_as_a_whole(run: Run, broker: FakeBroker) -> None:
    """A broker orders only a thousand at a time; who asks what comes next wants the earliest."""
    has_schedule(broker, [waiting(7), waiting(9)], [waiting(2), waiting(8)], [waiting(1)])
    result = run("schedule", "list", "--key", "k", "--max", "2")
    assert [line.split()[-1] for line in result.stdout.splitlines()[1::2]] == ["order-1", "order-2"]
    assert result.stderr == "3 more: --max 5\n"
    tree = json.loads(run("schedule", "list", "--id", "ID", "--max", "4", "--json").stdout)
    assert [each["queue_offset"] for each in tree["messages"]] == [1, 2, 7, 8]
    assert (tree["left_out"], tree["cursor"]) == (1, "")


def test_that_nothing_waits_is_said_beside_the_output(run: Run, broker: FakeBroker) -> None:
    """A script that reads the output finds it empty; that is no failure."""
    has_schedule(broker, [], [])
    result = run("schedule", "list")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "nothing waits\n")
    result = run("schedule", "list", "--key", "k")
    assert (result.stdout, result.stderr) == ("", "nothing that waits fits\n")


def test_the_list_as_json(run: Run, broker: FakeBroker) -> None:
    """Every field, the cursor, and the broker's time to compare with."""
    has_schedule(broker, [waiting(1)], [waiting(2)])
    result = run("schedule", "list", "--max", "1", "--json")
    tree = json.loads(result.stdout)
    assert (tree["now_ms"], tree["cursor"], result.stderr) == (NOW_MS, "C1", "")
    (message,) = tree["messages"]
    assert message["deliver_at_ms"] == NOW_MS + 1_000
    assert message["keys"] == ["order-1"]
    assert message["offset_message_id"] == waiting(1).offset_message_id


def test_nothing_of_a_message_drives_the_terminal(run: Run, broker: FakeBroker) -> None:
    """Neither keys, tags, names and ids, nor what a broker calls its cursor."""
    hostile: dict[str, Any] = {"keys": (HOSTILE,), "tags": HOSTILE, "message_id": HOSTILE}
    has_schedule(broker, [waiting(1, topic=f"t{HOSTILE}", **hostile)])
    broker.answers["CountPending"] = lambda _: (PendingCount(1, HOSTILE, 1),)
    for command in (("list",), ("count",), ("count", "--by", "topic")):
        for options in ((), ("--json",)):
            result = run("schedule", *command, *options)
            assert "owned" in result.stdout
            assert result.stdout.replace("\n", "").isprintable()


def test_what_the_broker_refuses_is_one_line(run: Run, broker: FakeBroker) -> None:
    """Such as a cursor of another list."""

    def refuse(query: PendingQuery) -> None:
        raise InvalidValue("cursor", query.cursor, "the cursor of the page before")

    broker.answers["ListPending"] = refuse
    result = run("schedule", "list", "--cursor", "nonsense")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "error: cursor must be the cursor of the page before, not 'nonsense'\n"
    )


# ---- count


@pytest.fixture
def counted(broker: FakeBroker) -> FakeBroker:
    broker.answers["GetLevels"] = lambda _: LevelsInForce("1s 5s", "1s 5s", ())
    broker.answers["CountPending"] = lambda _: (
        PendingCount(1, "orders", 1_000_000),
        PendingCount(1, "stock", 5),
        PendingCount(3, "stock", 2_000_000),
    )
    return broker


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        (
            (),
            [
                ["LEVEL", "DELAY", "TOPIC", "PENDING"],
                ["1", "1s", "orders", "1,000,000"],
                ["1", "1s", "stock", "5"],
                ["3", "(old)", "stock", "2,000,000"],
            ],
        ),
        (
            ("--by", "level"),
            [
                ["LEVEL", "DELAY", "PENDING"],
                ["1", "1s", "1,000,005"],
                ["3", "(old)", "2,000,000"],
            ],
        ),
        (
            ("--by", "topic"),
            [["TOPIC", "PENDING"], ["stock", "2,000,005"], ["orders", "1,000,000"]],
        ),
    ],
)
def test_counts_per_level_and_topic(
    run: Run, counted: FakeBroker, options: tuple[str, ...], rows: list[list[str]]
) -> None:
    """Or summed up by one of them; topics with the most first."""
    lines = run("schedule", "count", *options).stdout.splitlines()
    assert lines[0] == "3,000,005 messages wait"
    assert [line.split() for line in lines[1:]] == rows
    assert len(counted.asked["CountPending"]) == 1


def test_counts_as_json(run: Run, counted: FakeBroker) -> None:
    """Numbers as numbers."""
    tree = json.loads(run("schedule", "count", "--json").stdout)
    assert tree["pending"] == 3_000_005
    assert tree["counts"][0] == {"level": 1, "delay": "1s", "topic": "orders", "pending": 1_000_000}
    assert counted.asked["CountPending"]


def test_nothing_to_count_is_zero(run: Run, counted: FakeBroker) -> None:
    """An answer, and no empty table."""
    counted.answers["CountPending"] = lambda _: ()
    assert run("schedule", "count").stdout == "0 messages wait\n"
    assert json.loads(run("schedule", "count", "--json").stdout) == {"pending": 0, "counts": []}


# ---- timeline


def come_due(broker: FakeBroker, dues: dict[int, Sequence[tuple[int, int]]]) -> None:
    """Per level, how many come due how many milliseconds from now."""

    def answer(request: TimelineRequest) -> tuple[LevelTimeline, ...]:
        timelines = []
        for level, each in dues.items():
            counts = [0] * (len(request.bounds_ms) + 1)
            for after_ms, count in each:
                counts[bisect.bisect_right(request.bounds_ms, NOW_MS + after_ms)] += count
            timelines.append(LevelTimeline(level, tuple(counts)))
        return tuple(timelines)

    broker.answers["GetTimeline"] = answer
    broker.answers["GetLevels"] = lambda _: LevelsInForce(broker.levels, broker.levels, ())


def clock(after_ms: int) -> str:
    return local_text(NOW_MS + after_ms)[11:19]


def test_the_timeline_ends_with_the_last_message(run: Run, broker: FakeBroker) -> None:
    """Fine where it is near, coarse where it is far; the longest bar fills the line."""
    come_due(broker, {3: [(-1, 12), (0, 100), (5_000, 100)], 16: [(20 * MINUTE, 1_000), (99, 1)]})
    result = run("schedule", "timeline")
    assert result.exit_code == 0
    title, head, *rows = result.stdout.splitlines()
    assert title == "1,213 messages wait, 12 overdue"
    assert head == "DUE IN     CLOCK                MESSAGES"
    assert rows[0] == f"overdue    before {clock(0)}            12  ▍"
    first = f"now - 10s  {clock(0)} - {clock(10 * SECOND)}       201  "
    assert rows[1] == first + "███████▋"
    assert rows[2] == f"10s - 30s  {clock(10 * SECOND)} - {clock(30 * SECOND)}         0"
    longest = f"20m - 30m  {clock(20 * MINUTE)} - {clock(30 * MINUTE)}     1,000  "
    assert rows[8] == longest + "█" * (80 - len(longest))
    assert rows[9].startswith("30m - 1h")
    assert rows[10] == f"later      from {clock(HOUR)} on            0"
    assert len(rows) == 11


def test_the_timeline_goes_as_far_as_there_are_messages(run: Run, broker: FakeBroker) -> None:
    """To the last day, with dates; what is beyond it is later, and it fits 24 lines of 80."""
    come_due(broker, {1: [(5 * DAY, 10_000_000)]})
    lines = run("schedule", "timeline").stdout.splitlines()
    start, end = [local_text(NOW_MS + days * DAY)[5:16] for days in (2, 7)]
    assert lines[-2].startswith(f"2d - 7d    {start} - {end}  10,000,000  ███")
    come_due(broker, {1: [(4_000 * DAY, 1)]})
    lines = run("schedule", "timeline").stdout.splitlines()
    assert lines[0] == "1 message waits"
    assert lines[-1].split()[-2:] == ["1", "█" * len(lines[-1].split()[-1])]
    assert len(lines) <= 22
    assert max(len(line) for line in lines) == 80


def test_a_timeline_of_years_has_dates_with_years(run: Run, broker: FakeBroker) -> None:
    """Empty neighbours are joined, so that the next minutes and the last year fit one screen."""
    near, far = [(15 * SECOND, 5), (70 * SECOND, 4)], [(100 * DAY, 30), (800 * DAY, 20)]
    come_due(broker, {-1: far, 3: near})
    lines = run("schedule", "timeline").stdout.splitlines()
    assert lines[0] == "59 messages wait"
    assert len(lines) == 22
    shown = {line.split("  ")[0]: line for line in lines[2:]}
    days = [local_text(NOW_MS + days * DAY)[:16] for days in (90, 180, 730, 3650)]
    assert shown["10s - 30s"].split()[6:8] == ["5", "███▏"]
    assert f"{days[0]} - {days[1]}" in shown["90d - 180d"]
    assert f"{days[2]} - {days[3]}" in shown["730d - 3650d"]
    assert shown["now - 10s"].endswith(" 0")
    assert max(len(line) for line in lines) == 80
    lines = run("schedule", "timeline", "--level", "timer").stdout.splitlines()
    assert broker.asked["GetTimeline"][-1].levels == (-1,)
    assert lines[0].endswith(" wait (timers)")


def test_an_empty_schedule_is_a_timeline_of_noughts(run: Run, broker: FakeBroker) -> None:
    """An hour of it, and no bar."""
    come_due(broker, {})
    lines = run("schedule", "timeline").stdout.splitlines()
    assert lines[0] == "0 messages wait"
    assert {line.split()[-1] for line in lines[2:]} == {"0"}
    assert lines[-2].startswith("30m - 1h ")


@pytest.mark.parametrize(
    ("over", "height", "spans"),
    [
        ("1h", 24, ["now - 5m", "5m - 10m"]),
        ("1h", 70, ["now - 1m", "1m - 2m"]),
        ("1s", 24, ["now - 1s"]),
        ("3m", 12, ["now - 30s", "30s - 1m"]),
        ("3650d", 1, ["now - 730d", "730d - 1460d"]),
    ],
)
def test_even_buckets_are_round_and_fit_the_terminals_height(
    broker: FakeBroker, over: str, height: int, spans: list[str]
) -> None:
    """Nobody wants to think about 189 seconds."""
    come_due(broker, {})
    env = {"RMQLITE_ENDPOINT": broker.endpoint, "COLUMNS": "80", "LINES": str(height)}
    shown = CliRunner().invoke(app, ["schedule", "timeline", "--over", over], env=env).stdout
    lines = shown.splitlines()
    assert [line.split("  ")[0] for line in lines[3 : 3 + len(spans)]] == spans
    assert len(lines) + 2 <= max(height, 11)
    assert lines[-2].split("  ")[0].split(" - ")[1] in (over, delay_text(MINUTE * 60))
    assert max(len(line) for line in lines) <= 80


def test_as_many_even_buckets_as_are_asked_for(run: Run, broker: FakeBroker) -> None:
    """Of the levels that are asked for; up to what the broker answers."""
    come_due(broker, {18: [(HOUR, 3)]})
    lines = run(
        *("schedule", "timeline", "--over", "2h", "--buckets", "4", "--level", "2h", "-l", "1")
    ).stdout.splitlines()
    assert lines[0] == "3 messages wait (levels 1 and 18)"
    assert [line.split("  ")[0] for line in lines[2:]] == [
        *("overdue", "now - 30m", "30m - 1h", "1h - 1h 30m", "1h 30m - 2h", "later")
    ]
    asked: TimelineRequest = broker.asked["GetTimeline"][-1]
    assert asked.levels == (1, 18)
    assert asked.bounds_ms == tuple([NOW_MS + n * 30 * MINUTE for n in range(5)])
    run("schedule", "timeline", "--over", "1s", "--buckets", str(TIMELINE_BOUNDS_MAX - 1))
    bounds_ms = broker.asked["GetTimeline"][-1].bounds_ms
    assert (len(bounds_ms), len(set(bounds_ms))) == (TIMELINE_BOUNDS_MAX, TIMELINE_BOUNDS_MAX)


@pytest.mark.parametrize(
    "options",
    [
        ("--buckets", "5"),
        ("--over", "1h", "--buckets", "0"),
        ("--over", "1h", "--buckets", str(TIMELINE_BOUNDS_MAX)),
        ("--over", "soon"),
        ("--over", "0s"),
        ("--level", "x"),
    ],
)
def test_a_wrong_timeline_asks_nothing(
    run: Run, broker: FakeBroker, options: tuple[str, ...]
) -> None:
    """Exit code 2."""
    come_due(broker, {})
    assert run("schedule", "timeline", *options).exit_code == 2
    assert not broker.asked


def test_bars_grow_with_the_terminal(broker: FakeBroker) -> None:
    """A wide one shows more of the difference; a tiny one still a little."""
    come_due(broker, {1: [(5, 1_000), (15_000, 1)]})
    for columns, longest in ((160, 160), (20, 40 + 2 + 10)):
        env = {"RMQLITE_ENDPOINT": broker.endpoint, "COLUMNS": str(columns)}
        lines = CliRunner().invoke(app, ["schedule", "timeline"], env=env).stdout.splitlines()
        assert max(len(line) for line in lines) == longest
        assert lines[4].endswith("1  ▏")


def test_a_terminal_without_block_characters_gets_hashes(broker: FakeBroker) -> None:
    """LC_ALL=C is what cron has."""
    come_due(broker, {1: [(5, 1_000), (15_000, 1)]})
    env = {"RMQLITE_ENDPOINT": broker.endpoint, "COLUMNS": "80"}
    result = CliRunner(charset="ascii").invoke(app, ["schedule", "timeline"], env=env)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[3].endswith("1,000  " + "#" * 38)
    assert lines[4].endswith("1  #")


def test_the_timeline_as_json(run: Run, broker: FakeBroker) -> None:
    """Every bucket there is, with the counts of each level."""
    come_due(broker, {3: [(-1, 12), (5, 1)], 4: [(5, 2), (9_999 * DAY, 4)]})
    tree = json.loads(run("schedule", "timeline", "--json").stdout)
    assert tree["now_ms"] == NOW_MS
    first, second, *_, last = tree["buckets"]
    assert first == {"from_ms": None, "until_ms": NOW_MS, "pending": 12, "levels": {"3": 12}}
    assert second["levels"] == {"3": 1, "4": 2}
    assert (last["from_ms"], last["until_ms"], last["pending"]) == (NOW_MS + 3_650 * DAY, None, 4)


# ---- status


def test_status_says_what_became_of_scheduled_messages(run: Run, broker: FakeBroker) -> None:
    """Nothing while all were delivered; where the undeliverable ones lie, and that they do."""
    assert "cancelled" not in run("status").stdout
    broker.answers["GetBrokerStatus"] = lambda _: replace(
        STATUS, cancelled=1_234, rescheduled=5, undeliverable=3
    )
    lines = run("status").stdout.splitlines()
    assert lines[2:6] == [
        "warning: 3 undeliverable, see %DLQ%SCHEDULE_CONSUMER",
        "since the start 1m 40s ago: 1,000,000 sent, 900 delivered, 17 retried, 1 died,",
        "  1,234 cancelled, 5 rescheduled",
        "",
    ]
    assert max(len(line.rstrip()) for line in lines) <= 80


# ---- spans
