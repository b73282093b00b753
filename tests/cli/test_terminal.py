"""What is shown can be read and never interpreted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.cli.consume import BODY_CHARS_SHOWN, shown_body
from rmqlite.cli.output.progress import progress_bar
from rmqlite.cli.output.terminal import (
    body_text,
    error_line,
    numbers,
    out,
    print_table,
    print_tall_table,
    printable,
    progress_console,
    shortened,
)
from rmqlite.kernel.words.errors import (
    BrokerUnreachable,
    DelayUnknown,
    GroupUnknown,
    InvalidValue,
    Refused,
    TopicUnknown,
)
from rmqlite.views.tables import cell_text
from tests.cli.conftest import Run
from tests.support.golden import unpack_golden


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünï 王", "plain ünï 王"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("two\nlines\tand\r", "two\\nlines\\tand\\r"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b31m", "\\x9b31m"),
        ("\x7f\x00", "\\x7f\\x00"),
        ("\udcff", "\\udcff"),
    ],
)
def test_what_a_terminal_would_interpret_is_shown_escaped(text: str, shown: str) -> None:
    """ESC, C1 controls, line breaks, bidi overrides and broken UTF-8 are somebody else's words."""
    assert printable(text) == shown


@given(st.text())
def test_escaped_text_has_nothing_left_to_interpret(text: str) -> None:
    """Whatever comes in, what goes out is printable and can be written to a terminal."""
    assert printable(text).isprintable()
    printable(text).encode()


@given(st.binary())
def test_any_body_can_be_shown(body: bytes) -> None:
    """Text where it is text, hex where it is not, never an error."""
    encoding, text = body_text(body)
    assert (text.encode() if encoding == "utf-8" else bytes.fromhex(text)) == body
    assert shown_body(body).isprintable()


def test_a_huge_body_is_cut_and_says_so() -> None:
    """Four megabytes on a terminal help nobody; --json has all of it."""
    assert shown_body(b"x" * 4_000_000) == "x" * BODY_CHARS_SHOWN + " … (4,000,000 bytes)"


def test_a_cell_shows_absence_and_groups_digits() -> None:
    """A dash is not 0; a million is read at a glance."""
    assert [cell_text(c) for c in (None, 0, 1_000_000, True, False, 2.345)] == [
        *("-", "0", "1,000,000", "yes", "no", "2.3")
    ]


def test_an_error_is_one_line_with_its_rule_once() -> None:
    """The rule is added only where the sentence does not say it already."""
    rule = "create the topic first, or set autoCreateTopicEnable=true"
    assert error_line(TopicUnknown("orders")) == f"error: no topic named 'orders' ({rule})"
    assert error_line(InvalidValue("tags", "\x01", "no 0x01")).count("no 0x01") == 1
    assert "\n" not in error_line(BrokerUnreachable("down\nand out"))


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [("abcdef", 6, "abcdef"), ("abcdef", 5, "abcd…"), ("王王王", 5, "王王…"), ("ab  cd", 5, "ab…")],
)
def test_what_is_too_long_for_a_line_is_cut_and_says_so(text: str, width: int, shown: str) -> None:
    """Counted in columns, not in characters."""
    assert shortened(text, width) == shown


def test_a_column_of_numbers_is_aligned_to_the_right() -> None:
    """Its head, too."""
    assert numbers("OPEN", [5, 1_000_000]) == ["     OPEN", "        5", "1,000,000"]


MARKUP = ("[red]x[/red]", "[/]", "[bold", "[link=http://x]y[/link]", ":smile:", "\\[b]")


def test_brackets_in_a_table_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """A topic may not be called so, but a key, a tag or a client's name may."""
    print_table(MARKUP, [MARKUP, [f"{each} again" for each in MARKUP]], title=" ".join(MARKUP))
    print_tall_table(MARKUP, [(MARKUP, " ".join(MARKUP))])
    printed = capsys.readouterr().out
    for text in MARKUP:
        assert printed.count(text) == 7


def test_brackets_on_a_terminal_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """With colours, and in a progress bar beside the output."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    for console in (out(), progress_console()):
        with console.capture() as shown:
            for text in MARKUP:
                console.print(text)
        assert shown.get().split() == list(" ".join(MARKUP).split())
    for text in MARKUP:
        bar = progress_bar()
        bar.add_task(text)
        assert [str(row) for row in bar.make_tasks_table(bar.tasks).columns[0].cells] == [text]


def test_brackets_in_an_error_are_no_markup(run: Run) -> None:
    """Neither in one of ours nor in one about the command line."""
    for text in MARKUP:
        assert text in error_line(InvalidValue("tags", text, f"a rule with {text}"))
        result = run("topic", "show", "orders", text)
        assert (result.exit_code, text in result.stderr) == (2, True)
    assert "[red]x[/red]" in run("send", "orders", "x", "--property", "[red]x[/red]").stderr


def test_an_error_line_has_the_rule_once() -> None:
    """Also if the sentence has the value between the rule and what explains it."""
    line = error_line(DelayUnknown("7s", "1s 5s"))
    assert line.count("no level is exactly that long") == 1
    assert error_line(Refused("no", rule="ask first")) == "error: no (ask first)"


def test_an_unknown_group_names_the_nearest() -> None:
    """Mostly it is misspelled: to create another one on demand would be wrong."""
    line = error_line(GroupUnknown("wrokers", ["billing", "workers"]))
    assert line == "error: no consumer group named 'wrokers'; did you mean workers?"


def test_a_terminal_without_utf8_gets_escapes(tmp_path: Path) -> None:
    """Also without the frames of a help; nothing of it is an error."""
    folder = tmp_path / "käse"
    folder.mkdir()
    store = unpack_golden(folder) / "clean"
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    for arguments, found in (
        (("--help",), b"Usage: "),
        (("store", "show", store), b"k\\xe4se/"),
    ):
        command = [sys.executable, "-m", "rmqlite", *map(str, arguments)]
        ran = subprocess.run(command, env=ascii_only, capture_output=True, check=True, timeout=600)
        assert found in ran.stdout
        assert ran.stdout.isascii()
        assert ran.stderr == b""
