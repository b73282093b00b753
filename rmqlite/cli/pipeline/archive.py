"""rmqlite pipeline archive: closed log files as Parquet, so that retention may delete them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Final

from rmqlite.cli.options import finish, moment_ms, option, with_options, wrong
from rmqlite.cli.output.documents import Document, fields_of, many, maybe, prints
from rmqlite.cli.output.terminal import note, print_json, print_table
from rmqlite.cli.pipeline.running import SourceOptions, check_source, settings
from rmqlite.views.numbers import size_text

_RUN: Final = Document(
    "Run",
    "begin, end: physical offsets; last: the newest record.",
    **fields_of(int, "begin end records record_bytes"),
    last=list[int | str],
    source=str,
)
_ANSWER: Final = Document(
    "Archive",
    "All runs; the log before deletable_before is in the archive.",
    archive=str,
    runs=many(_RUN),
    deletable_before=maybe(int),
)


@prints(lambda: _ANSWER)
@with_options
def archive(
    *,
    options: SourceOptions,
    until: Annotated[
        str, option("--until TIME", "Only log files with all records stored before.")
    ] = "",
) -> None:
    """Append the closed log files to an archive of Parquet files by topic and day (UTC).

    --archive: any folder that Spark can write.  Other jobs read it with --archive, too.
    """
    check_source(options)
    conf, place = settings(options.conf), options.archive
    if not place:
        wrong("give --archive, a folder for the archive")
    until_ms = moment_ms("--until", until)
    from rmqlite.spark.archive import Archive, Live, archive_closed, check_names
    from rmqlite.spark.hadoop import disk_names
    from rmqlite.spark.jobs.running import check_filled, running_session
    from rmqlite.spark.reading import looked

    log = looked(path=options.path, endpoint=options.endpoint)
    check_filled(log)
    check_names(disk_names(place, master=options.master, conf=conf) or (), place)
    with running_session("archive", master=options.master, conf=conf) as spark:
        made = Archive(spark, place)
        archive_closed(
            made, Live(spark, path=options.path, endpoint=options.endpoint, found=log), until_ms
        )
    runs = made.runs
    end = runs[-1].end if runs else None
    if options.as_json:
        rows = [_RUN.tree(**asdict(run)) for run in runs]
        print_json(_ANSWER.tree(archive=place, runs=rows, deletable_before=end))
    else:
        _print(runs, end)
    finish(0, log.warnings)


def _print(runs: Sequence[Any], end: int | None) -> None:
    cells = [
        (str(run.begin), str(run.end), run.records, size_text(run.record_bytes)) for run in runs
    ]
    if cells:
        print_table(("BEGIN", "END", "RECORDS", "LOG"), cells, "Archived physical offsets")
        note(f"retention may delete the log before physical offset {end}")
    else:
        note("no closed log file to archive")
