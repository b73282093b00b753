"""What a job's command line means, and what is said beside its output.

A job itself runs in rmqlite.spark.jobs.running; Spark is loaded when a command is run, and
not before its options are known to be right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rmqlite.cli.options import refuse
from rmqlite.cli.pipeline.options import TableFormat
from rmqlite.cli.terminal import note

PROMISE_BROKEN: Final = 4
"""The exit code when a job found that a promise of the broker's was broken."""


def source(path: str, endpoint: str) -> dict[str, str]:
    """What a job reads, as running() takes it: a store's folder or a broker, never both."""
    if not path and not endpoint:
        refuse("--path", "", "a store's folder, or --endpoint HOST:PORT for a broker")
    if path and endpoint:
        refuse("--endpoint", endpoint, "either --path or --endpoint")
    return {"path": path, "endpoint": endpoint}


def settings(conf: Sequence[str] | None) -> dict[str, str]:
    """What --conf says, each KEY=VALUE."""
    found = {}
    for each in conf or ():
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            refuse("--conf", each, "KEY=VALUE, such as spark.executor.memory=4g")
        found[key.strip()] = value.strip()
    return found


def write(table: Any, output: str, form: TableFormat | None) -> None:
    """Write a job's table where --output says; nothing if it says nothing."""
    from rmqlite.spark.tables import write as write_table

    if output:
        note(f"wrote {write_table(table, output, form.value if form else '')}")


def rows_as_cells(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> list[tuple[object, ...]]:
    """The cells of these columns, for print_table()."""
    return [tuple(row[name] for name in names) for row in rows]
