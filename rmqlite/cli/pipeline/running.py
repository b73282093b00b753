"""Checks the options of a job, and prints notes beside its output.

A job itself runs in rmqlite.spark.jobs.running; a command loads Spark only after it checked its
options.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from rmqlite.cli.options import refuse
from rmqlite.cli.output.terminal import note
from rmqlite.cli.pipeline.options import SourceOptions, TableOptions
from rmqlite.errors import StoreUnavailable
from rmqlite.extras import check_extra

PROMISE_BROKEN: Final = 4
"""The exit code if a job found a broken promise of the broker."""


class SnapshotRead(Protocol):
    """The part of a job's snapshot that is printed."""

    @property
    def begin_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def newest_timestamp_ms(self) -> int: ...
    @property
    def text(self) -> str: ...


class ReportPage(Protocol):
    """A report that can be written: a page that needs no other file, and its plots."""

    @property
    def html(self) -> str: ...
    @property
    def png(self) -> bytes: ...


def source(path: str, endpoint: str) -> dict[str, str]:
    """The source of a job, for running(): a store's folder or a broker, never both."""
    if not path and not endpoint:
        refuse("--path", "", "a store's folder: or give --endpoint HOST:PORT of a broker")
    if path and endpoint:
        refuse("--endpoint", endpoint, "left out if --path is given")
    # An executor may run in another folder.
    absolute = str(Path(path).absolute()) if path else ""
    return {"path": absolute, "endpoint": endpoint}


def settings(conf: Sequence[str] | None) -> dict[str, str]:
    """The settings of --conf, each KEY=VALUE."""
    found = {}
    for each in conf or ():
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            refuse("--conf", each, "KEY=VALUE, such as spark.executor.memory=4g")
        found[key.strip()] = value.strip()
    return found


def asked(options: SourceOptions) -> dict[str, Any]:
    """The options of every job, as running() takes them."""
    where = source(options.path, options.endpoint)
    conf = settings(options.conf)
    if isinstance(options, TableOptions) and options.output:
        check_extra("spark")
        from rmqlite.spark.tables import check_place

        check_place(options.output, master=options.master, conf=conf)
    return {**where, "archive": options.archive, "master": options.master, "conf": conf}


def note_snapshot(snapshot: SnapshotRead) -> None:
    """Print the snapshot on standard error."""
    note(f"reading {snapshot.text}")


def snapshot_tree(snapshot: SnapshotRead) -> dict[str, Any]:
    """The snapshot for --json."""
    return {
        "text": snapshot.text,
        "begin_offset": snapshot.begin_offset,
        "end_offset": snapshot.end_offset,
        "newest_timestamp_ms": snapshot.newest_timestamp_ms,
    }


def write(table: Any, options: TableOptions) -> None:
    """Write a job's table to --output, if it is given."""
    from rmqlite.spark.tables import write as write_table

    if options.output:
        form = options.form.value if options.form else ""
        note(f"wrote {write_table(table, options.output, form)}")


def check_report(report: Path | None) -> None:
    """End the command, before Spark starts, for a wrong place or a missing package."""
    if report is None:
        return
    if not report.parent.is_dir():
        refuse("--report", report, "a file in a folder that exists")
    if report.suffix.lower() not in (".html", ".htm"):
        refuse("--report", report, "a file's name that ends in .html")
    check_extra("bench")


def write_report(page: ReportPage, report: Path) -> None:
    """Write the page under its name, and the plots beside it."""
    png = report.with_suffix(".png")
    try:
        report.write_text(page.html, encoding="utf-8")
        png.write_bytes(page.png)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreUnavailable("write to", str(report), reason) from error
    note(f"wrote {report} and {png}")
