"""df.write and df.writeStream with the format "rmqlite": bulk scheduling from every task.

A task sends its rows in order, with several calls in flight.  Each message has an id, which is
the same when the task, the query or the whole job runs again, and the broker stores it once;
so messages of a failed task do no harm.  The broker's counts for the job are the result,
because Spark returns nothing from a writer.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from rmqlite.errors import InvalidValue, RmqliteError, Unavailable, restore
from rmqlite.levels import LevelTable, parse_levels
from rmqlite.requests.bulk import BulkAnswer, BulkRequest, Refusal
from rmqlite.spark.credentials import credentials_of
from rmqlite.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from rmqlite.spark.sink.rows import Part

REFUSED_ROWS_MAX: Final = 10_000
"""The most refused rows of a task that onInvalid=collect stores; further ones are only counted."""
REFUSED_BYTES_MAX: Final = 32 << 20
PLAN_RETRY_MS_MAX: Final = 5_000
PLAN_PAUSE_S: Final = 0.2
CODE_COLUMN: Final = "code"
REASON_COLUMN: Final = "reason"

log = logging.getLogger(__name__)


@dataclass
class Sent(WriterCommitMessage):
    """The result of a task; refused: Arrow streams of refused rows; left_out: rows not in them."""

    messages: int
    accepted: int
    refused: tuple[bytes, ...] = ()
    left_out: int = 0


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
    from rmqlite.client.admin.admin_client import AdminClient
    from rmqlite.clock import elapsed_s, pause_s

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
        self.schema = _arrow_schema(schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        job_id = self.options.job_id
        return send(iterator, self.options, job_id=job_id, id_prefix=f"{job_id}:{partition}")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        name = f"refused-{_file_name(self.options.job_id)}.parquet"
        keep_refused(self.options, self.schema, messages, name)


class BulkStreamWriter(DataSourceStreamArrowWriter):
    """The writer of df.writeStream; without the option jobId the query's id is the job's."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        self.options = planned(options, schema, overwrite=overwrite)
        self.schema = _arrow_schema(schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        partition, query_id, batch_id = 0, "stream", "0"
        if context:
            partition = context.partitionId()
            query_id = context.getLocalProperty("sql.streaming.queryId") or query_id
            batch_id = context.getLocalProperty("streaming.sql.batchId") or batch_id
        prefix = f"{query_id}:{batch_id}:{partition}"
        return send(
            iterator, self.options, job_id=self.options.job_id or query_id, id_prefix=prefix
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        name = f"refused-{_file_name(self.options.job_id or 'batch')}-{batchId}.parquet"
        keep_refused(self.options, self.schema, messages, name)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Messages that were sent stay; Spark repeats the batch with the same ids."""


def send(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, *, job_id: str, id_prefix: str
) -> Sent:
    """Send all rows of a task.

    Raises the first refusal unless refusals are collected, and Unavailable if the broker is
    away for too long.
    """
    from rmqlite.client.producing.bulk import BulkScheduler
    from rmqlite.clock import elapsed_s, pause_s

    refused = _Refused(options)
    waiting: deque[Part] = deque()
    began_s = elapsed_s()

    def requests() -> Iterator[BulkRequest]:
        sent = 0
        for part in _parts(batches, options, job_id, id_prefix):
            if options.max_per_second:
                pause_s(max(0.0, began_s + sent / options.max_per_second - elapsed_s()))
                sent += len(part.rows)
            waiting.append(part)
            yield part.request

    with BulkScheduler(
        options.endpoint,
        job_id=job_id,
        in_flight=options.in_flight,
        retry_ms=options.retry_ms,
        credentials=credentials_of(options),
    ) as sender:
        for _, answer in sender.answers(requests()):
            refused.take(waiting.popleft(), answer)
        progress = sender.progress
    messages = progress.messages + refused.unsent
    return Sent(messages, progress.accepted, tuple(refused.streams), refused.left_out)


class _Refused:
    """The refused rows of a task with their reasons, up to a limit."""

    def __init__(self, options: SinkOptions) -> None:
        self._is_collecting = options.is_collecting
        self._rows_left = REFUSED_ROWS_MAX
        self._bytes_left = REFUSED_BYTES_MAX
        self.streams: list[bytes] = []
        self.unsent = 0
        self.left_out = 0

    def take(self, part: Part, answer: BulkAnswer) -> None:
        """Add the refusals of a call.  Raises the first one unless refusals are collected."""
        if not part.refused and not answer.refused:
            return
        found = dict(part.refused)
        for each in answer.refused:
            found[part.rows[each.position]] = each.refusal
        self.unsent += len(part.refused)
        rows = sorted(found)
        if not self._is_collecting:
            raise _row_error(found[rows[0]])
        taken = rows[: self._rows_left]
        data = _stream_of(part.batch, taken, [found[row] for row in taken]) if taken else b""
        if not taken or len(data) > self._bytes_left:
            self.left_out += len(rows)
            return
        self._rows_left -= len(taken)
        self._bytes_left -= len(data)
        self.left_out += len(rows) - len(taken)
        self.streams.append(data)


def keep_refused(
    options: SinkOptions,
    schema: pa.Schema,
    messages: Sequence[WriterCommitMessage | None],
    name: str,
) -> None:
    """Write the refused rows of all tasks, on the driver; an empty file if there are none."""
    if not options.is_collecting:
        return
    import pyarrow as pa
    from pyarrow import fs, parquet

    sent = [each for each in messages if isinstance(each, Sent)]
    tables = [pa.ipc.open_stream(data).read_all() for each in sent for data in each.refused]
    table = pa.concat_tables([schema.empty_table(), *[each.cast(schema) for each in tables]])
    left_out = sum([each.left_out for each in sent])
    if left_out:
        log.warning("refused rows dropped count=%d refusedPath=%s", left_out, options.refused_path)
    path = options.refused_path
    if "://" in path:
        system, folder = fs.FileSystem.from_uri(path)
    else:
        system, folder = fs.LocalFileSystem(), path
    system.create_dir(folder, recursive=True)
    parquet.write_table(table, f"{folder.rstrip('/')}/{name}", filesystem=system)


def refused_file(path: str, job_id: str) -> str:
    """The file with the refused rows of a batch job."""
    return f"{path.rstrip('/')}/refused-{_file_name(job_id)}.parquet"


def _parts(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, job_id: str, id_prefix: str
) -> Iterator[Part]:
    from rmqlite.spark.sink.rows import parts_of

    first_row = 0
    for batch in batches:
        yield from parts_of(batch, options, job_id=job_id, id_prefix=id_prefix, first_row=first_row)
        first_row += batch.num_rows


def _stream_of(batch: pa.RecordBatch, rows: list[int], refusals: list[Refusal]) -> bytes:
    import pyarrow as pa

    table = pa.Table.from_batches([batch]).take(pa.array(rows, pa.int64()))
    table = table.append_column(CODE_COLUMN, pa.array([each.code for each in refusals]))
    table = table.append_column(REASON_COLUMN, pa.array([each.sentence for each in refusals]))
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    data: bytes = out.getvalue().to_pybytes()
    return data


def _row_error(refusal: Refusal) -> RmqliteError:
    sentence = f"the row with message id {refusal.message_id!r} was refused: {refusal.sentence}"
    return restore(
        refusal.code, sentence, field=refusal.field, value=refusal.value, rule=refusal.rule
    )


def _arrow_schema(schema: StructType) -> Any:
    """The schema of a file with refused rows: the user's columns, then code and reason."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    columns = to_arrow_schema(schema, timezone="UTC")
    for name in (CODE_COLUMN, REASON_COLUMN):
        columns = columns.append(pa.field(name, pa.string()))
    return columns


def _file_name(job_id: str) -> str:
    return re.sub("[^A-Za-z0-9_.-]", "_", job_id)
