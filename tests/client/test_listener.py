"""Everything but a plain success is a failure with a reason."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rmqlite.client import (
    CONSUME_SUCCESS,
    DEAD_LETTER,
    RECONSUME_LATER,
    ConsumeResult,
    reconsume_later,
)
from rmqlite.client.consuming.listener import REASON_BYTES_MAX, consume
from tests.client.conftest import stored


def answering(result: Any) -> ConsumeResult:
    return consume(lambda _: result, stored(0))


def failing(error: Exception) -> ConsumeResult:
    def listener(_: Any) -> ConsumeResult:
        raise error

    return consume(listener, stored(0))


def test_a_listeners_answer_is_taken_as_it_is() -> None:
    """With the level and the reason it chose."""
    assert answering(CONSUME_SUCCESS) == CONSUME_SUCCESS
    assert answering(RECONSUME_LATER) == RECONSUME_LATER
    chosen = reconsume_later(delay_level=DEAD_LETTER, reason="no such customer")
    assert answering(chosen) == ConsumeResult(False, -1, "no such customer")


@pytest.mark.parametrize(("answer", "what"), [(None, "nothing"), (True, "a bool"), ("ok", "a str")])
def test_any_other_answer_is_a_failure_that_says_so(answer: Any, what: str) -> None:
    """A forgotten return must not lose a message; RocketMQ treats null so."""
    result = answering(answer)
    assert not result.is_success
    assert f"returned {what}" in result.reason


def test_an_exception_is_a_failure_with_its_type_and_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The stack goes to the log, the text into the dead letter."""
    with caplog.at_level(logging.ERROR):
        assert failing(ValueError("no stock")) == ConsumeResult(False, 0, "ValueError: no stock")
    assert "no stock" in caplog.text
    assert "Traceback" in caplog.text


def test_a_reason_is_cut_by_bytes_between_characters() -> None:
    """The broker keeps no more, and half a character is none."""
    reason = failing(ValueError("ü" * 5_000)).reason
    assert REASON_BYTES_MAX - 2 < len(reason.encode()) <= REASON_BYTES_MAX


def test_a_reason_that_utf8_cannot_carry_is_mended() -> None:
    """Else the send-back could not be written, and would be tried forever."""
    assert answering(reconsume_later(reason="a\ud800b")).reason == "a?b"


def test_a_result_that_cannot_travel_fails_where_it_is_made() -> None:
    """In the listener's own line, where it can be found."""
    wrong: Any = {"delay_level": "3"}
    result = consume(lambda _: reconsume_later(**wrong), stored(0))
    assert result.reason.startswith("InvalidValue: delay_level='3'")
