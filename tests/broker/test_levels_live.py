"""The levels are changed while the broker runs: each case of reference §6.8, done right.

RocketMQ puts an edit in force at its next start, and then delivers at once, too late or
never what it had promised.  Here it holds from the next send on, and every message that
waits arrives when it was told; so it does after a crash at any point of the change, and
when the queues were made again from the log.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from rmqlite.kernel.requests.broker import LevelChange, LevelsChange, LevelsChanged
from rmqlite.kernel.words.errors import DelayUnknown, InvalidValue, StoreUnavailable
from rmqlite.kernel.words.levels import LEVELS_MAX, parse_levels
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from tests.support.brokers import BrokerUnderTest
from tests.support.clock import FakeClock, FakeMachine
from tests.support.files import ForgetfulFiles
from tests.support.made_brokers import Make
from tests.support.messages import (
    GROUP,
    TOPIC,
    arrival_times,
    bodies,
    delayed,
    level_status,
    plain,
    received,
    record,
    send_back,
    table,
)

HOUR_MS = 3_600_000
SIXTY_FOUR = " ".join(f"{n}s" for n in range(1, LEVELS_MAX + 1))
AFTERWARDS = ["goes on", "restarts", "crashes", "loses its queues", "crashes and loses its queues"]


def change(broker: BrokerUnderTest, levels: str, *, dry_run: bool = False) -> LevelsChanged:
    """As an administrator asks for it."""
    return broker.broker.levels.change(LevelsChange(levels, dry_run))


def configured(broker: BrokerUnderTest) -> str:
    return broker.broker.levels.in_force().configured


def levels_file(broker: BrokerUnderTest) -> Path:
    return broker.config.store_path / "config" / "delayLevels.json"


def go_through(broker: BrokerUnderTest, what: str) -> None:
    """What may happen to a broker after a change; the configuration stays as it was."""
    if what == "goes on":
        return
    if what.startswith("crashes"):
        broker.crash()
    else:
        broker.close()
    if what.endswith("queues"):
        root = broker.config.store_path
        shutil.rmtree(root / "consumequeue", ignore_errors=True)
        for path in (root / "config").glob("storeProgress.json*"):
            path.unlink()
    broker.open()


# ---- each edit of reference §6.8


@pytest.mark.one_of(4)
@pytest.mark.parametrize("afterwards", AFTERWARDS)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("1s 2h", "1s 1h"),
        ("1s 1h", "1s 2h"),
        ("1s 5s 2h", "1s"),
        ("1s 5s 2h", "2h 1s 5s"),
        ("1s 5s", "1s 2s 3s 4s 5s"),
        ("2h 1h 30m", "1s 1s 1s"),
        ("3s", SIXTY_FOUR),
        (SIXTY_FOUR, "70s"),
        (SIXTY_FOUR, " ".join(f"{n}s" for n in range(LEVELS_MAX, 0, -1))),
    ],
    ids=[
        *("shortened", "lengthened", "removed", "reordered", "added", "all shortened"),
        *("one to sixty-four", "sixty-four to one", "sixty-four turned round"),
    ],
)
def test_every_message_arrives_when_it_was_promised(
    make: Make, before: str, after: str, afterwards: str
) -> None:
    """What waits by the table that was in force then, what is sent now by the one now."""
    broker = make(message_delay_level=before)
    count = max(parse_levels(before).max_level, parse_levels(after).max_level)
    old = broker.send(*[delayed(f"old {n}", n) for n in range(1, count + 1)])
    broker.clock.forward(100)
    change(broker, after)
    new = broker.send(*[delayed(f"new {n}", n) for n in range(1, count + 1)])
    go_through(broker, afterwards)
    newest = broker.send(*[delayed(f"newest {n}", n) for n in range(1, count + 1)])
    now_ms, delays = broker.clock.now_ms(), parse_levels(after)
    assert [each.deliver_at_ms - now_ms for each in newest] == [
        delays.delay_ms(n) for n in range(1, count + 1)
    ]
    arrived = arrival_times(broker, 3 * count)
    promised = {
        f"{age} {n}": result.deliver_at_ms
        for age, results in (("old", old), ("new", new), ("newest", newest))
        for n, result in enumerate(results, 1)
    }
    assert arrived == promised


def test_a_shortened_level_delivers_nothing_at_once(make: Make) -> None:
    """Appendix D7: 2h becomes 1h for a message half an hour old; RocketMQ delivers it now."""
    broker = make(message_delay_level="1s 2h")
    (old,) = broker.send(delayed("old", 2))
    broker.clock.forward(HOUR_MS // 2)
    change(broker, "1s 1h")
    assert broker.deliver() == 0
    broker.clock.forward(HOUR_MS)
    assert broker.deliver() == 0
    assert arrival_times(broker, 1) == {"old": old.deliver_at_ms}


@pytest.mark.parametrize("afterwards", AFTERWARDS)
def test_a_removed_level_delivers_what_it_holds(make: Make, afterwards: str) -> None:
    """Appendix D8: RocketMQ freezes it until somebody restores the level."""
    broker = make(message_delay_level="1s 5s 10s 30s")
    broker.send(delayed("waits", 4))
    change(broker, "1s 5s 10s")
    go_through(broker, afterwards)
    assert (level_status(broker, 4).delay, level_status(broker, 4).pending) == ("", 1)
    broker.send(delayed("clamped", 4))
    assert level_status(broker, 3).pending == 1
    broker.clock.forward(30_000)
    assert broker.deliver() == 2
    assert bodies(broker) == ["clamped", "waits"]


@pytest.mark.parametrize("afterwards", AFTERWARDS)
def test_a_level_that_is_restored_goes_on_where_it_was(make: Make, afterwards: str) -> None:
    """Removed and restored while messages wait: nobody is late, and nobody comes twice."""
    broker = make(message_delay_level="1s 10s")
    first = broker.send(delayed("first", 2))
    change(broker, "1s")
    go_through(broker, afterwards)
    broker.clock.forward(4_000)
    clamped = broker.send(delayed("clamped", 2))
    change(broker, "1s 3s")
    go_through(broker, afterwards)
    second = broker.send(delayed("second", 2))
    promised = [each.deliver_at_ms for each in (*first, *clamped, *second)]
    arrived = arrival_times(broker, 3)
    assert [arrived[name] for name in ("first", "clamped", "second")] == promised


@pytest.mark.parametrize("afterwards", AFTERWARDS)
def test_more_levels_than_rocketmqs_topic_has_queues(make: Make, afterwards: str) -> None:
    """Appendix D9: levels 19 and 20 work, are seen, and are seen after a restart."""
    broker = make()
    change(broker, " ".join([table(broker).text, "3s", "4s"]))
    broker.send(delayed("nineteen", 19), delayed("twenty", 20))
    go_through(broker, afterwards)
    assert [level_status(broker, n).delay for n in (19, 20)] == ["3s", "4s"]
    assert [level_status(broker, n).pending for n in (19, 20)] == [1, 1]
    broker.clock.forward(4_000)
    assert broker.deliver() == 2


@pytest.mark.parametrize("afterwards", AFTERWARDS)
def test_nobody_waits_behind_a_longer_delay(make: Make, afterwards: str) -> None:
    """Old and new messages share a level's queue; the earliest leaves first."""
    broker = make(message_delay_level="2h")
    broker.send(*[delayed(f"long {n}", 1) for n in range(3)])
    change(broker, "1s")
    broker.send(*[delayed(f"short {n}", 1) for n in range(3)])
    go_through(broker, afterwards)
    broker.clock.forward(1_000)
    assert broker.deliver() == 3
    assert bodies(broker) == ["short 0", "short 1", "short 2"]
    assert level_status(broker, 1).pending == 3


def test_who_sleeps_is_woken_for_a_level_that_became_shorter(make: Make) -> None:
    """Delivery sleeps for two hours; the new message is due in a second."""
    broker = make(message_delay_level="2h")
    broker.send(delayed("long", 1))
    broker.heard.sooner.clear()
    change(broker, "1s")
    broker.send(delayed("short", 1))
    assert broker.heard.sooner


def test_queues_made_again_from_the_log_equal_the_old_ones(make: Make) -> None:
    """RocketMQ computes every deliver time again, by the table that it has now."""
    broker = make(message_delay_level="10s 20s")
    for number, levels in enumerate(("5s 1s", "1s", "9s 8s 7s", "10s 20s", "1s 2h")):
        change(broker, levels)
        broker.send(*[delayed(f"{number} {n}", n) for n in (1, 2, 3)])
        broker.clock.forward(1)

    def due() -> list[list[int]]:
        keys = sorted(key for key in broker.store.queue_keys() if key[0] == SCHEDULE_TOPIC)
        queues = [broker.store.queue(*key) for key in keys]
        return [queue.tags_codes(0, 100) for queue in queues if queue]

    before = due()
    assert len(before) == 3
    go_through(broker, "loses its queues")
    assert due() == before
    go_through(broker, "crashes and loses its queues")
    assert due() == before


@pytest.mark.parametrize("step_ms", [-24 * HOUR_MS, 24 * HOUR_MS])
def test_the_wall_clock_and_a_change_disturb_each_other_not(make: Make, step_ms: int) -> None:
    """RocketMQ, its clock set back, takes what is due later than its new table allows for due."""
    clock = FakeClock(machine=FakeMachine())
    broker = make(message_delay_level="1s 2h", clock=clock)
    (old,) = broker.send(delayed("old", 2))
    clock.machine.step_wall(step_ms)
    change(broker, "1s 1m")
    (new,) = broker.send(delayed("new", 2))
    assert new.deliver_at_ms == clock.now_ms() + 60_000
    arrived = arrival_times(broker, 2)
    assert arrived == {"old": old.deliver_at_ms, "new": new.deliver_at_ms}


def test_retries_use_the_table_in_force(make: Make) -> None:
    """The first failure goes to level 3, as it is now."""
    broker = make(message_delay_level="1s 1s 10s")
    message = received(broker)
    change(broker, "1s 1s 40s")
    result = send_back(broker, message, group=GROUP)
    assert result.deliver_at_ms == broker.clock.now_ms() + 40_000


@pytest.mark.seeds(4, 10)
def test_any_tables_in_any_order(make: Make, seed: int) -> None:
    """Random tables of 1 to 64 levels, random sends, and anything that may happen between."""
    chance = random.Random(seed)
    broker = make(message_delay_level="1m")
    promised: dict[str, int] = {}
    for _ in range(8):
        count = chance.choice((1, 2, 5, 18, 64))
        change(broker, " ".join(f"{chance.randint(1, 120)}s" for _ in range(count)))
        if chance.random() < 0.5:
            go_through(broker, chance.choice(AFTERWARDS))
        for level in (chance.randint(1, 70) for _ in range(6)):
            (sent,) = broker.send(delayed(str(len(promised)), level))
            promised[str(len(promised))] = sent.deliver_at_ms
            broker.clock.forward(chance.randint(0, 50))
        go_through(broker, chance.choice(AFTERWARDS))
    assert arrival_times(broker, len(promised)) == promised


def test_a_delay_by_its_length_is_the_level_that_lasts_it_now(make: Make) -> None:
    """The producer may know an older table; it said ten minutes, and ten minutes it gets."""
    broker = make(message_delay_level="1s 10m")
    change(broker, "10m 1s 1h")
    # As a producer sends it that has asked for the levels before the change.
    (sent,) = broker.send(Message(TOPIC, b"a", delay="10m").at_level(2))
    assert sent.deliver_at_ms == broker.clock.now_ms() + 600_000
    assert record(broker, sent).properties["DELAY"] == "1"
    change(broker, "1s 1h")
    with pytest.raises(DelayUnknown, match="the levels are 1s 1h"):
        broker.send(plain("b"), Message(TOPIC, b"c", delay="10m").at_level(1))
    assert bodies(broker) == []
    with pytest.raises(InvalidValue, match="a whole number and a unit"):
        broker.send(Message(TOPIC, b"c", delay="soon"))


# ---- what is asked, and what is answered


@pytest.mark.parametrize(
    "text",
    ["", "1s  5s", " 1s", "1S", "0s", "-5s", "5", "1s,5s", "9999999999d", f"{SIXTY_FOUR} 1s"],
)
def test_what_cannot_be_a_table_changes_nothing(make: Make, text: str) -> None:
    """RocketMQ keeps it, and does not start any more."""
    broker = make(message_delay_level="1s 5s")
    kept = levels_file(broker).read_bytes()
    for dry_run in (True, False):
        with pytest.raises(InvalidValue):
            change(broker, text, dry_run=dry_run)
    assert table(broker).text == "1s 5s"
    assert levels_file(broker).read_bytes() == kept
    broker.restart()
    assert table(broker).text == "1s 5s"


def test_a_change_says_what_it_means(make: Make) -> None:
    """Every level of either table, and what waits there, until when."""
    broker = make(message_delay_level="1s 5s 10s")
    second, third = broker.send(delayed("a", 2), delayed("b", 3))
    broker.send(delayed("c", 3))
    expected = LevelsChanged(
        "1s 5s 10s",
        "1s 1h",
        (
            LevelChange(1, "1s", "1s", 0, 0),
            LevelChange(2, "5s", "1h", 1, second.deliver_at_ms),
            LevelChange(3, "10s", "", 2, third.deliver_at_ms),
        ),
    )
    assert change(broker, "1s 1h", dry_run=True) == expected
    assert change(broker, "1s 1h") == expected


def test_a_level_of_an_older_table_is_named_while_it_holds_something(make: Make) -> None:
    """It is in neither table, and still somebody's message."""
    broker = make(message_delay_level="1s 5s 10s")
    broker.send(delayed("a", 3))
    change(broker, "1s")
    rows = change(broker, "2s", dry_run=True).levels
    assert [(each.level, each.delay_before, each.delay_after) for each in rows] == [
        (1, "1s", "2s"),
        (3, "", ""),
    ]
    broker.clock.forward(10_000)
    broker.deliver()
    assert [each.level for each in change(broker, "2s", dry_run=True).levels] == [1]


def test_only_saying_it_changes_nothing(make: Make) -> None:
    """Not in force, not on disk."""
    broker = make(message_delay_level="1s 5s")
    kept = levels_file(broker).read_bytes()
    change(broker, "1h", dry_run=True)
    assert table(broker).text == "1s 5s"
    assert levels_file(broker).read_bytes() == kept


@pytest.mark.parametrize("text", ["1s 60s", "1s 1m", "1s 1m "])
def test_the_same_delays_change_nothing_and_it_is_said(make: Make, text: str) -> None:
    """However they are spelled: before is after."""
    broker = make(message_delay_level="1s 1m")
    changed = change(broker, text)
    assert (changed.before, changed.after) == ("1s 1m", "1s 1m")
    assert len(broker.broker.levels.in_force().tables) == 1


def test_the_history_is_kept(make: Make) -> None:
    """Every table and since when, after restarts, too."""
    broker = make(message_delay_level="1s")
    changed_at_ms = []
    for levels in ("2s", "3s", "1s"):
        broker.clock.forward(1_000)
        changed_at_ms.append(broker.clock.now_ms())
        change(broker, levels)
    broker.restart()
    in_force = broker.broker.levels.in_force()
    assert [each.message_delay_level for each in in_force.tables] == ["1s", "2s", "3s", "1s"]
    assert [each.in_force_from_ms for each in in_force.tables[1:]] == changed_at_ms
    assert in_force.message_delay_level == "1s"


# ---- crashes and failing disks


def test_a_table_that_cannot_be_written_changes_nothing(make: Make) -> None:
    """A full disk: the answer is an error, and the old table holds, also after a crash."""
    files = ForgetfulFiles()
    broker = make(message_delay_level="1s 5s", files=files)
    files.fail("write")
    with pytest.raises(StoreUnavailable):
        change(broker, "1h")
    assert table(broker).text == "1s 5s"
    (sent,) = broker.send(delayed("a", 2))
    broker.crash()
    broker.open()
    assert table(broker).text == "1s 5s"
    assert arrival_times(broker, 1) == {"a": sent.deliver_at_ms}
    change(broker, "1h")
    assert table(broker).text == "1h"


@pytest.mark.parametrize("afterwards", AFTERWARDS[1:])
def test_a_crash_between_the_table_and_the_first_send(make: Make, afterwards: str) -> None:
    """The table is in force from its moment on, whether or not anything was stored since."""
    broker = make(message_delay_level="1s 5s")
    (old,) = broker.send(delayed("old", 2))
    change(broker, "1s 1h")
    go_through(broker, afterwards)
    (new,) = broker.send(delayed("new", 2))
    assert new.deliver_at_ms == broker.clock.now_ms() + HOUR_MS
    assert arrival_times(broker, 2) == {"old": old.deliver_at_ms, "new": new.deliver_at_ms}


def test_a_send_in_the_same_millisecond_belongs_to_the_table_that_it_met(make: Make) -> None:
    """The clock stands still between the two; a rebuilt queue must still know."""
    broker = make(message_delay_level="10s")
    (old,) = broker.send(delayed("old", 1))
    change(broker, "20s")
    (new,) = broker.send(delayed("new", 1))
    change(broker, "30s")
    (newest,) = broker.send(delayed("newest", 1))
    go_through(broker, "crashes and loses its queues")
    assert arrival_times(broker, 3) == {
        "old": old.deliver_at_ms,
        "new": new.deliver_at_ms,
        "newest": newest.deliver_at_ms,
    }
    assert new.deliver_at_ms - old.deliver_at_ms in range(10_000, 10_010)


@pytest.mark.parametrize("left", ["tmp", "bak"])
def test_a_process_that_dies_while_it_writes_the_table(make: Make, left: str) -> None:
    """What it leaves beside the table is not the table; without one its last content counts."""
    broker = make(message_delay_level="1s 5s")
    change(broker, "1s 9s")
    (old,) = broker.send(delayed("old", 2))
    broker.crash()
    path = levels_file(broker)
    if left == "tmp":
        path.with_name(path.name + ".tmp").write_text('{"tables":[{"inForce')
    else:
        shutil.copy(path, path.with_name(path.name + ".bak"))
        path.unlink()
    broker.open()
    assert table(broker).text == "1s 9s"
    assert arrival_times(broker, 1) == {"old": old.deliver_at_ms}


# ---- broker.conf or what was set: the later change wins


@pytest.mark.parametrize("afterwards", AFTERWARDS)
def test_what_was_set_survives_a_restart_with_the_same_configuration(
    make: Make, afterwards: str
) -> None:
    """broker.conf still says the old table; nobody has edited it since."""
    broker = make(message_delay_level="1s 5s")
    change(broker, "1s 9s")
    go_through(broker, afterwards)
    go_through(broker, afterwards)
    assert (table(broker).text, configured(broker)) == ("1s 9s", "1s 5s")


def test_a_later_edit_of_the_configuration_wins(make: Make) -> None:
    """And edited back to what it was at first, it wins again."""
    broker = make(message_delay_level="1s 5s")
    change(broker, "1s 9s")
    broker.restart(message_delay_level="1s 7s")
    assert (table(broker).text, configured(broker)) == ("1s 7s", "1s 7s")
    broker.restart(message_delay_level="1s 5s")
    assert (table(broker).text, configured(broker)) == ("1s 5s", "1s 5s")
    change(broker, "1s 9s")
    broker.restart(message_delay_level="1s 5s")
    assert table(broker).text == "1s 9s"


def test_a_configuration_that_follows_what_was_set_is_no_change(make: Make) -> None:
    """The operator writes down what is in force; from then on the two are one."""
    broker = make(message_delay_level="1s 5s")
    change(broker, "1s 9s")
    broker.restart(message_delay_level="1s 9s")
    in_force = broker.broker.levels.in_force()
    assert (in_force.message_delay_level, in_force.configured) == ("1s 9s", "1s 9s")
    assert len(in_force.tables) == 2
    broker.restart(message_delay_level="1s 5s")
    assert table(broker).text == "1s 5s"


def test_a_configuration_read_while_the_broker_runs_counts_if_it_was_edited(make: Make) -> None:
    """The same rule as at a start."""
    broker = make(message_delay_level="1s 5s")
    levels = broker.broker.levels
    change(broker, "1s 9s")
    unchanged = levels.configure(parse_levels("1s 5s"))
    assert (unchanged.before, unchanged.after) == ("1s 9s", "1s 9s")
    changed = levels.configure(parse_levels("1s 7s"))
    assert (changed.before, changed.after) == ("1s 9s", "1s 7s")
    assert (table(broker).text, configured(broker)) == ("1s 7s", "1s 7s")
    broker.restart(message_delay_level="1s 7s")
    assert table(broker).text == "1s 7s"


def test_a_file_of_an_older_rmqlite_knows_only_the_configuration(make: Make) -> None:
    """Its newest table is what broker.conf said last."""
    broker = make(message_delay_level="1s 5s")
    broker.restart(message_delay_level="1s 6s")
    broker.close()
    tree = json.loads(levels_file(broker).read_text())
    del tree["configured"]
    levels_file(broker).write_text(json.dumps(tree))
    broker.open()
    assert (table(broker).text, configured(broker)) == ("1s 6s", "1s 6s")
    broker.restart(message_delay_level="1s 5s")
    assert table(broker).text == "1s 5s"
