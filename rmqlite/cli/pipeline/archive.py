"""rmqlite pipeline archive: closed log files as Parquet, so that retention may delete them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from rmqlite.cli.options import AsJson, moment_ms, refuse
from rmqlite.cli.output.spans import size_text
from rmqlite.cli.output.terminal import note, print_json, print_table, time_text
from rmqlite.cli.pipeline.options import Conf, Endpoint, Master, StorePath
from rmqlite.cli.pipeline.running import settings, source

_MINUTES: Final = len("2026-11-20 10:00")


def archive(
    place: Annotated[
        str,
        typer.Option(
            "--archive",
            metavar="PLACE",
            help="The archive: any folder that Spark can write.",
            show_default=False,
        ),
    ] = "",
    path: StorePath = "",
    endpoint: Endpoint = "",
    until: Annotated[
        str,
        typer.Option(
            "--until", metavar="TIME", help="Only log files with all records stored before."
        ),
    ] = "",
    master: Master = "",
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Archive every closed log file that is not archived yet.

    Other jobs read the archive and the live log as one table with --archive.
    """
    where, told = source(path, endpoint), settings(conf)
    if not place:
        refuse("--archive", "", "a folder for the archive")
    until_ms = moment_ms("--until", until)
    from rmqlite.spark.hadoop import disk_names
    from rmqlite.spark.jobs.archive import ArchiveJob
    from rmqlite.spark.jobs.running import check_filled, running_session
    from rmqlite.spark.manifest import check_names
    from rmqlite.spark.reading import looked

    log = looked(path=path, endpoint=endpoint)
    check_filled(log)
    check_names(disk_names(place, master=master, conf=told) or (), place)
    found = []
    with running_session("archive", master=master, conf=told) as spark:
        job = ArchiveJob(spark, place, **where, found=log)
        for each in job.run(until_ms):
            found.append(each)
            if each.is_new:
                note(f"archived {each.segment.begin:020d}: {each.segment.records:,} records")
        deletable = job.deletable()
    if as_json:
        rows = [asdict(each.segment) | {"is_new": each.is_new} for each in found]
        upto = deletable[-1].end if deletable else None
        print_json({"archive": place, "segments": rows, "deletable_before": upto})
        return
    _print(found)
    if deletable:
        size = size_text(sum(each.end - each.begin for each in deletable))
        files = "1 log file" if len(deletable) == 1 else f"{len(deletable):,} log files"
        upto = deletable[-1].end
        note(f"retention may delete {files}, {size}, before physical offset {upto}")


def _print(found: list[Any]) -> None:
    """found: Archived objects."""
    if not found:
        note("no closed log file to archive")
        return
    rows = [
        (
            f"{each.segment.begin:020d}",
            each.segment.records,
            time_text(each.segment.first_timestamp_ms)[:_MINUTES],
            size_text(each.segment.record_bytes),
            size_text(each.segment.archived_bytes),
            f"{each.segment.archived_bytes / each.segment.record_bytes:.0%}",
            "yes" if each.is_new else "-",
        )
        for each in found
    ]
    print_table(("LOG FILE", "RECORDS", "FROM", "LOG", "PARQUET", "RATIO", "NEW"), rows)
