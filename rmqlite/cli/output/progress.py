"""A progress bar on standard error while a command works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress

from rmqlite.cli.output.terminal import progress_console, text_column


@contextmanager
def counting(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal; yields a function that takes the count so far."""
    console = progress_console()
    of_total = "" if total is None else f" of {total:,}"
    columns = (
        text_column("{task.description}"),
        BarColumn(),
        text_column("{task.completed:,}" + of_total),
    )
    # Do not redirect standard output: rich would move it to the bar's own console.
    with Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=False,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
