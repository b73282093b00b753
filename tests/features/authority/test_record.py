"""What a broker concludes from the record."""

from __future__ import annotations

import pytest

from rmqlite.features.authority.record import MasterRecord, RecordEntry, Step, next_step

RECORD = MasterRecord("a:1", 3, ("a:1", "b:1"), "the log")
ALONE = MasterRecord("a:1", 3, ("a:1",), "the log")


def test_a_record_is_read_as_it_was_written() -> None:
    """By another broker, perhaps of another version."""
    assert MasterRecord.decode(RECORD.encode()) == RECORD


@pytest.mark.parametrize(
    ("own", "log_id", "record", "is_held", "is_master", "step"),
    [
        # Nobody has ever led: only who is configured so begins.
        ("a:1", "the log", None, False, True, Step.LEAD),
        ("b:1", "", None, False, False, Step.FOLLOW),
        # A master goes on, also when its lease is out.
        ("a:1", "the log", RECORD, True, True, Step.LEAD),
        ("a:1", "the log", RECORD, False, True, Step.LEAD),
        # A standby waits for the end of the lease, and needs all.
        ("b:1", "the log", RECORD, True, False, Step.FOLLOW),
        ("b:1", "the log", RECORD, False, False, Step.LEAD),
        ("b:1", "the log", ALONE, False, False, Step.FOLLOW),
        ("b:1", "another", RECORD, False, False, Step.FOLLOW),
        # A former master follows, unless it has all and nobody leads.
        ("b:1", "the log", RECORD, True, True, Step.FOLLOW),
        ("b:1", "the log", ALONE, False, True, Step.FOLLOW),
        # Handed over to it.
        ("a:1", "the log", RECORD, True, False, Step.LEAD),
        # A master whose disk is new must not lead with an empty log.
        ("a:1", "new", RECORD, False, True, Step.FORBIDDEN),
        ("a:1", "", RECORD, False, False, Step.FORBIDDEN),
    ],
)
def test_what_follows_from_the_record(
    own: str, log_id: str, record: MasterRecord | None, is_held: bool, is_master: bool, step: Step
) -> None:
    """Each row is a way to two masters, or to none, if it is another step."""
    entry = RecordEntry(record, 0, is_held) if record else None
    assert next_step(entry, own, log_id, is_master=is_master) is step
