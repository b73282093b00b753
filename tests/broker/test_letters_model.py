"""Random lives of a dead-letter queue against a plain list: counts, reasons, pages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from rmqlite.broker.finding import letter_reading
from rmqlite.broker.letters import dead_letters
from rmqlite.names import dlq_topic
from rmqlite.requests.failure_kinds import NO_REASON
from tests.broker.conftest import Make
from tests.support.brokers import BrokerUnderTest
from tests.support.letters import dead_letters as listed
from tests.support.letters import groups, purge
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
    marker: int = 0
    redriven: dict[int, str] = field(default_factory=dict)

    @property
    def begin(self) -> int:
        return max(self.marker, self.kept_from)

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
    begin, end = plain.begin, len(plain.reasons)
    if random.random() < 0.3:
        low, high = plain.kept_from, begin
        told = purge(broker, restore=True)
        plain.marker = plain.kept_from
    elif random.random() < 0.5:
        low, high = begin, end
        told = purge(broker)
        plain.marker = end
    else:
        plain.marker = random.randint(begin, end)
        broker.broker.markers.move(GROUP, {0: plain.marker})
        return
    count = sum(plain.is_open(number) for number in range(low, high))
    assert (told.letters, told.open) == (high - low, count)


def redrive(broker: BrokerUnderTest, plain: Plain, random: Random) -> None:
    start = random.randint(0, len(plain.reasons))
    end = min(len(plain.reasons), start + random.randint(0, 9))
    job_id = random.choice(("job-1", "job-2"))
    broker.broker.redriven.add(job_id, DLQ, 0, start, end)
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
        broker.broker.redriven.add(job_id, DLQ, 0, number, number + 1)


def compare(broker: BrokerUnderTest, plain: Plain, random: Random) -> None:
    begin, end = plain.begin, len(plain.reasons)
    shown = range(begin, end)
    mine = groups(broker).get(GROUP)
    if mine is None:
        assert end == plain.kept_from
        return
    is_open = [number for number in shown if plain.is_open(number)]
    assert (mine.letters, mine.open) == (len(shown), len(is_open))
    assert mine.purged == begin - plain.kept_from
    assert done(broker.broker.letters.dead.open_counts())[GROUP] == len(is_open)
    first = max(begin, end - WINDOW)
    assert mine.reasons_of == end - first
    counted = Counter(plain.reasons[number] or NO_REASON for number in is_open if number >= first)
    assert {each.reason: each.count for each in mine.reasons} == counted
    newest_first, open_only = random.random() < 0.5, random.random() < 0.5
    found = listed(
        broker, newest_first=newest_first, is_open=open_only, max_letters=random.randint(1, 20)
    )
    wanted = is_open if open_only else list(shown)
    assert [each.queue_offset for each in found] == (wanted[::-1] if newest_first else wanted)
    assert [each.reason for each in found] == [plain.reasons[each.queue_offset] for each in found]
    assert all(bool(each.redriven_by) == (each.queue_offset in plain.redriven) for each in found)


@pytest.mark.parametrize("seed", range(12))
def test_letters_are_what_a_plain_list_says(make: Make, seed: int, monkeypatch: Any) -> None:
    """Whatever happens between two looks."""
    random = Random(seed)
    monkeypatch.setattr(dead_letters, "REASONS_OF_MAX", WINDOW)
    monkeypatch.setattr(dead_letters, "LOOK_MAX", 7)
    monkeypatch.setattr(letter_reading, "SLICE_MAX", 5)
    broker = make(mapped_file_size_commit_log=1 << 17, max_message_bytes=1 << 15)
    save_group(broker)
    plain = Plain()
    steps = [die, die, die, purge_some, redrive, retain, restart]
    for _ in range(60):
        random.choice(steps)(broker, plain, random)
        compare(broker, plain, random)
