"""df.write and df.writeStream with the format "rmqlite": bulk scheduling from every task.

A task sends its rows in order, with several calls in flight.  Each message has an id, which is
the same when the task, the query or the whole job runs again, and the broker stores it once;
so messages of a failed task do no harm.  The broker's counts for the job are the result,
because Spark returns nothing from a writer.

Refused rows go into Parquet files: each task writes its own, the driver only names.  A task's file
counts when the driver has its name; what tasks that failed have left, or an earlier run with the
same job id, is deleted when the job is done.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs, parquet
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rmqlite.features.bulk.requests import BulkAnswer, BulkRequest, Refusal
from rmqlite.kernel.words.errors import InvalidValue, RmqliteError, Unavailable, restore
from rmqlite.kernel.words.levels import LevelTable, parse_levels
from rmqlite.spark.data_source_api import DataSourceStreamArrowWriter
from rmqlite.spark.options import credentials_of
from rmqlite.spark.sink.rows import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from rmqlite.spark.sink.rows import SinkCall


CODE_COLUMN: Final = "code"
REASON_COLUMN: Final = "reason"
HELD_BYTES_MAX: Final = 32 << 20
"""What a task holds in memory before it writes."""
PLAN_RETRY_MS_MAX: Final = 5_000
PLAN_PAUSE_S: Final = 0.2


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


@dataclass
class Sent(WriterCommitMessage):
    """The result of a task; refused: the name of the file with its refused rows, if any."""

    messages: int
    accepted: int
    refused: str = ""


def planned(options: SinkOptions, schema: StructType, *, overwrite: bool) -> SinkOptions:
    """The options, after all checks that need no row.

    Raises InvalidValue, DelayUnknown, BrokerUnreachable.
    """
    if overwrite:
        rule = 'append: a broker cannot take messages back; write with mode("append")'
        raise InvalidValue("mode", "overwrite", rule)
    options.check_columns(schema)
    options.check_levels(_levels(options))
    return options


def _levels(options: SinkOptions) -> LevelTable:
    """The broker's table.  It waits for a broker that is away, but not long: the endpoint may be
    mistyped.
    """
    from rmqlite.client.admin_client import AdminClient
    from rmqlite.kernel.words.clock import elapsed_s, pause_s

    until_s = elapsed_s() + min(options.retry_ms, PLAN_RETRY_MS_MAX) / 1000
    with AdminClient(options.endpoint, credentials=credentials_of(options)) as admin:
        while True:
            try:
                return parse_levels(admin.levels().message_delay_level)
            except Unavailable:
                if elapsed_s() >= until_s:
                    raise
                pause_s(PLAN_PAUSE_S)


class BulkWriter(DataSourceArrowWriter):
    """The writer of df.write: made on the driver, pickled to every task."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        options = planned(options, schema, overwrite=overwrite)
        # Chosen once, for all tasks and their repetitions.
        self.options = replace(options, job_id=options.job_id or uuid4().hex)
        self._folder = refused_folder(self.options.refused_path, self.options.job_id)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        job_id = self.options.job_id
        ids = f"{job_id}:{partition}"
        return send(iterator, self.options, job_id=job_id, id_prefix=ids, folder=self._folder)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _keep_refused(self.options, self._folder, messages)


class BulkStreamWriter(DataSourceStreamArrowWriter):
    """The writer of df.writeStream; without the option jobId the query's id is the job's."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        self.options = planned(options, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        partition, query_id, batch_id = 0, "stream", "0"
        if context:
            partition = context.partitionId()
            query_id = context.getLocalProperty("sql.streaming.queryId") or query_id
            batch_id = context.getLocalProperty("streaming.sql.batchId") or batch_id
        return send(
            iterator,
            self.options,
            job_id=self.options.job_id or query_id,
            id_prefix=f"{query_id}:{batch_id}:{partition}",
            folder=self._folder(batch_id),
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _keep_refused(self.options, self._folder(batchId), messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Messages that were sent stay; Spark repeats the batch with the same ids."""

    def _folder(self, batch_id: str | int) -> str:
        options = self.options
        return refused_folder(options.refused_path, options.job_id or "batch", batch_id)


def send(
    batches: Iterator[pa.RecordBatch],
    options: SinkOptions,
    *,
    job_id: str,
    id_prefix: str,
    folder: str = "",
) -> Sent:
    """Send all rows of a task; folder: for the refused rows, if the options collect them.

    Raises the first refusal unless refusals are collected, and Unavailable if the broker is
    away for too long.
    """
    from rmqlite.client.bulk import BulkScheduler
    from rmqlite.kernel.words.clock import elapsed_s, pause_s

    unsent, kept = 0, RefusedRows(folder)
    waiting: deque[SinkCall] = deque()
    began_s = elapsed_s()

    def requests() -> Iterator[BulkRequest]:
        sent = 0
        for part in _parts(batches, options, job_id, id_prefix):
            if options.max_per_second:
                pause_s(max(0.0, began_s + sent / options.max_per_second - elapsed_s()))
                sent += len(part.rows)
            waiting.append(part)
            yield part.request

    with (
        kept,
        BulkScheduler(
            options.endpoint,
            job_id=job_id,
            in_flight=options.in_flight,
            retry_ms=options.retry_ms,
            credentials=credentials_of(options),
        ) as sender,
    ):
        for _, answer in sender.answers(requests()):
            part = waiting.popleft()
            refused = _refusals(part, answer)
            if refused and not options.is_collecting:
                raise _row_error(refused[min(refused)])
            if refused:
                kept.add(part.batch, refused)
            unsent += len(part.refused)
        progress = sender.progress
    return Sent(progress.messages + unsent, progress.accepted, kept.name)


def _refusals(part: SinkCall, answer: BulkAnswer) -> dict[int, Refusal]:
    """The refused rows of a call, by their numbers in the batch."""
    of_broker = {part.rows[each.position]: each.refusal for each in answer.refused}
    return dict(part.refused) | of_broker


def _keep_refused(
    options: SinkOptions, folder: str, messages: Sequence[WriterCommitMessage | None]
) -> None:
    if options.is_collecting:
        keep_only(folder, [each.refused for each in messages if isinstance(each, Sent)])


def _parts(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, job_id: str, id_prefix: str
) -> Iterator[SinkCall]:
    from rmqlite.spark.sink.rows import parts_of

    first_row = 0
    for batch in batches:
        yield from parts_of(batch, options, job_id=job_id, id_prefix=id_prefix, first_row=first_row)
        first_row += batch.num_rows


def _row_error(refusal: Refusal) -> RmqliteError:
    sentence = f"the row with message id {refusal.message_id!r} was refused: {refusal.sentence}"
    return restore(
        refusal.code, sentence, field=refusal.field, value=refusal.value, rule=refusal.rule
    )
