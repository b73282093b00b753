"""The audit log: one line each, as text or as JSON, and no more of them in a flood."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from rmqlite.cli.output.audit_lines import JsonLines, log_as_json
from rmqlite.kernel.service import audit
from rmqlite.kernel.service.audit import KEYS_MAX, LINES_MAX, WINDOW_S, Event, Refusals
from tests.support.clock import SetTime

HERE = "10.0.0.1:7"


@pytest.fixture
def now() -> SetTime:
    return SetTime()


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records]


def test_of_a_caller_that_is_refused_again_only_the_first_times_are_logged(
    now: SetTime, caplog: pytest.LogCaptureFixture
) -> None:
    """Then one line says how many more there were, though its connection is another one."""
    refusals = Refusals(now)
    told = [refusals.note("the-key", f"10.0.0.1:{port}") for port in range(1_000)]
    assert told == [True] * LINES_MAX + [False] * (1_000 - LINES_MAX)
    assert refusals.note("another", HERE)
    assert refusals.total == 1_001
    now.s += WINDOW_S
    refusals.log_repeated()
    assert logged(caplog) == [
        "refused again face=none account='the-key' client=10.0.0.1 call='' target=''"
        " outcome=access-denied times=995"
    ]
    refusals.log_repeated()
    assert len(caplog.records) == 1
    assert refusals.note("the-key", HERE)


def test_a_flood_under_ever_new_names_fills_neither_the_log_nor_the_memory(
    now: SetTime, caplog: pytest.LogCaptureFixture
) -> None:
    """All callers beyond the limit share one line, whatever they call themselves."""
    refusals = Refusals(now)
    told = sum([refusals.note(f"key-{number}" * 100, HERE) for number in range(10_000)])
    assert told == KEYS_MAX
    times: Any = refusals._repeats._times
    assert len(times) == KEYS_MAX
    assert max(len(account) for account, _ in times) < 1_000
    now.s += WINDOW_S
    assert refusals.note("key", HERE)
    assert logged(caplog) == [
        "refused again face=none account='' client=others call='' target='' outcome=access-denied"
        f" times={10_000 - KEYS_MAX}"
    ]


def test_a_line_of_json_has_the_fields_of_the_event() -> None:
    """Also what would break a line of text."""
    event = Event("changes", "grpc", "a 'key\n", HERE, "TopicCalls.delete", 'o"', "ok", note="ü")
    record = logging.LogRecord("rmqlite.audit", logging.INFO, "", 0, "%s", (event,), None)
    line = JsonLines().format(record)
    assert "\n" not in line
    about = json.loads(line)
    assert about.pop("time").startswith("20")
    assert about == {
        "level": "INFO",
        "event": "changes",
        "face": "grpc",
        "account": "a 'key\n",
        "client": HERE,
        "call": "TopicCalls.delete",
        "target": 'o"',
        "outcome": "ok",
        "rule": "",
        "times": 1,
        "note": "ü",
    }


def test_a_json_log_goes_to_standard_error_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Every line there parses, and no second one among the text repeats it."""
    handlers = audit.log.handlers
    level = audit.log.level
    try:
        audit.log.setLevel(logging.INFO)
        log_as_json()
        audit.changed(Event("changes", "web", "", HERE, "TopicCalls.clean", "", "ok"))
        (line,) = capsys.readouterr().err.splitlines()
        assert json.loads(line)["call"] == "TopicCalls.clean"
        assert not audit.log.propagate
    finally:
        audit.log.handlers, audit.log.propagate = handlers, True
        audit.log.setLevel(level)
