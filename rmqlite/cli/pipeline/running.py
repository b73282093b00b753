"""The options of every job, and how a command runs one and prints its answer.

A job itself runs in rmqlite.spark.jobs.running; a command loads Spark only after it checked its
options.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from rmqlite.cli import completion
from rmqlite.cli.options import AsJson, finish, option, refuse, wrong
from rmqlite.cli.output.documents import Document, fields_of
from rmqlite.cli.output.terminal import note, print_json
from rmqlite.extras import check_extra
from rmqlite.kernel.words.errors import InvalidName, StoreUnavailable
from rmqlite.kernel.words.names import check_group

SNAPSHOT: Final = Document(
    "Snapshot",
    "What a job has read: physical offsets, and the time of the newest record.  warnings: what "
    "the store may lack.",
    text=str,
    warnings=list[str],
    **fields_of(int, "begin_offset end_offset newest_timestamp_ms"),
)
PROMISE_BROKEN: Final = 4
"""The exit code if a job found a broken promise of the broker."""


class TableFormat(enum.StrEnum):
    """The formats of a table."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    DELTA = "delta"


_MASTER = (
    "Spark's master: local[4], spark://host:7077, yarn; by default spark-submit's, or all cores of "
    "this machine."
)
_OUTPUT = "Also write the table: to a file such as x.csv, or to a folder, as Spark does."
_FORMAT = "The format of the table; by default as the file's name ends, or parquet."
_ARCHIVE = "An archive: its records and those of the log behind it are one table."
_PATH = "Read a store's folder; a broker may be running on it."


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a job reads, and where Spark runs, as it was typed."""

    path: Annotated[str, option("--path -p STORE", _PATH, show_default=False)] = ""
    endpoint: Annotated[
        str, option("--endpoint -e HOST:PORT", "Read from a broker instead.", show_default=False)
    ] = ""
    archive: Annotated[str, option("--archive PLACE", _ARCHIVE, show_default=False)] = ""
    master: Annotated[str, option("--master URL", _MASTER, show_default=False)] = ""
    conf: Annotated[
        list[str] | None,
        option("--conf KEY=VALUE", "A setting of Spark; can be repeated.", show_default=False),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True, slots=True)
class TableOptions(SourceOptions):
    """Also where the job's table goes."""

    output: Annotated[str, option("--output -o PLACE", _OUTPUT, show_default=False)] = ""
    form: Annotated[TableFormat | None, option("--format", _FORMAT, show_default=False)] = None


@dataclass(frozen=True, slots=True)
class PlotOptions(TableOptions):
    """Also a plot."""

    plot: Annotated[
        Path | None, option("--plot FILE.png", "Also draw a plot.", show_default=False)
    ] = None


Groups = Annotated[
    list[str] | None,
    option("--group -g NAME", "Only this consumer group; can be repeated.", completion.groups),
]


def check_source(options: SourceOptions) -> None:
    """End the command unless it has one source, a store's folder or a broker, and Spark."""
    if not options.path and not options.endpoint:
        wrong("give --path, a store's folder, or --endpoint, HOST:PORT of a broker")
    if options.path and options.endpoint:
        wrong("give --path or --endpoint, not both")
    check_extra("spark")


def groups_named(names: Sequence[str] | None) -> tuple[str, ...]:
    """The names of --group; one that cannot be a group's ends the command."""
    for name in names or ():
        try:
            check_group(name)
        except InvalidName as error:
            refuse("--group", name, error.rule)
    return tuple(names or ())


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
    check_source(options)
    conf = settings(options.conf)
    if isinstance(options, TableOptions) and options.output:
        from rmqlite.spark.tables import check_place

        check_place(options.output, master=options.master, conf=conf)
    if isinstance(options, PlotOptions) and options.plot:
        _check_plot(options.plot)
    from rmqlite.spark.jobs.running import running

    with running(
        name,
        path=options.path,
        endpoint=options.endpoint,
        archive=options.archive,
        master=options.master,
        conf=conf,
        check=check,
    ) as job:
        note(f"reading {job.snapshot.text}")
        _check_output(job.spark, options, conf)
        yield job


def _check_output(spark: Any, options: SourceOptions, conf: Mapping[str, str]) -> None:
    """Raise an error now for an output that Spark cannot open: the answer may take long."""
    from rmqlite.spark.hadoop import HadoopFolder, disk_path

    place = getattr(options, "output", "")
    if place and disk_path(place, master=options.master, conf=conf) is None:
        HadoopFolder(spark, place).files("")


def write(table: Any, options: TableOptions) -> None:
    """Write a job's table to --output, if it is given."""
    from rmqlite.spark.tables import write as write_table

    if options.output:
        form = options.form.value if options.form else ""
        note(f"wrote {write_table(table, options.output, form)}")


def write_plot(draw: Callable[[Any], bytes], options: PlotOptions) -> None:
    """Draw a job's plot to --plot, if it is given; draw: gets the module of the plots."""
    if options.plot is None:
        return
    from rmqlite.spark.jobs import plot

    try:
        options.plot.write_bytes(draw(plot))
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreUnavailable("write to", str(options.plot), reason) from error
    note(f"wrote {options.plot}")


def answered(name: str, about: str, tables: str, **fields: Any) -> Document:
    """The document of a job's answer; tables: the names of its lists of rows.

    The page of Spark has the columns of each.
    """
    return Document(
        name, about, snapshot=SNAPSHOT, **fields_of(list[dict[str, Any]], tables), **fields
    )


def answer(
    job: Any,
    options: SourceOptions,
    document: Document,
    tree: Mapping[str, Any],
    show: Callable[[], None],
    exit_code: int = 0,
) -> None:
    """Print the answer of a job: with --json its tree and the snapshot, else what show() prints.

    exit_code: the answer's; if it is 0 and the store may lack records, the command ends with 5.
    """
    if options.as_json:
        snapshot = job.snapshot
        read = SNAPSHOT.tree(
            text=snapshot.text,
            warnings=snapshot.warnings,
            begin_offset=snapshot.begin_offset,
            end_offset=snapshot.end_offset,
            newest_timestamp_ms=snapshot.newest_timestamp_ms,
        )
        print_json(document.tree(snapshot=read, **tree))
    else:
        show()
    finish(exit_code, job.snapshot.warnings)


def _check_plot(plot: Path) -> None:
    if not plot.parent.is_dir():
        refuse("--plot", plot, "a file in a folder that exists")
    if plot.suffix.lower() != ".png":
        refuse("--plot", plot, "a file's name that ends in .png")
    check_extra("plot")
