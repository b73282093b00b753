"""Progress bars on standard error while a command works; only a terminal shows them.

Also the loop of every list that a broker answers page by page, because it shows such a bar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from rmqlite.cli.output.terminal import note, progress_console
from rmqlite.client import DEAD_LETTERS_MAX, DeadLetter, DeadLetterPage, DeadLettersQuery
from rmqlite.features.cursors import HasCursor, pages
from rmqlite.views.numbers import COUNTED_MAX, matches_text

Q = TypeVar("Q", bound=HasCursor)
P = TypeVar("P", bound=HasCursor)
T = TypeVar("T")


def text_column(template: str) -> TextColumn:
    """A column of a progress bar; brackets in its text are not markup."""
    return TextColumn(template, markup=False)


def progress_bar(*columns: ProgressColumn, is_hidden: bool = False) -> Progress:
    """A bar with its description and these columns; it disappears at its end."""
    console = progress_console()
    return Progress(
        text_column("{task.description}"),
        *columns,
        console=console,
        transient=True,
        # rich would move the standard output to the bar's own console.
        redirect_stdout=False,
        disable=is_hidden or not console.is_terminal,
    )


@contextmanager
def counting(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal; yields a function that takes the count so far."""
    of_total = "" if total is None else f" of {total:,}"
    with progress_bar(BarColumn(), text_column("{task.completed:,}" + of_total)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def reading(what: str, *, is_hidden: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal; yields a function for how much was read, and of how much."""
    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with progress_bar(*columns, is_hidden=is_hidden) as bar:
        task = bar.add_task(what, total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


def listed(
    ask: Callable[[Q, int], P],
    query: Q,
    read: Callable[[P], tuple[Sequence[T], int]],
    count: int,
) -> tuple[list[T], str]:
    """Up to `count` rows from the cursor on, and the cursor of the next ones; "" at the end.

    ask: a page of at most so many rows; it may have fewer, or none.  read: the rows of a page,
    and how many the broker looked at for them.
    """
    found: list[T] = []
    looked_at = 0

    def next_page(query: Q) -> P:
        return ask(query, count - len(found))

    with counting("looked at") as show:
        for page in pages(next_page, query):
            rows, looked_at_here = read(page)
            found += rows
            looked_at += looked_at_here
            show(looked_at)
            if len(found) >= count:
                break
    return found, page.cursor


def note_matches(
    shown: int,
    ask: Callable[[Q], P],
    query: Q,
    cursor: str,
    count_of: Callable[[P], int],
    noun: str,
) -> None:
    """Note how many rows a list has in all, if it has more than the page shows.

    query: of the page, for COUNTED_MAX rows; cursor: of the page behind it.
    """
    if not cursor:
        return
    behind = ask(replace(query, cursor=cursor))
    left, is_all = count_of(behind), not behind.cursor
    note(matches_text(shown, left, noun, is_all=is_all, is_first=not query.cursor))


def letters_listed(
    call: Callable[[DeadLettersQuery], DeadLetterPage],
    query: DeadLettersQuery,
    count: int,
    noun: str = "",
) -> tuple[list[DeadLetter], str]:
    """The same of a group's dead letters or retries; call: the broker's list of them.

    noun: what to call them in the note of how many there are; empty: no note.
    """

    def ask(query: DeadLettersQuery, most: int) -> DeadLetterPage:
        return call(replace(query, max_letters=min(DEAD_LETTERS_MAX, most)))

    found, cursor = listed(ask, query, lambda page: (page.letters, page.looked_at), count)
    if noun:
        query = replace(query, max_letters=min(DEAD_LETTERS_MAX, COUNTED_MAX))
        note_matches(len(found), call, query, cursor, lambda page: len(page.letters), noun)
    return found, cursor
