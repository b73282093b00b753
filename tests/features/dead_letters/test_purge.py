"""Dead letters put out of sight, and back: a marker moves, the log stays as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqlite.features.dead_letters import reading
from rmqlite.features.dead_letters.listing import STEP_DEAD_LETTERS, DeadLetters
from rmqlite.features.dead_letters.purging import Purging
from rmqlite.features.dead_letters.requests import (
    DeadLetterFilter,
    DeadLettersQuery,
    Purged,
    PurgeRequest,
)
from rmqlite.features.dead_letters.table_shapes import TABLE
from rmqlite.features.failure_kinds import NO_REASON
from rmqlite.kernel.words.errors import GroupUnknown, InvalidValue, StoreDamaged, StoreUnavailable
from rmqlite.kernel.words.names import dlq_topic
from rmqlite.store_tools.check import check
from rmqlite.store_tools.checking.tables import UNREADABLE
from tests.support.brokers import BrokerUnderTest
from tests.support.files import FaultyFiles, ForgetfulFiles
from tests.support.letters import dead, dead_ids, groups, purge, reasons, set_marker
from tests.support.made_brokers import Make
from tests.support.messages import GROUP, save_group
from tests.support.redrives import redrive
from tests.support.restarts import WAYS, Restart
from tests.support.steps import done

DLQ = dlq_topic(GROUP)


def five(broker: BrokerUnderTest) -> list[str]:
    """A letter each second; their ids."""
    ids = [f"m{number}" for number in range(5)]
    for message_id in ids:
        dead(broker, message_id, reason=f"because of {message_id}")
        broker.clock.forward(1_000)
    return ids


def marker_file(broker: BrokerUnderTest) -> Path:
    return broker.config.store_path / "config" / TABLE


@pytest.mark.parametrize("restart", WAYS)
def test_what_was_purged_stays_out_of_sight(under_test: BrokerUnderTest, restart: Restart) -> None:
    """The answer means that it is written down; what dies later is shown."""
    five(under_test)
    assert purge(under_test) == Purged(5, 5)
    for _ in range(2):
        assert dead_ids(under_test) == dead_ids(under_test, newest_first=True) == []
        assert dead_ids(under_test, DeadLetterFilter(ids=("m1",)), group="") == []
        mine = groups(under_test)[GROUP]
        assert (mine.letters, mine.purged, mine.reasons, mine.newest_ms) == (0, 5, (), 0)
        restart(under_test)
    dead(under_test, "later", reason="anew")
    assert dead_ids(under_test) == ["later"]
    assert reasons(under_test) == {"anew": 1}
    assert purge(under_test) == Purged(1, 1)
    assert purge(under_test) == Purged(0, 0)


@pytest.mark.parametrize("restart", WAYS)
def test_only_those_that_match_a_filter_are_purged(
    under_test: BrokerUnderTest, restart: Restart
) -> None:
    """A bug that was mended made some of the letters; the others are still to be looked at."""
    for number in range(6):
        dead(under_test, f"m{number}", reason=f"no answer within {number} s" if number % 2 else "")
    kind = DeadLetterFilter(failure_kind="no answer within # s")
    assert purge(under_test, filter=kind, dry_run=True) == Purged(3, 3)
    assert len(dead_ids(under_test)) == 6
    assert purge(under_test, filter=kind) == Purged(3, 3)
    assert purge(under_test, filter=kind) == Purged(0, 0)
    for _ in range(2):
        assert dead_ids(under_test) == dead_ids(under_test, is_open=True) == ["m0", "m2", "m4"]
        assert dead_ids(under_test, DeadLetterFilter(ids=("m1", "m2")), group="") == ["m2"]
        mine = groups(under_test)[GROUP]
        assert (mine.letters, mine.open, mine.purged, mine.reasons_of) == (3, 3, 3, 3)
        assert reasons(under_test) == {NO_REASON: 3}
        restart(under_test)
    assert purge(under_test, filter=DeadLetterFilter(ids=("m0", f"{GROUP}:0:4"))) == Purged(2, 2)
    assert redrive(under_test).sent == 1
    assert groups(under_test)[GROUP].open == 0
    assert purge(under_test) == Purged(1, 0)
    assert purge(under_test, restore=True) == Purged(6, 5)
    assert len(dead_ids(under_test)) == 6


@pytest.mark.parametrize("restart", WAYS)
def test_a_restore_shows_them_again(under_test: BrokerUnderTest, restart: Restart) -> None:
    """All that the log still has; with their reasons."""
    ids = five(under_test)
    purge(under_test)
    dead(under_test, "later")
    assert len(reasons(under_test)) == 1
    restart(under_test)
    assert purge(under_test, restore=True, dry_run=True) == Purged(5, 5)
    assert dead_ids(under_test) == ["later"]
    assert purge(under_test, restore=True) == Purged(5, 5)
    assert purge(under_test, restore=True) == Purged(0, 0)
    restart(under_test)
    assert dead_ids(under_test) == [*ids, "later"]
    assert groups(under_test)[GROUP].purged == 0
    assert reasons(under_test)["because of m#"] == 5


def test_those_before_a_time_are_purged(under_test: BrokerUnderTest) -> None:
    """The marker never goes back by that."""
    begin_ms = under_test.clock.now_ms()
    ids = five(under_test)
    assert purge(under_test, until_ms=begin_ms) == Purged(0, 0)
    assert purge(under_test, until_ms=begin_ms + 2_000) == Purged(2, 2)
    assert dead_ids(under_test) == ids[2:]
    assert purge(under_test, until_ms=begin_ms + 1_000) == Purged(0, 0)
    assert dead_ids(under_test) == ids[2:]
    assert purge(under_test, until_ms=1 << 60) == Purged(3, 3)
    assert dead_ids(under_test) == []


def test_a_dry_run_changes_nothing(under_test: BrokerUnderTest) -> None:
    """It says what would be purged."""
    ids = five(under_test)
    assert purge(under_test, dry_run=True) == Purged(5, 5)
    assert dead_ids(under_test) == ids
    assert not marker_file(under_test).exists()


def test_consumers_of_the_topic_get_all_of_them(under_test: BrokerUnderTest) -> None:
    """A marker is what people see, not what is there."""
    five(under_test)
    purge(under_test)
    assert len(under_test.messages(DLQ)) == 5


def test_one_groups_marker_is_not_anothers(under_test: BrokerUnderTest) -> None:
    """Nor does a second purge forget the first."""
    dead(under_test, "m1")
    dead(under_test, "m2", group="other")
    purge(under_test)
    assert dead_ids(under_test, group="other") == ["m2"]
    purge(under_test, "other")
    under_test.restart()
    assert dead_ids(under_test, group="other") == dead_ids(under_test) == []


def test_a_group_that_nobody_knows_is_refused(under_test: BrokerUnderTest) -> None:
    """One without letters is not: none goes out of sight."""
    with pytest.raises(GroupUnknown):
        purge(under_test)
    save_group(under_test)
    assert purge(under_test) == Purged(0, 0)
    assert not marker_file(under_test).exists()


@pytest.mark.parametrize(
    "condition", [{"until_ms": 5}, {"filter": DeadLetterFilter(until_ms=5)}], ids=["old", "filter"]
)
def test_all_is_restored_or_nothing(under_test: BrokerUnderTest, condition: Any) -> None:
    """A time of a restore would be a second meaning of it."""
    with pytest.raises(InvalidValue) as raised:
        purge(under_test, restore=True, **condition)
    assert raised.value.field == "until_ms"


def test_a_purge_of_very_many_lets_others_go_on(under_test: BrokerUnderTest) -> None:
    """Somebody who sends meanwhile waits for one step; what dies meanwhile stays shown."""
    for number in range(STEP_DEAD_LETTERS + 1):
        dead(under_test, f"m{number}", reason="no stock")
    steps = under_test.broker[Purging].purge(
        PurgeRequest(GROUP, filter=DeadLetterFilter(reason="stock"))
    )
    next(steps)
    dead(under_test, "later", reason="no stock")
    assert done(steps) == Purged(STEP_DEAD_LETTERS + 1, STEP_DEAD_LETTERS + 1)
    assert dead_ids(under_test) == ["later"]


@pytest.mark.parametrize("marker", [99, 4])
def test_a_marker_of_a_longer_log_hides_nothing_that_comes(
    under_test: BrokerUnderTest, marker: int
) -> None:
    """The store may be an older copy, or a power cut took what was not synced."""
    ids = five(under_test)
    purge(under_test)
    under_test.close()
    letters = {DLQ: {"0": [[1, 2], [4, 99]]}, "y": {"0": [[3, 9]]}}
    table = {"offsetTable": {DLQ: {"0": marker}, "x": {"0": 9}}, "letterTable": letters}
    marker_file(under_test).write_text(json.dumps(table))
    under_test.open()
    assert dead_ids(under_test) == []
    dead(under_test, "later")
    assert dead_ids(under_test) == ["later"]
    purge(under_test, restore=True)
    assert dead_ids(under_test) == [*ids, "later"]


@pytest.mark.parametrize(
    "text",
    [
        '{"offsetTable": []}',
        '{"offsetTable": {"t": {"0": "x"}}}',
        '{"letterTable": {"t": {"0": [[1]]}}}',
        "{",
    ],
)
def test_a_table_that_cannot_be_read_is_damage(under_test: BrokerUnderTest, text: str) -> None:
    """What was purged must not come back unseen."""
    dead(under_test, "m1")
    under_test.close()
    marker_file(under_test).write_text(text)
    (finding,) = check(under_test.config.store_path)
    assert (finding.path, finding.what) == (marker_file(under_test), UNREADABLE)
    with pytest.raises(StoreDamaged, match=TABLE):
        under_test.open()
    under_test.crash()
    marker_file(under_test).unlink()
    under_test.open()


def test_an_answered_purge_survives_a_power_cut(make: Make) -> None:
    """Nothing else is synced or persisted in between."""
    disk = ForgetfulFiles()
    broker = make(files=disk)
    five(broker)
    broker.persist()
    assert purge(broker, until_ms=broker.clock.now_ms() - 2_000) == Purged(3, 3)
    broker.sync()
    disk.power_cut()
    broker.crash()
    broker.open()
    assert dead_ids(broker) == ["m3", "m4"]


def test_a_marker_that_cannot_be_written_does_not_move(make: Make) -> None:
    """The purge is refused, and everything is as it was."""
    disk = FaultyFiles()
    broker = make(files=disk)
    ids = five(broker)
    disk.fail("write")
    with pytest.raises(StoreUnavailable):
        purge(broker)
    assert dead_ids(broker) == ids
    assert purge(broker) == Purged(5, 5)


def test_retention_takes_letters_from_both_sides_of_a_marker(make: Make) -> None:
    """Counts, reasons and pages are of what the log still has."""
    broker = make(mapped_file_size_commit_log=1 << 17, max_message_bytes=1 << 15)
    for number in range(20):
        dead(broker, f"m{number}", reason="old" if number < 10 else "new", body=bytes(25_000))
    assert reasons(broker) == {"new": 10, "old": 10}
    set_marker(broker, 2)
    assert groups(broker)[GROUP].purged == 2
    broker.persist()
    kept = drop(broker, 2)
    mine = groups(broker)[GROUP]
    assert (mine.letters, mine.purged) == (20 - kept, 0)
    assert dead_ids(broker) == [f"m{number}" for number in range(kept, 20)]
    assert reasons(broker) == {"new": 10, "old": 10 - kept}
    assert purge(broker, restore=True) == Purged(0, 0)


def drop(broker: BrokerUnderTest, files: int) -> int:
    """Drop some files of the log, as retention does; the first letter that is left."""
    broker.store.drop_before(files * broker.config.mapped_file_size_commit_log)
    queue = broker.store.queue(DLQ, 0)
    assert queue is not None
    assert queue.min_offset > 2
    return queue.min_offset


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_purge_between_two_pages_is_seen(under_test: BrokerUnderTest, newest_first: bool) -> None:
    """A cursor is a place in the log; what is out of sight by then is not listed."""
    ids = five(under_test)
    pages = under_test.broker[DeadLetters].pages
    first = done(pages(DeadLettersQuery(GROUP, newest_first=newest_first, max_letters=1)))
    set_marker(under_test, 3)
    query = DeadLettersQuery(GROUP, newest_first=newest_first, cursor=first.cursor)
    rest = [each.message_id for each in done(pages(query)).letters]
    assert rest == ([ids[3]] if newest_first else ids[3:])


@pytest.mark.parametrize("is_restore", [False, True])
def test_a_purge_between_two_steps_of_a_count_is_no_mistake(
    under_test: BrokerUnderTest, is_restore: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That count, and the next one, are each of one moment."""
    monkeypatch.setattr(reading, "SLICE_MAX", 1)
    five(under_test)
    if is_restore:
        set_marker(under_test, 3)
    steps = under_test.broker[DeadLetters].groups()
    next(steps)
    set_marker(under_test, 0 if is_restore else 3)
    (mine,) = done(steps)
    assert (mine.letters, mine.reasons_of, sum(each.count for each in mine.reasons)) == (2, 2, 2)
    again = groups(under_test)[GROUP]
    count = 5 if is_restore else 2
    assert (again.letters, sum(each.count for each in again.reasons)) == (count, count)
