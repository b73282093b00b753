"""What is known, and what is asked next: plain values and seconds that a test chooses."""

from __future__ import annotations

from rmqlite.cli.status import GROUPS_A_ROUND, Picture, Questions, StatusCalls
from rmqlite.features.redrive.requests import JobState, RedriveJob, RedriveSpec
from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.kernel.words.errors import BrokerUnreachable, InvalidValue
from tests.support.broker_answers import NOW_MS, dead, group, status, told, waiting

EVERYTHING = Questions(set(StatusCalls))


def full_round(at_s: float, count: int = 1) -> Picture:
    """A picture after its first round."""
    picture = Picture()
    infos = tuple([GroupInfo(f"g{n:02}") for n in range(count)])
    picture.take(told(at_s, groups=infos, pending=(), dead=(), jobs=()))
    return picture


def test_the_first_round_asks_for_everything() -> None:
    """But for groups, whose names are not known yet."""
    assert Picture().questions(10.0) == EVERYTHING


def test_what_costs_more_is_asked_less_often() -> None:
    """Counting dead letters twice a second would be a load of its own."""
    picture = full_round(10.0)
    assert picture.questions(11.0) == Questions(set(), ("g00",))
    assert picture.questions(12.0) == Questions({StatusCalls.GROUPS, StatusCalls.PENDING}, ("g00",))
    assert picture.questions(15.0).parts == set(StatusCalls)


def test_a_running_redrive_is_asked_for_each_time() -> None:
    """Its progress is what somebody looks at."""
    picture = full_round(10.0)
    job = RedriveJob("j", RedriveSpec("g00"), JobState.RUNNING, 10)
    picture.take(told(11.0, jobs=(job,)))
    assert StatusCalls.JOBS in picture.questions(11.5).parts


def test_many_groups_are_asked_in_turns() -> None:
    """A thousand groups are no thousand calls a round."""
    picture = full_round(10.0, count=GROUPS_A_ROUND + 4)
    assert picture.lacks_figures
    first = picture.questions(10.0).describe
    assert len(first) == GROUPS_A_ROUND
    picture.take(told(11.0, described=tuple([(name, group(name)) for name in first])))
    second = picture.questions(12.0).describe
    assert second[:4] == ("g16", "g17", "g18", "g19")
    picture.take(told(12.0, described=tuple([(name, group(name)) for name in second])))
    assert not picture.lacks_figures


def test_inside_a_group_only_that_group_is_asked_for() -> None:
    """What is not shown is not asked."""
    picture = full_round(10.0, count=3)
    assert picture.questions(11.0, group="g01") == Questions(set(), ("g01",))
    assert picture.questions(20.0, is_overview=False) == Questions()


def test_a_groups_figures_are_put_together() -> None:
    """Due retries are lag; those that wait in the schedule are not."""
    picture = Picture()
    assert picture.figures("workers").lag is None
    picture.take(
        told(
            1.0,
            groups=(GroupInfo("workers"),),
            described=(("workers", group("workers", lag=7, due=3, members=2)),),
            pending=(waiting("workers", 5), waiting("others", 9), waiting("workers", 1)),
            dead=(dead("workers", 10, redriven=4),),
        )
    )
    figures = picture.figures("workers")
    assert (figures.lag, figures.members, figures.due) == (10, 2, 3)
    assert (figures.waiting, figures.dead, figures.new_dead) == (6, 6, 0)


def test_growth_is_since_the_first_look_and_no_purge_hides_it() -> None:
    """What died is what died, whether or not somebody has dealt with it since."""
    picture = Picture()
    picture.take(told(1.0, dead=(dead("workers", 10),)))
    picture.take(told(6.0, dead=(dead("workers", 3, redriven=1, purged=11), dead("new", 2))))
    assert picture.figures("workers").new_dead == 4
    assert picture.figures("new").new_dead == 2
    picture.take(told(11.0, dead=(dead("workers", 1),)))
    assert picture.figures("workers").new_dead == 0


def test_a_group_that_has_only_dead_letters_is_shown() -> None:
    """The group is gone, what it has left is not."""
    picture = Picture()
    picture.take(told(1.0, groups=(), dead=(dead("gone", 3),)))
    assert [each.group for each in picture.groups()] == ["gone"]


def test_a_part_that_fails_keeps_what_was_known() -> None:
    """And is asked for again no sooner than it would have been."""
    picture = full_round(10.0)
    picture.take(told(11.0, dead=(dead("workers", 3),)))
    error = InvalidValue("x", "y", "z")
    picture.take(told(16.0, dead=error))
    assert picture.errors == {StatusCalls.DEAD: error}
    assert picture.figures("workers").dead == 3
    assert StatusCalls.DEAD not in picture.questions(17.0).parts
    picture.take(told(21.0, dead=()))
    assert not picture.errors


def test_a_broker_that_is_gone_has_an_age_and_a_clock_that_stands() -> None:
    """Counting down what nobody delivers would be a lie."""
    picture = full_round(10.0)
    assert picture.now_ms(12.0) == NOW_MS + 2_000
    picture.take(told(13.0, BrokerUnreachable("no answer from the broker")))
    assert picture.unreachable is not None
    assert (picture.age_s(15.0), picture.now_ms(15.0)) == (5.0, NOW_MS)
    assert picture.rates.now("sent") is None
    picture.take(told(20.0, status(10_000)))
    assert picture.unreachable is None
    assert picture.rates.now("sent") == 0.0


def test_a_redrive_stays_a_minute_after_its_end() -> None:
    """Long enough to see how it ended."""
    spec = RedriveSpec("workers")
    running = RedriveJob("a", spec, JobState.PAUSED, 0)
    ended = RedriveJob("b", spec, JobState.DONE, 4, ended_at_ms=NOW_MS - 59_000)
    old = RedriveJob("c", spec, JobState.DONE, 4, ended_at_ms=NOW_MS - 61_000)
    picture = Picture()
    picture.take(told(1.0, jobs=(running, ended, old)))
    assert picture.shown_jobs() == [running, ended]
