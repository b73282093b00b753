"""Runs a job for a command: checks its options, and prints what it reads and answers.

A job itself runs in rmqlite.spark.jobs.running; a command loads Spark only after it checked its
options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rmqlite.cli.options import refuse
from rmqlite.cli.output.terminal import note, print_json
from rmqlite.cli.pipeline.options import PlotOptions, SourceOptions, TableOptions
from rmqlite.errors import StoreUnavailable
from rmqlite.extras import check_extra

PROMISE_BROKEN: Final = 4
"""The exit code if a job found a broken promise of the broker."""


def source(options: SourceOptions) -> dict[str, str]:
    """The source of a job: a store's folder or a broker, never both."""
    path, endpoint = options.path, options.endpoint
    if not path and not endpoint:
        refuse("--path", "", "a store's folder: or give --endpoint HOST:PORT of a broker")
    if path and endpoint:
        refuse("--endpoint", endpoint, "left out if --path is given")
    # An executor may run in another folder.
    return {"path": str(Path(path).absolute()) if path else "", "endpoint": endpoint}


def settings(conf: Sequence[str] | None) -> dict[str, str]:
    """The settings of --conf, each KEY=VALUE."""
    found = {}
    for each in conf or ():
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            refuse("--conf", each, "KEY=VALUE, such as spark.executor.memory=4g")
        found[key.strip()] = value.strip()
    return found


@contextmanager
def started(
    name: str, options: SourceOptions, check: Callable[[Any], None] = lambda _: None
) -> Iterator[Any]:
    """A Job of rmqlite.spark.jobs.running while it runs.

    Wrong options end the command before Spark starts.  check: raises an error for a log that the
    job cannot answer for.
    """
    where, conf = source(options), settings(options.conf)
    check_extra("spark")
    if isinstance(options, TableOptions) and options.output:
        from rmqlite.spark.tables import check_place

        check_place(options.output, master=options.master, conf=conf)
    if isinstance(options, PlotOptions) and options.plot:
        _check_plot(options.plot)
    from rmqlite.spark.jobs.running import running

    with running(
        name,
        path=where["path"],
        endpoint=where["endpoint"],
        archive=options.archive,
        master=options.master,
        conf=conf,
        check=check,
    ) as job:
        note(f"reading {job.snapshot.text}")
        yield job


def write(table: Any, options: TableOptions) -> None:
    """Write a job's table to --output, if it is given."""
    from rmqlite.spark.tables import write as write_table

    if options.output:
        form = options.form.value if options.form else ""
        note(f"wrote {write_table(table, options.output, form)}")


def write_plot(draw: Callable[[], bytes], options: PlotOptions) -> None:
    """Draw a job's plot to --plot, if it is given."""
    if options.plot is None:
        return
    try:
        options.plot.write_bytes(draw())
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreUnavailable("write to", str(options.plot), reason) from error
    note(f"wrote {options.plot}")


def answer(
    job: Any, options: SourceOptions, tree: Mapping[str, Any], show: Callable[[], None]
) -> None:
    """Print the answer of a job: with --json its tree and the snapshot, else what show() prints."""
    if not options.as_json:
        show()
        return
    snapshot = job.snapshot
    read = {
        "text": snapshot.text,
        "begin_offset": snapshot.begin_offset,
        "end_offset": snapshot.end_offset,
        "newest_timestamp_ms": snapshot.newest_timestamp_ms,
    }
    print_json({"snapshot": read, **tree})


def _check_plot(plot: Path) -> None:
    if not plot.parent.is_dir():
        refuse("--plot", plot, "a file in a folder that exists")
    if plot.suffix.lower() != ".png":
        refuse("--plot", plot, "a file's name that ends in .png")
    check_extra("plot")
