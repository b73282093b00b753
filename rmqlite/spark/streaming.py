"""A stream that stores where it began, and shows its progress as a consumer group's.

Spark does not store the beginning of a new stream until its first batch is done: after a crash
in that batch "latest" would be another place.  So read_stream() writes the beginning as queue
offsets into the checkpoint's folder before the stream starts, and later runs read it there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from rmqlite.kernel.words.errors import InvalidValue, RmqliteError
from rmqlite.spark.arrow.partitions import ReadOptions
from rmqlite.spark.hadoop import HadoopFolder
from rmqlite.spark.options import parse_options, to_spark
from rmqlite.spark.reading import load_texts
from rmqlite.spark.stream.plan import (
    BrokerRanges,
    Offsets,
    QueueRanges,
    StreamPlan,
    from_spark,
    publish,
    ranges_of,
)
from rmqlite.spark.stream.stream import check_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INITIAL_OFFSETS: Final = "rmqlite-initial-offsets.json"
"""A name in the checkpoint's folder, beside Spark's own files."""
_BEGIN: Final = ("startingoffsets", "startingtimestamp")

log = logging.getLogger(__name__)


def read_stream(
    spark: SparkSession,
    *,
    path: str = "",
    endpoint: str = "",
    checkpoint: str,
    columns: Sequence[str] = (),
    **options: object,
) -> DataFrame:
    """The records of a store or a broker as a stream, each once from its beginning on.

    checkpoint: the checkpointLocation of the query; this call stores in that folder where the
    stream begins.  options are those of the format, as in read_log; with group the stream
    commits its offsets at the broker after every batch.  Raises InvalidValue, StoreDamaged,
    Unavailable.
    """
    if not checkpoint:
        raise InvalidValue("checkpoint", checkpoint, "the folder of the query's checkpoint")
    texts = load_texts(path=path, endpoint=endpoint, columns=columns, options=options)
    parsed = parse_options(texts)
    check_reader(parsed)
    folder = HadoopFolder(spark, checkpoint)
    begin = _beginning(folder, parsed)
    if begin:
        texts = {name: text for name, text in texts.items() if name.lower() not in _BEGIN}
        texts["startingOffsets"] = begin
    if parsed.group:
        source = BrokerRanges(parsed)
        spark.streams.addListener(StreamProgress(folder, parsed.group, source))
    return spark.readStream.format("rmqlite").options(**texts).load()


def _beginning(folder: HadoopFolder, options: ReadOptions) -> str:
    """Where the stream begins or began; empty if it was started without read_stream()."""
    for begin in folder.texts(INITIAL_OFFSETS):
        return begin
    if folder.files("offsets"):
        return ""
    begin = json.dumps(to_spark(StreamPlan(options, ranges_of(options)).initial()))
    folder.write_text(INITIAL_OFFSETS, begin)
    return begin


class StreamProgress(StreamingQueryListener):
    """Publishes the offsets of the query of one checkpoint when a batch is done.

    In a query with several sources each source publishes by itself, one batch later.
    """

    def __init__(self, checkpoint: HadoopFolder, group: str, source: QueueRanges) -> None:
        self._checkpoint = checkpoint
        self._group = group
        self._source = source
        self._query_id = ""
        self._reached: Offsets = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        del event

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        sources = event.progress.sources
        if len(sources) != 1 or not self._is_its(str(event.progress.id)):
            return
        try:
            reached = from_spark(json.loads(sources[0].endOffset))
        except (RmqliteError, TypeError, ValueError) as error:
            log.warning("progress cannot be read group=%s: %s", self._group, error)
            return
        if reached != self._reached:
            publish(self._source, self._group, reached)
            self._reached = reached

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        del event

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if self._query_id == str(event.id):
            self._reached = {}
            self._source.close()

    def _is_its(self, query_id: str) -> bool:
        """Is it the query of this checkpoint?  The checkpoint has the query's id."""
        if not self._query_id:
            try:
                (text,) = self._checkpoint.texts("metadata")
                self._query_id = str(json.loads(text)["id"])
            except (RmqliteError, KeyError, TypeError, ValueError):
                # The event is of another query: this one writes its id before its first batch.
                return False
        return self._query_id == query_id
