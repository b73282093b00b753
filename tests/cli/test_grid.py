"""Tables as lines: they fit whatever is in them, and say what is left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rmqlite.cli.output.grid import cut, length, shortened, spread, widths, wrapped
from rmqlite.views.tables import Column, Table, Tone, row
from rmqlite.views.tables import table as view_table
from tests.support.broker_answers import HOSTILE
from tests.support.drawn import lines_of, text_of

COLUMNS = (
    Column("NAME", is_short=True),
    Column("COUNT", right=True),
    Column("ABOUT", is_short=True, rank=1),
    Column("MORE", is_short=True, rank=2),
)


def table(*rows: tuple[object, ...]) -> Table:
    return view_table("things", COLUMNS, [row(str(n), *each) for n, each in enumerate(rows)])


def texts(shown: Table, width: int) -> list[str]:
    return [text_of(line) for line in lines_of(shown, width)]


def test_numbers_stand_to_the_right_and_names_to_the_left() -> None:
    """As in every table of the command line."""
    assert texts(table(("a", 1, "x", "y"), ("bcd", 1_234_567, "x", "y")), 60)[1:] == [
        "NAME      COUNT  ABOUT  MORE",
        "a             1  x      y",
        "bcd   1,234,567  x      y",
    ]


def test_the_longest_cell_gives_way_first() -> None:
    """A name that is short anyway stays whole beside a reason of a thousand characters."""
    shown = texts(table(("orders", 1, "r" * 1_000, "m" * 12)), 40)
    assert shown[2].startswith("orders")
    assert "…" in shown[2]
    assert max(map(len, shown)) == 40


def test_a_column_goes_when_there_is_no_room_and_the_highest_rank_first() -> None:
    """A number is never cut: half a number is a wrong one."""
    full = table(("n" * 30, 1_234_567, "a" * 30, "m" * 30))
    assert [bool(n) for n in widths(full, 40)] == [True, True, True, True]
    assert [bool(n) for n in widths(full, 26)] == [True, True, True, False]
    assert [bool(n) for n in widths(full, 20)] == [True, True, False, False]


def test_a_ranked_column_that_says_nothing_is_left_out() -> None:
    """Tags that nobody uses take no room from reasons."""
    assert texts(table(("a", 1, "-", "y"), ("b", 2, "-", "-")), 60)[1] == "NAME  COUNT  MORE"


def test_without_rows_the_table_says_so() -> None:
    """An empty screen would look like a broken one."""
    assert texts(Table("things", COLUMNS, (), "no things yet"), 20)[1] == "no things yet"


@given(
    st.lists(st.tuples(st.text(), st.integers(), st.text(), st.text()), max_size=5),
    st.integers(1, 120),
)
def test_no_line_is_wider_than_the_screen_or_drives_it(
    rows: list[tuple[object, ...]], width: int
) -> None:
    """Whatever names and reasons clients choose."""
    for line in lines_of(table(*rows), width):
        assert length(line) <= width
        assert "".join([part.text for part in line]).isprintable()


@pytest.mark.parametrize("width", [2, 7, 80])
def test_wrapping_leaves_nothing_out(width: int) -> None:
    """Of a body every character is seen, wide ones included."""
    text = "abc 日本語 " * 9
    pieces = wrapped(text, width)
    assert "".join(pieces) == text
    assert max(map(cell_len, pieces)) <= width


def test_what_is_shortened_says_so_and_fits() -> None:
    """A wide character is not cut in half."""
    assert shortened("日本語", 4) == "日…"
    assert shortened("abc", 3) == "abc"
    assert shortened("abc", 0) == ""


def test_a_share_is_drawn_as_a_bar() -> None:
    """Before its text, and it is part of the column's width."""
    shown = Table("", (Column("PROGRESS"),), tuple([row("", Tone("50%", share=0.5))]))
    assert text_of(lines_of(shown, 40)[2]) == f"{'█' * 6}{'░' * 6} 50%"


def test_hostile_text_becomes_printable_in_a_cell() -> None:
    """The terminal shows what was sent, and does nothing of it."""
    shown = texts(table((HOSTILE, 1, "x", "y")), 100)[2]
    assert r"\x1b[31mred\x1b[0m [bold]b[/bold] \u202egnp.exe\x07" in shown


def test_the_right_end_of_a_line_stays() -> None:
    """The clock, or PAUSED, is seen however long the rest is."""
    line = spread((Tone("a" * 50),), (Tone("END"),), 20)
    assert text_of(line) == "a" * 15 + "… END"
    assert length(cut(line, 5)) == 5


def test_a_line_whose_end_is_blank_is_not_said_to_be_cut() -> None:
    """Nothing is missing."""
    assert text_of(cut((Tone("abc  "), Tone("  ")), 3)) == "abc"
    assert text_of(cut((Tone("abc  "), Tone(" d")), 4)) == "abc…"
