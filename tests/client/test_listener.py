"""Nothing returned is a success; an exception and any other value are failures with a reason."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from rmqlite.client import (
    CONSUME_SUCCESS,
    DEAD_LETTER,
    RECONSUME_LATER,
    ConsumeResult,
    PushConsumer,
    RetryLater,
    reconsume_later,
)
from rmqlite.client.consuming.listener import REASON_BYTES_MAX, consume
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import StoredMessage
from tests.client.conftest import stored


def answering(result: Any) -> ConsumeResult:
    return consume(lambda _: result, stored(0))


def failing(error: BaseException) -> ConsumeResult:
    def listener(_: Any) -> ConsumeResult:
        raise error

    return consume(listener, stored(0))


def test_a_listeners_answer_is_taken_as_it_is() -> None:
    """With the level and the reason it chose."""
    assert answering(CONSUME_SUCCESS) == CONSUME_SUCCESS
    assert answering(RECONSUME_LATER) == RECONSUME_LATER
    chosen = reconsume_later(delay_level=DEAD_LETTER, reason="no such customer")
    assert answering(chosen) == ConsumeResult(False, -1, "no such customer")


def test_a_listener_without_a_return_has_consumed_its_message() -> None:
    """As a task of any other Python library."""

    def listener(_: StoredMessage) -> None:
        pass

    assert consume(listener, stored(0)) == CONSUME_SUCCESS


@pytest.mark.parametrize(
    ("after", "delay_ms"),
    [(90, 90_000), (0.0015, 2), (timedelta(minutes=3), 180_000), ("1m30s", 90_000)],
)
def test_a_listener_says_when_its_message_comes_again(after: Any, delay_ms: int) -> None:
    """Raised from anywhere below it, with what it was raised from as the reason."""
    assert failing(RetryLater(after, "busy")) == ConsumeResult(False, 0, "busy", delay_ms)
    error = RetryLater(after)
    error.__cause__ = OSError("away")
    assert failing(error) == ConsumeResult(False, 0, "OSError: away", delay_ms)
    if not isinstance(after, int | float):
        later = reconsume_later(after=after, reason="busy")
        assert answering(later) == ConsumeResult(False, 0, "busy", delay_ms)


def test_a_retry_that_a_listener_asks_for_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """The log would be full of tracebacks of what is meant to be."""
    failing(RetryLater(90))
    assert caplog.text == ""


@pytest.mark.parametrize("after", [0, -1, float("nan"), float("inf"), 10**10, "soon", "0s", None])
def test_a_wait_that_is_none_is_refused_where_it_is_said(after: Any) -> None:
    """By name."""
    with pytest.raises(InvalidValue) as raised:
        RetryLater(after)
    assert raised.value.field == "after"


def test_a_level_and_a_wait_are_one_too_many() -> None:
    """Which of them was meant?"""
    with pytest.raises(InvalidValue, match="delay_level must be left out if after is given"):
        reconsume_later(delay_level=3, after="90s")


@pytest.mark.parametrize(("answer", "what"), [(True, "a bool"), ("ok", "a str"), (0, "an int")])
def test_any_other_answer_is_a_failure_that_the_log_names(
    answer: Any, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Else every message of the group fails, and nobody sees why."""
    result = answering(answer)
    assert not result.is_success
    assert result.reason.startswith("TypeError: listener answering.<locals>.<lambda> must return")
    assert result.reason.endswith(f"not {what.replace('an ', 'a ')}")
    assert "listener=answering.<locals>.<lambda> topic=t" in caplog.text


def test_a_coroutine_that_a_listener_returns_is_closed() -> None:
    """Python would warn that nobody awaited it, when it is too late to see where it was made."""

    async def work() -> None:
        pass

    assert "not a coroutine" in answering(work()).reason


class AsyncWorker:
    async def __call__(self, _: StoredMessage) -> None:
        pass

    async def work(self, _: StoredMessage) -> None:
        pass


async def asynchronous(_: StoredMessage) -> None:
    pass


async def asynchronous_steps(_: StoredMessage) -> AsyncIterator[None]:
    yield


def steps(_: StoredMessage) -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    "listener",
    [
        asynchronous,
        asynchronous_steps,
        steps,
        partial(asynchronous),
        AsyncWorker(),
        partial(AsyncWorker()),
        AsyncWorker().work,
    ],
)
def test_a_listener_whose_code_would_not_run_is_refused(listener: Any) -> None:
    """It would fail every message; its author has to hear it at once."""
    with (
        PushConsumer("nowhere:1", "g") as consumer,
        pytest.raises(InvalidValue, match="a plain function"),
    ):
        consumer.listen(listener)
    with pytest.raises(InvalidValue, match="a plain function"):
        PushConsumer("nowhere:1", "g", listener)


def test_a_type_checker_sees_a_wrong_listener() -> None:
    """mypy reports an ignore that it does not need: these lines are wrong, and stay so."""

    def answering_true(_: StoredMessage) -> bool:
        return True

    def answering_nothing(_: StoredMessage) -> None:
        pass

    with PushConsumer("nowhere:1", "g") as consumer:
        consumer.listen(answering_nothing)
        consumer.listen(answering_true)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue):
            consumer.listen(asynchronous)  # type: ignore[arg-type]


class Exit(BaseException):
    """Such as greenlet's."""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (asyncio.CancelledError("by its task"), "CancelledError: by its task"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
        (GeneratorExit(), "GeneratorExit: "),
        (Exit("killed"), "Exit: killed"),
    ],
)
def test_an_exception_that_is_no_exception_fails_its_message_only(
    error: BaseException, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It would end the thread, and the message would be neither retried nor dead."""
    assert failing(error) == ConsumeResult(False, 0, reason)
    (record,) = caplog.records
    assert "listener=failing.<locals>.listener" in record.getMessage()


@pytest.mark.parametrize("thrown", [ValueError(), SystemExit()])
def test_an_error_whose_text_fails_has_its_type_as_reason(thrown: BaseException) -> None:
    """Its text is code of the user, too."""

    class Odd(Exception):
        def __str__(self) -> str:
            raise thrown

    assert failing(Odd()).reason == "Odd"


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
    assert result.reason.startswith("InvalidValue: delay_level must be int, not str")
