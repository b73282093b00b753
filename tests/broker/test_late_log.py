"""One line of the log says that deliveries were late, after the last of them."""

from __future__ import annotations

import logging

import pytest

from tests.support.brokers import BrokerUnderTest
from tests.support.messages import delayed

LINE = "deliveries were late"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if LINE in each.getMessage()]


def test_a_burst_that_came_late_is_one_line(
    under_test: BrokerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """With its number and its latest message; what is in time has none."""
    caplog.set_level(logging.INFO)
    under_test.send(*[delayed(str(number), 1) for number in range(100)])
    under_test.clock.forward(1_000)
    under_test.deliver()
    assert lines(caplog) == []
    under_test.send(*[delayed(str(number), 1) for number in range(2_000)])
    under_test.clock.forward(6_000)
    under_test.deliver()
    assert lines(caplog) == [f"{LINE} level=1 messages=2000 latest_ms=5000"]
    # Again, within a minute: it is told with the next one after that.
    for _ in range(13):
        under_test.send(delayed("again", 1))
        under_test.clock.forward(6_000)
        under_test.deliver()
    assert len(lines(caplog)) == 2
    assert "messages=10 latest_ms=5000" in lines(caplog)[1]
