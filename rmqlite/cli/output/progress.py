"""Progress bars on standard error while a command works; only a terminal shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn

from rmqlite.cli.output.terminal import progress_console


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
