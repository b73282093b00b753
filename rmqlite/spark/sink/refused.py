"""The refused rows of a job as Parquet files: each task writes its own, the driver only names.

A task's file counts when the driver has its name; what tasks that failed have left, or an earlier
run with the same job id, is deleted when the job is done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs, parquet

if TYPE_CHECKING:
    from rmqlite.features.bulk.requests import Refusal


CODE_COLUMN: Final = "code"
REASON_COLUMN: Final = "reason"
HELD_BYTES_MAX: Final = 32 << 20
"""What a task holds in memory before it writes."""


def refused_folder(path: str, job_id: str, batch_id: str | int = "") -> str:
    """The folder of a job's files, or of those of a stream's batch; path: the refusedPath."""
    name = re.sub("[^A-Za-z0-9_.-]", "_", f"{job_id}-{batch_id}" if batch_id != "" else job_id)
    return f"{path.rstrip('/')}/refused-{name}"


class RefusedRows:
    """The file of a task; it is made with the first row."""

    def __init__(self, folder: str) -> None:
        self._system, self._folder = _opened(folder)
        self._writer: Any = None
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self.name = ""
        """The file's name; "" without refused rows."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._write()
        if self._writer is not None:
            self._writer.close()

    def add(self, batch: pa.RecordBatch, refusals: Mapping[int, Refusal]) -> None:
        """Add rows of a batch, by their numbers."""
        rows = sorted(refusals)
        found = [refusals[row] for row in rows]
        table = pa.Table.from_batches([batch]).take(pa.array(rows, pa.int64()))
        table = table.append_column(CODE_COLUMN, pa.array([each.code for each in found]))
        table = table.append_column(REASON_COLUMN, pa.array([each.sentence for each in found]))
        self._held.append(table)
        self._held_bytes += table.nbytes
        if self._held_bytes >= HELD_BYTES_MAX:
            self._write()

    def _write(self) -> None:
        if not self._held:
            return
        table = pa.concat_tables(self._held)
        self._held, self._held_bytes = [], 0
        if self._writer is None:
            self._system.create_dir(self._folder, recursive=True)
            self.name = f"{uuid4().hex}.parquet"
            path = f"{self._folder}/{self.name}"
            self._writer = parquet.ParquetWriter(path, table.schema, filesystem=self._system)
        self._writer.write_table(table)


def keep_only(folder: str, names: Iterable[str]) -> None:
    """Delete all other files in a folder, and make the folder if there is none."""
    system, root = _opened(folder)
    system.create_dir(root, recursive=True)
    kept = {*names}
    for each in system.get_file_info(fs.FileSelector(root)):
        if each.is_file and each.base_name not in kept:
            system.delete_file(each.path)


def _opened(folder: str) -> tuple[Any, str]:
    """The file system of a folder, and its path there."""
    if "://" in folder:
        system, path = fs.FileSystem.from_uri(folder)
        return system, str(path)
    return fs.LocalFileSystem(), folder
