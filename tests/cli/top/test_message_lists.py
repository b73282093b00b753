"""How lists of letters read, and how they grow page by page."""

from __future__ import annotations

from rmqlite.cli.status import Picture
from rmqlite.cli.top.group_screen import (
    LOADED_MAX,
    Loaded,
    dead_table,
    filter_of,
    first_query,
    group_line,
    reasons_line,
    retries_table,
)
from rmqlite.features.dead_letters.requests import DeadLetterFilter, DeadLetterPage
from rmqlite.kernel.words.errors import BrokerUnreachable
from rmqlite.views.tables import Table
from tests.support.broker_answers import HOSTILE, NOW_MS, dead, group, letter, told
from tests.support.drawn import lines_of, text_of


def texts(table: Table, width: int = 100) -> list[str]:
    return [text_of(line) for line in lines_of(table, width)]


def test_a_filter_is_written_as_words() -> None:
    """What has a field's name is that field, the rest is the reason."""
    assert filter_of("") == DeadLetterFilter()
    assert filter_of("connection  refused") == DeadLetterFilter(reason="connection refused")
    assert filter_of("topic=orders key=k=1 tag=A id=X no route=5") == DeadLetterFilter(
        topic="orders", tag="A", key="k=1", reason="no route=5", ids=("X",)
    )


def test_a_list_goes_on_where_the_page_before_said() -> None:
    """Until there is no cursor; an empty page is not the end."""
    loaded = Loaded(first_query("workers", "", newest_first=True))
    assert loaded.query is not None
    loaded = loaded.taken(DeadLetterPage((letter(1),), "c1", 50), 5.0)
    assert loaded.query is not None
    assert (loaded.query.cursor, loaded.query.newest_first) == ("c1", True)
    loaded = loaded.taken(DeadLetterPage((), "c2", 1_000), 6.0)
    loaded = loaded.taken(DeadLetterPage((letter(2),), "", 7), 7.0)
    assert loaded.query is None
    assert (len(loaded.letters), loaded.looked_at, loaded.at_s) == (2, 1_057, 5.0)


def test_a_list_that_is_long_enough_is_full() -> None:
    """Nobody scrolls through a hundred thousand."""
    loaded = Loaded(first_query("workers", "", newest_first=True), (letter(1),) * LOADED_MAX)
    assert loaded.is_full


def test_an_empty_list_says_why() -> None:
    """Still asking, looking, not told, or really none."""
    loaded = Loaded(first_query("workers", "", newest_first=False))

    def said(loaded: Loaded) -> str:
        return texts(dead_table(loaded, NOW_MS, "", newest_first=False))[1]

    assert said(loaded) == "asking"
    assert said(loaded.taken(DeadLetterPage((), "c", 5_000), 1.0)) == "looking, at 5,000 so far"
    assert said(loaded.failed(BrokerUnreachable("no answer"), 1.0)) == "not known: no answer"
    assert said(loaded.taken(DeadLetterPage(()), 1.0)) == "none"


def test_a_dead_letter_says_when_where_from_and_why() -> None:
    """Of a stack trace the first line; what was redriven says by whom."""
    redriven = letter(2, reason=f"{HOSTILE}\n  File x", redriven_by="job-1", tags="", keys=())
    loaded = Loaded(None, (letter(1), redriven))
    lines = texts(dead_table(loaded, NOW_MS, "", newest_first=True), 200)
    assert lines[1].split()[-2:] == ["REASON", "REDRIVEN"]
    assert lines[2].split()[1:] == ["17", "orders", "order-1", "A", "connection", "refused", "-"]
    assert r"\x1b[31mred\x1b[0m [bold]b[/bold] \u202egnp.exe\x07 …  job-1" in lines[3]


def test_a_retry_says_when_it_comes_and_which_attempt_that_is() -> None:
    """The first delivery counts, too; a limit that the sender set goes before the group's."""
    due = letter(1, due_ms=NOW_MS - 1, delivery_attempts=16)
    waits = letter(2, due_ms=NOW_MS + 90_000, delivery_attempts=1, max_reconsume_times=2)
    lines = texts(retries_table(Loaded(None, (due, waits)), 17, NOW_MS, ""))
    assert lines[2].split()[:4] == ["due", "17", "of", "17"]
    assert lines[3].split()[:6] == ["in", "1m", "30s", "2", "of", "3"]


def test_a_group_in_one_line() -> None:
    """Its figures, as far as they are known."""
    picture = Picture()
    assert text_of(group_line(picture, "workers", 80)) == "workers"
    described = (("workers", group("workers", lag=3, members=0)),)
    picture.take(told(1.0, described=described, dead=(dead("workers", 4),)))
    assert text_of(group_line(picture, "workers", 80)) == (
        "workers  lag 3  due 0  0 members  dead 4  at most 16 retries"
    )


def test_the_most_frequent_reasons_stand_above_the_list() -> None:
    """Often one line says what has happened."""
    assert text_of(reasons_line(None, 80)) == ""
    line = text_of(reasons_line(dead("workers", 5), 200))
    assert line.startswith(r"reasons  5 timeout \x1b[31mred")


def test_a_kind_of_reasons_is_a_filter() -> None:
    """It has blanks, so it is all that follows."""
    kind = "no answer within # s"
    wanted = DeadLetterFilter(topic="orders", reason="late", failure_kind=kind)
    assert filter_of(f"topic=orders late kind={kind}") == wanted
    assert filter_of("kind=no answer within 30 s") == DeadLetterFilter(failure_kind=kind)
