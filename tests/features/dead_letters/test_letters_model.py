"""Random lives of a dead-letter queue against a plain list: counts, reasons, pages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from rmqlite.features.dead_letters import listing, reading
from rmqlite.features.dead_letters.listing import DeadLetters
from rmqlite.features.dead_letters.redriven import Redriven
from rmqlite.features.dead_letters.requests import DeadLetterFilter
from rmqlite.features.failure_kinds import NO_REASON
from rmqlite.kernel.words.names import dlq_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.letters import dead_letters as listed
from tests.support.letters import groups, purge, set_marker
from tests.support.made_brokers import Make
from tests.support.messages import GROUP, save_group
from tests.support.steps import done
from tests.support.stores import new_record

DLQ = dlq_topic(GROUP)
REASONS = ("", "no stock", "time-out", "no such article")
WINDOW = 30


@dataclass
class Plain:
    """What should be shown, by the rules."""

    reasons: list[str] = field(default_factory=list)
    """Of every letter that ever was, by its queue offset."""
    kept_from: int = 0
    hidden: set[int] = field(default_factory=set)
    redriven: dict[int, str] = field(default_factory=dict)

    @property
    def kept(self) -> range:
        return range(self.kept_from, len(self.reasons))

    @property
    def shown(self) -> list[int]:
        return [number for number in self.kept if number not in self.hidden]

    def is_open(self, number: int) -> bool:
        return number not in self.redriven


def die(broker: BrokerUnderTest, plain: Plain, random: Random) -> None:
    records = []
    for _ in range(random.randint(1, 12)):
        reason = random.choice(REASONS)
        properties = {"UNIQ_KEY": f"m{len(plain.reasons)}"}
        properties |= {"FAILURE_REASON": reason} if reason else {}
        records.append(new_record(bytes(random.choice((0, 20_000))), DLQ, properties=properties))
        plain.reasons.append(reason)
    broker.store.append(records)
    broker.sync()


def purge_some(broker: BrokerUnderTest, plain: Plain, random: Random) -> None:
    way = random.choice(("restore", "all", "a reason", "a place", "a marker"))
    changed: list[int] = []
    if way == "restore":
        changed = [number for number in plain.kept if number in plain.hidden]
        told = purge(broker, restore=True)
        plain.hidden.clear()
    elif way == "a marker":
        marker = random.randint(plain.kept_from, len(plain.reasons))
        set_marker(broker, marker)
        plain.hidden = set(range(marker))
        return
    else:
        changed, wanted = plain.shown, DeadLetterFilter()
        if way == "a reason":
            reason = random.choice(REASONS)
            wanted = DeadLetterFilter(failure_kind=reason or NO_REASON)
            changed = [number for number in changed if plain.reasons[number] == reason]
        elif way == "a place":
            place = random.choice([*plain.kept, 0])
            wanted = DeadLetterFilter(ids=(f"{DLQ}:0:{place}",))
            changed = [number for number in changed if number == place]
        told = purge(broker, filter=wanted, dry_run=True)
        assert purge(broker, filter=wanted) == told
        plain.hidden |= set(changed)
    open_ones = [number for number in changed if plain.is_open(number)]
    assert (told.letters, told.open) == (len(changed), len(open_ones)), way


def redrive(broker: BrokerUnderTest, plain: Plain, random: Random) -> None:
    start = random.randint(0, len(plain.reasons))
    end = min(len(plain.reasons), start + random.randint(0, 9))
    job_id = random.choice(("job-1", "job-2"))
    broker.broker[Redriven].add(job_id, DLQ, 0, start, end)
    plain.redriven |= dict.fromkeys(range(start, end), job_id)


def retain(broker: BrokerUnderTest, plain: Plain, _: Random) -> None:
    broker.persist()
    segment = broker.config.mapped_file_size_commit_log
    broker.store.drop_before(broker.store.min_offset + segment)
    queue = broker.store.queue(DLQ, 0)
    plain.kept_from = queue.min_offset if queue else 0


def restart(broker: BrokerUnderTest, plain: Plain, _: Random) -> None:
    broker.restart()
    for number, job_id in plain.redriven.items():
        broker.broker[Redriven].add(job_id, DLQ, 0, number, number + 1)


def compare(broker: BrokerUnderTest, plain: Plain, random: Random) -> None:
    shown, end = plain.shown, len(plain.reasons)
    mine = groups(broker).get(GROUP)
    if mine is None:
        assert end == plain.kept_from
        return
    is_open = [number for number in shown if plain.is_open(number)]
    assert (mine.letters, mine.open) == (len(shown), len(is_open))
    assert mine.purged == len(plain.kept) - len(shown)
    assert done(broker.broker[DeadLetters].open_counts())[GROUP] == len(is_open)
    first = end - WINDOW
    assert mine.reasons_of == len([number for number in shown if number >= first])
    counted = Counter(plain.reasons[number] or NO_REASON for number in is_open if number >= first)
    assert {each.reason: each.count for each in mine.reasons} == counted
    newest_first, open_only = random.random() < 0.5, random.random() < 0.5
    found = listed(
        broker, newest_first=newest_first, is_open=open_only, max_letters=random.randint(1, 20)
    )
    wanted = is_open if open_only else shown
    assert [each.queue_offset for each in found] == (wanted[::-1] if newest_first else wanted)
    assert [each.reason for each in found] == [plain.reasons[each.queue_offset] for each in found]
    assert all(bool(each.redriven_by) == (each.queue_offset in plain.redriven) for each in found)


@pytest.mark.seeds(2, 12)
def test_letters_are_what_a_plain_list_says(make: Make, seed: int, monkeypatch: Any) -> None:
    """Whatever happens between two looks."""
    random = Random(seed)
    monkeypatch.setattr(listing, "REASONS_OF_MAX", WINDOW)
    monkeypatch.setattr(listing, "LOOK_MAX", 7)
    monkeypatch.setattr(reading, "SLICE_MAX", 5)
    broker = make(mapped_file_size_commit_log=1 << 17, max_message_bytes=1 << 15)
    save_group(broker)
    plain = Plain()
    steps = [die, die, die, purge_some, redrive, retain, restart]
    for _ in range(60):
        random.choice(steps)(broker, plain, random)
        compare(broker, plain, random)
