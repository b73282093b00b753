"""Pulls with an SQL92 expression: what is answered, how far they look, and what they read."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.sql.sql import Sql
from rmqlite.kernel.pulling import LOOK_MESSAGES
from rmqlite.kernel.requests.groups import HeartbeatRequest, Subscription
from rmqlite.kernel.requests.messages import PullRequest, PullStatus
from rmqlite.kernel.words.errors import ExpressionInvalid, StoreDamaged
from rmqlite.kernel.words.message import Message
from tests.support.brokers import BrokerUnderTest
from tests.support.made_brokers import Make
from tests.support.messages import TOPIC, plain
from tests.support.pulls import pull, texts
from tests.support.sends import sending
from tests.support.steps import done

FOUND = PullStatus.FOUND
NO_MATCH = PullStatus.NO_MATCHED_MESSAGE
BIG = "a = 1" + " OR a = 1" * 300


def numbered(count: int, **more: Any) -> list[Message]:
    """Messages with a property n from 0 on; the even ones have tag E."""
    return [
        plain(str(n % 10), properties={"n": str(n)}, tags="" if n % 2 else "E", **more)
        for n in range(count)
    ]


@pytest.fixture
def ten(under_test: BrokerUnderTest) -> BrokerUnderTest:
    under_test.send(*numbered(10))
    return under_test


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"sql": "n > 6"}, "789"),
        ({"sql": "n BETWEEN 2 AND 4 OR n IN ('9')"}, "2349"),
        ({"sql": "n > 3", "expression": "E"}, "468"),
        ({"sql": "TAGS = 'E'"}, "02468"),
        ({"sql": "other IS NULL"}, "0123456789"),
        ({"sql": ""}, "0123456789"),
    ],
)
def test_properties_choose(ten: BrokerUnderTest, wanted: dict[str, Any], found: str) -> None:
    """With tags and SQL a message has to match both; tags are a property, too."""
    result = pull(ten, **wanted)
    assert (result.status, texts(result), result.next_offset) == (FOUND, found, 10)


def test_without_a_match_the_offset_goes_on(ten: BrokerUnderTest) -> None:
    """Also where the comparison fails: a missing or malformed property is no match."""
    for sql in ("n > 10", "other > 1", "TAGS > 1", "n = 'x' OR TAGS > 1"):
        result = pull(ten, 4, sql=sql)
        assert (result.status, result.next_offset, result.messages) == (NO_MATCH, 10, ())


@pytest.mark.parametrize("most", [1, 2, 3, 5, 32])
def test_a_pull_continues_behind_the_last_message(ten: BrokerUnderTest, most: int) -> None:
    """No match is skipped, and none comes twice."""
    found, at = "", 0
    while at < 10:
        result = pull(ten, at, sql="n <> 4 AND n > 1", max_messages=most)
        assert len(result.messages) <= most
        found += texts(result)
        at = result.next_offset
    assert found == "2356789"


@pytest.mark.parametrize("size", [1, 300, 500, 10_000])
def test_bytes_end_a_pull_but_one_message_always_fits(ten: BrokerUnderTest, size: int) -> None:
    """As without a filter."""
    found, at = "", 0
    while at < 10:
        result = pull(ten, at, sql="n > 2", max_bytes=size)
        assert result.messages or result.next_offset == 10
        found += texts(result)
        at = result.next_offset
    assert found == "3456789"


def test_a_pull_compares_a_bounded_number_of_messages(make: Make) -> None:
    """A filter that matches nothing must not read a whole backlog in one call."""
    broker = make(filter_scan_max=LOOK_MESSAGES + 6)
    broker.send(*numbered(2 * LOOK_MESSAGES))
    first = pull(broker, sql=f"n = {2 * LOOK_MESSAGES - 1}")
    assert (first.status, first.next_offset) == (NO_MATCH, LOOK_MESSAGES + 6)
    second = pull(broker, first.next_offset, sql=f"n = {2 * LOOK_MESSAGES - 1}")
    assert (len(second.messages), second.next_offset) == (1, 2 * LOOK_MESSAGES)


def test_other_calls_run_while_a_long_expression_is_compared(make: Make) -> None:
    """The steps follow from the length of the expression and of the properties."""
    broker = make()
    broker.send(*numbered(400))
    short = list(broker.broker.pull(PullRequest("readers", TOPIC, 0, 0, sql="n = 1000")))
    assert len(short) <= 1
    long = list(broker.broker.pull(PullRequest("readers", TOPIC, 0, 0, sql=BIG)))
    assert len(long) > 5
    assert Sql(BIG).work(b"x" * 30_000) > 20 * Sql(BIG).work(b"")


def test_bodies_of_other_messages_are_not_read(make: Make) -> None:
    """A body with a wrong CRC is damage for whoever gets the message, and for nobody else."""
    broker = make()
    broker.send(*[plain(body * 20_000, properties={"n": body}) for body in "ab"])
    (first, _) = broker.messages(TOPIC, 0)
    with (broker.config.store_path / "commitlog" / f"{0:020}").open("r+b") as log:
        log.seek(first.physical_offset + 5_000)
        log.write(b"x")
    assert texts(pull(broker, sql="n = 'b'")) == "b" * 20_000
    with pytest.raises(StoreDamaged):
        pull(broker, sql="n = 'a'")
    with (broker.config.store_path / "commitlog" / f"{0:020}").open("r+b") as log:
        log.seek(first.physical_offset + 5_000)
        log.write(b"a")


def test_a_message_that_is_not_on_disk_is_not_compared(under_test: BrokerUnderTest) -> None:
    """The offset stays before it, also if it does not match."""
    message = plain("a", properties={"n": "1"})
    done(sending(under_test.broker, (message,), queue_id=0))
    result = pull(under_test, sql="n = 2")
    assert (result.status, result.next_offset) == (PullStatus.NO_NEW_MESSAGE, 0)


def test_after_a_restart_an_expression_gives_the_same(ten: BrokerUnderTest) -> None:
    """Nothing about it is stored."""
    before = texts(pull(ten, sql="n > 6"))
    ten.restart()
    assert texts(pull(ten, sql="n > 6")) == before == "789"


def test_a_wrong_expression_is_refused(ten: BrokerUnderTest) -> None:
    """In a pull, and already where the member joins."""
    with pytest.raises(ExpressionInvalid, match=r"sql='n >' .* at character 4, at the end"):
        pull(ten, sql="n >")
    beat = HeartbeatRequest("readers", "c", (Subscription(TOPIC, "*", "n >"),))
    with pytest.raises(ExpressionInvalid, match="at character 4"):
        done(ten.broker.membership.check_sql(beat))
