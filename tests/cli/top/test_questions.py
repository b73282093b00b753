"""A round of questions over real gRPC."""

from __future__ import annotations

from rmqlite.cli.status import Questions, StatusCalls, ask
from rmqlite.client import AdminClient
from rmqlite.kernel.words.errors import BrokerUnreachable, GroupUnknown
from tests.support.fake_broker import FakeBroker

EVERYTHING = Questions(frozenset(StatusCalls), ("workers", "nobody"))


def test_a_round_brings_every_answer_and_every_error(broker: FakeBroker) -> None:
    """One group that is gone takes nothing else with it."""
    with AdminClient(broker.endpoint) as admin:
        answers = ask(admin, EVERYTHING, lambda: 7.0)
    assert (answers.asked_at_s, answers.answered_at_s) == (7.0, 7.0)
    assert set(answers.parts) == set(StatusCalls)
    assert [each.group for each in answers.parts[StatusCalls.DEAD]] == ["workers"]
    (_, workers), (name, error) = answers.described
    assert not isinstance(workers, Exception)
    assert name == "nobody"
    assert isinstance(error, GroupUnknown)


def test_what_is_not_asked_is_not_answered(broker: FakeBroker) -> None:
    """Nothing is not an empty list."""
    with AdminClient(broker.endpoint) as admin:
        answers = ask(admin, Questions())
    assert (answers.parts, answers.described) == ({}, ())
    assert [name for name, asked in broker.asked.items() if asked] == ["GetBrokerStatus"]


def test_of_a_broker_that_is_gone_nothing_else_is_asked(broker: FakeBroker) -> None:
    """Each question would wait for its own timeout."""
    broker.stop()
    with AdminClient(broker.endpoint, timeout_ms=1_000) as admin:
        answers = ask(admin, EVERYTHING)
    broker.start()
    assert isinstance(answers.status, BrokerUnreachable)
    assert not answers.parts


def test_after_a_group_that_timed_out_no_other_is_asked(broker: FakeBroker) -> None:
    """A round must come to its end."""

    def gone(_: str) -> object:
        raise BrokerUnreachable("no answer")

    broker.answers["DescribeGroup"] = gone
    with AdminClient(broker.endpoint) as admin:
        answers = ask(admin, EVERYTHING)
    assert broker.asked["DescribeGroup"] == ["workers"]
    assert isinstance(answers.described[0][1], BrokerUnreachable)
