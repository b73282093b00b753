"""messageDelayLevel is edited while messages wait (reference §6.8, with the right outcome).

What waits keeps the time it was promised, what is sent anew gets the new table's, and
nobody waits behind anybody else.
"""

from __future__ import annotations

import shutil

import pytest

from rmqlite.kernel.words.levels import parse_levels
from tests.support.brokers import BrokerUnderTest
from tests.support.made_brokers import Make
from tests.support.messages import arrival_times, bodies, delayed, level_status

HOUR_MS = 3_600_000
HOW = ["live", "clean", "crash", "rebuilt"]


def change(broker: BrokerUnderTest, levels: str, how: str) -> None:
    """Put a new table in force, in a running broker or by a restart."""
    if how == "live":
        broker.store.change_levels(parse_levels(levels))
        return
    if how == "crash":
        broker.crash()
    else:
        broker.close()
    if how == "rebuilt":
        root = broker.config.store_path
        shutil.rmtree(root / "consumequeue", ignore_errors=True)
        for path in (root / "config").glob("storeProgress.json*"):
            path.unlink()
    broker.open(message_delay_level=levels)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("1s 2h", "1s 1h"),
        ("1s 1h", "1s 2h"),
        ("1s 2h", "1s"),
        ("1s 2h", "2h 1s"),
        ("1s 5s", "1s 2s 3s 4s 5s"),
        ("2h 1h", "1s 1s"),
    ],
    ids=["shortened", "lengthened", "removed", "reordered", "added", "all shortened"],
)
def test_promised_times_are_kept_and_new_sends_use_the_new_table(
    make: Make, before: str, after: str, how: str
) -> None:
    """RocketMQ delivers at once, too late, or never, depending on the edit."""
    broker = make(message_delay_level=before)
    old = broker.send(delayed("old 1", 1), delayed("old 2", 2))
    broker.clock.forward(100)
    change(broker, after, how)
    new = broker.send(delayed("new 1", 1), delayed("new 2", 2), delayed("new 9", 9))
    table = parse_levels(after)
    now_ms = broker.clock.now_ms()
    assert [each.deliver_at_ms - now_ms for each in new] == [table.delay_ms(n) for n in (1, 2, 9)]
    promised = [each.deliver_at_ms for each in (*old, *new)]
    arrived = arrival_times(broker, 5)
    names = ("old 1", "old 2", "new 1", "new 2", "new 9")
    assert [arrived[name] for name in names] == promised


@pytest.mark.parametrize("how", HOW)
def test_a_new_short_message_does_not_wait_behind_an_old_long_one(make: Make, how: str) -> None:
    """They share a queue, but neither blocks the other."""
    broker = make(message_delay_level="2h")
    for number in range(3):
        broker.send(delayed(f"long {number}", 1))
    change(broker, "1s", how)
    for number in range(3):
        broker.send(delayed(f"short {number}", 1))
    broker.clock.forward(1_000)
    assert broker.deliver() == 3
    assert bodies(broker) == ["short 0", "short 1", "short 2"]
    assert level_status(broker, 1).pending == 3
    broker.crash()
    broker.open(message_delay_level="1s")
    assert broker.deliver() == 0
    assert level_status(broker, 1).pending == 3
    broker.clock.forward(2 * HOUR_MS)
    assert broker.deliver() == 3
    assert bodies(broker)[3:] == ["long 0", "long 1", "long 2"]


@pytest.mark.parametrize("how", HOW)
def test_many_edits_make_many_runs(make: Make, how: str) -> None:
    """Every edit may put earlier times behind later ones; each head is looked at."""
    broker = make(message_delay_level="60s")
    promised: list[int] = []
    for seconds in (50, 10, 40, 20, 30, 20):
        change(broker, f"{seconds}s", how)
        for _ in range(2):
            broker.clock.forward(1)
            (result,) = broker.send(delayed(str(len(promised)), 1))
            promised.append(result.deliver_at_ms)
    arrived = arrival_times(broker, len(promised))
    assert [arrived[str(number)] for number in range(len(promised))] == promised


@pytest.mark.parametrize("how", ["clean", "crash"])
def test_a_removed_level_still_delivers_what_it_holds(make: Make, how: str) -> None:
    """In RocketMQ it is stuck until somebody restores the level."""
    broker = make(message_delay_level="1s 5s 10s")
    broker.send(delayed("a", 3))
    change(broker, "1s", how)
    status = level_status(broker, 3)
    assert (status.pending, status.delay) == (1, "")
    broker.clock.forward(10_000)
    assert broker.deliver() == 1
    broker.send(delayed("b", 3))
    assert (level_status(broker, 1).pending, level_status(broker, 3).pending) == (1, 0)


def test_more_than_eighteen_levels_work(make: Make) -> None:
    """The topic's 18 queues are RocketMQ's constant, not a limit of levels."""
    broker = make(message_delay_level=" ".join(f"{n}s" for n in range(1, 65)))
    broker.send(delayed("a", 20), delayed("b", 64))
    broker.restart(message_delay_level=" ".join(f"{n}s" for n in range(1, 65)))
    broker.clock.forward(20_000)
    broker.deliver()
    assert bodies(broker) == ["a"]
    broker.clock.forward(44_000)
    broker.deliver()
    assert bodies(broker) == ["a", "b"]


def test_a_table_spelled_otherwise_changes_nothing(make: Make) -> None:
    """60s and 1m are the same delay."""
    broker = make(message_delay_level="60s")
    broker.restart(message_delay_level="1m")
    assert len(broker.store.levels.entries) == 1


def test_a_table_that_comes_back_is_in_force_again(make: Make) -> None:
    """Every message has the delay that its level had when it was stored."""
    broker = make(message_delay_level="10s")
    promised = []
    for number, levels in enumerate(("10s", "20s", "10s", "30s")):
        change(broker, levels, "rebuilt")
        (result,) = broker.send(delayed(str(number), 1))
        promised.append(result.deliver_at_ms)
    change(broker, "1s", "rebuilt")
    arrived = arrival_times(broker, 4)
    assert [arrived[str(number)] for number in range(4)] == promised
