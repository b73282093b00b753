"""A message's history in a table, and one of its records."""

from __future__ import annotations

from rmqlite.cli.top.message_screen import (
    event_of,
    events_table,
    message_lines,
    outcome_lines,
    shown_body,
)
from rmqlite.features.dead_letters.requests import History, HistoryQuery
from rmqlite.views.history import Surroundings
from tests.cli.top.conftest import life, message
from tests.support.broker_answers import NOW_MS
from tests.support.drawn import lines_of, text_of

HISTORY = life(HistoryQuery("ID1"))


def test_a_history_has_a_line_for_each_thing_that_happened() -> None:
    """When, what and where; what follows from an event stands below it."""
    lines = [text_of(line) for line in lines_of(events_table(HISTORY, "", NOW_MS), 200)]
    assert lines[0].startswith("─ history: 3 events in")
    assert lines[2].split()[1:] == ["sent", "to", "orders", "orders/0@5"]
    assert r"failed in workers, attempt 1: \x1b[31mred" in lines[3]
    assert lines[4].strip().startswith("retry at level 3 (10s), due ")
    assert lines[5].split("  ")[1].startswith("dead in workers after 17 attempts")


def test_a_narrow_screen_tells_what_and_leaves_out_where() -> None:
    """The place is in the record, the reason is what one looks for."""
    lines = [text_of(line) for line in lines_of(events_table(HISTORY, "", NOW_MS), 80)]
    assert lines[1].split() == ["TIME", "WHAT"]
    assert max(map(len, lines)) <= 80


def test_every_line_leads_to_its_event() -> None:
    """Enter on the retry of a failure shows the failure's record."""
    keys = [each.key for each in events_table(HISTORY, "", NOW_MS).rows]
    assert [HISTORY.events.index(event_of(HISTORY, key)) for key in keys] == [0, 1, 1, 2]


def test_a_history_that_is_not_known_says_why() -> None:
    """Asking, too old, or nothing left of it."""
    assert text_of(lines_of(events_table(None, "asking", NOW_MS), 80)[1]) == "asking"
    nothing = events_table(History("ID1", ()), "", NOW_MS)
    assert text_of(lines_of(nothing, 80)[1]) == "the log has no record of this message"


def test_the_end_of_a_history_is_wrapped() -> None:
    """It may name a command to copy."""
    lines = [text_of(line) for line in outcome_lines(HISTORY, Surroundings(NOW_MS), 40)]
    assert len(lines) > 1
    assert max(map(len, lines)) <= 40
    assert " ".join(lines).startswith("It is dead in workers; to send it again: rmqlite dlq")
    assert outcome_lines(None, Surroundings(NOW_MS), 40) == []


def test_a_record_has_every_property_and_its_body() -> None:
    """Nothing of it is interpreted."""
    record = message("X").message
    lines = [text_of(line) for line in message_lines(record, shown_body(record, ""))]
    assert "where       %DLQ%workers/0@5" in lines
    assert any([line.startswith(r"evil       \x1b[31mred") for line in lines])
    assert lines[-4:] == ["{", '  "id": 7,', r'  "text": "\u001b[31m"', "}"]
