"""The shape of each table under config/, as pydantic models.

A table may have been written by RocketMQ, an older rmqlite, an editor or somebody with bad
intent.  Names become folders and numbers become loops, so both have limits.  Fields without a
meaning here are ignored; rows of topics and groups keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from rmqlite.features.bulk.requests import BulkJob
from rmqlite.features.redrive.requests import RedriveJob, RedriveOutcome, job_tree
from rmqlite.kernel.config.values import QUEUES_MAX
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.json_tree import Path, WrongValue, read_json, shown
from rmqlite.kernel.words.levels import LevelHistory, LevelTable, parse_levels
from rmqlite.kernel.words.limits import INT32_MAX, INT64_MAX
from rmqlite.kernel.words.names import STORED_NAME_RULE, is_stored_name
from rmqlite.kernel.words.retry_policy import RetryPolicy

CHUNK_OFFSETS: Final = 8192
"""How many queue offsets one chunk of a CompletedBitmap covers."""
COMPLETED_SPAN_MAX: Final = 1 << 32
"""How far behind the first waiting message of a level a completed one may lie, in offsets."""
RUN_LETTERS_MAX: Final = 1 << 16
"""How many dead letters one run of a redrive job's step may cover."""
_T = TypeVar("_T")


def _stored_name(name: str) -> str:
    if not is_stored_name(name):
        raise ValueError(STORED_NAME_RULE)
    return name


def _topic_at_group(text: str) -> str:
    if "@" not in text:
        raise ValueError("a topic, @ and a group")
    for name in text.split("@", 1):
        _stored_name(name)
    return text


def _levels(text: object) -> LevelTable:
    if not isinstance(text, str):
        raise ValueError("levels such as 1s 5s 10s")
    return _parsed(parse_levels, text)


def _policy(text: str) -> str:
    _parsed(RetryPolicy.parse, text)
    return text


def _parsed(parse: Callable[[str], _T], text: str) -> _T:
    try:
        return parse(text)
    except InvalidValue as error:
        raise ValueError(str(error)) from error


Int32 = Annotated[int, Field(strict=True, ge=-INT32_MAX - 1, le=INT32_MAX)]
Int64 = Annotated[int, Field(strict=True, ge=-INT64_MAX - 1, le=INT64_MAX)]
Offset = Annotated[int, Field(strict=True, ge=0, le=INT64_MAX)]
Queues = Annotated[int, Field(strict=True, ge=0, le=QUEUES_MAX)]
# These five are not strict: as keys of JSON objects they are texts.
QueueId = Annotated[int, Field(ge=0, le=INT32_MAX)]
QueueOffset = Annotated[int, Field(ge=0, le=INT64_MAX)]
Level = Annotated[int, Field(ge=1, le=INT32_MAX)]
WaitQueueId = Annotated[int, Field(ge=-1, le=INT32_MAX)]
"""A delay level, or -1 for the timers (kernel/records/wait_queues.py)."""
Chunk = Annotated[int, Field(ge=0, le=INT64_MAX // CHUNK_OFFSETS)]
StoredName = Annotated[str, AfterValidator(_stored_name)]
TopicAtGroup = Annotated[str, AfterValidator(_topic_at_group)]
Levels = Annotated[LevelTable, BeforeValidator(_levels)]


class _Table(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, frozen=True)


class _Row(_Table):
    model_config = ConfigDict(extra="allow")

    def row(self) -> dict[str, Any]:
        """The fields as they were read, in the order in which RocketMQ writes them."""
        return dict(sorted(self.model_dump(by_alias=True, exclude_unset=True).items()))


class DataVersion(_Table):
    counter: Int64 = 0
    timestamp: Int64 = 0


class TopicRow(_Row):
    topic_name: StoredName
    read_queue_nums: Queues
    write_queue_nums: Queues
    perm: Annotated[int, Field(strict=True, ge=0, le=INT32_MAX)]


class TopicsTable(_Table):
    """topics.json"""

    data_version: DataVersion = DataVersion()
    topic_config_table: dict[str, TopicRow] = {}


class GroupRow(_Row):
    group_name: StoredName
    retry_max_times: Int32 = 16
    retry_queue_nums: Annotated[int, Field(strict=True, ge=-INT32_MAX - 1, le=QUEUES_MAX)] = 1
    consume_enable: bool = True
    consume_message_orderly: bool = False
    rmqlite_retry_policy: Annotated[str, AfterValidator(_policy)] = ""


class GroupsTable(_Table):
    """subscriptionGroup.json"""

    data_version: DataVersion = DataVersion()
    subscription_group_table: dict[str, GroupRow] = {}


class ConsumerOffsetsTable(_Table):
    """consumerOffset.json; a client of RocketMQ's may have committed -1."""

    offset_table: dict[TopicAtGroup, dict[QueueId, Int64]] = {}


class KeyValuesTable(_Table):
    """kvConfig.json"""

    config_table: dict[str, dict[str, str]] = {}


class RequestModeRow(_Table):
    mode: Literal["PULL", "POP"] = "PULL"
    pop_share_queue_num: Int32 = 0


class RequestModesTable(_Table):
    """messageRequestMode.json"""

    message_request_mode_map: dict[StoredName, dict[StoredName, RequestModeRow]] = {}


class DeletedTopicsTable(_Table):
    """deletedTopics.json: the log's end at the deletion, and the next offset by queue id."""

    deleted_topics: dict[StoredName, tuple[Offset, dict[QueueId, Offset]]] = {}


class DelayOffsetsTable(_Table):
    """delayOffset.json"""

    offset_table: dict[Level, Offset] = {}


class LevelsRow(_Table):
    in_force_from: Int64
    message_delay_level: Levels


class LevelsTable(_Table):
    """delayLevels.json; an older rmqlite wrote only tables of broker.conf, without configured."""

    configured: Levels | None = None
    tables: Annotated[tuple[LevelsRow, ...], Field(min_length=1)]

    def history(self) -> LevelHistory:
        entries = [(row.in_force_from, row.message_delay_level) for row in self.tables]
        entries.sort(key=lambda entry: entry[0])
        return LevelHistory(tuple(entries), self.configured or entries[-1][1])


class ClockTable(_Table):
    """clock.json"""

    boot_id: str
    offset_nanos: Int64
    origin: Literal["wall-clock", "store"]
    reached_timestamp: Int64
    uptime_millis: Int64

    @staticmethod
    def uptime(reached_ms: int, offset_ns: int) -> int:
        """uptimeMillis as it follows from the other numbers: a check that finds a changed digit."""
        return reached_ms - offset_ns // 1_000_000

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.uptime_millis != self.uptime(self.reached_timestamp, self.offset_nanos):
            raise ValueError("numbers that fit each other")
        return self


class CompletedBitmap(_Table):
    """All offsets below `below`, and by chunk CHUNK_OFFSETS bits as hexadecimal digits."""

    below: Offset
    above: dict[Chunk, Annotated[str, Field(pattern=f"^[0-9a-f]{{1,{CHUNK_OFFSETS // 4}}}$")]]


def _check_span(tree: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """The tree, checked but unchanged: CompletedOffsets reads it."""
    completed = read(tree)
    if isinstance(completed, CompletedBitmap):
        begin = completed.below
        end = (max(completed.above, default=0) + 1) * CHUNK_OFFSETS
    else:
        begin, end = 0, max((end for _, end in completed), default=0)
        if completed and completed[0][0] == 0:
            begin = completed[0][1]
    if end - begin > COMPLETED_SPAN_MAX:
        raise ValueError(f"queue offsets at most {COMPLETED_SPAN_MAX} behind the first missing one")
    return tree


Completed = Annotated[list[tuple[Offset, Offset]] | CompletedBitmap, WrapValidator(_check_span)]


class PurgeMarkersTable(_Table):
    """deadLetterMarkers.json; an older rmqlite wrote no letter_table."""

    offset_table: dict[StoredName, dict[QueueId, Int64]] = {}
    letter_table: dict[StoredName, dict[QueueId, Completed]] = {}


class ProgressTable(_Table):
    """storeProgress.json; a field that an older rmqlite did not write is None or 0."""

    physical_offset: Offset
    newest_timestamp: Offset
    checksum: Annotated[int, Field(strict=True, ge=0, le=2**32 - 1)] | None = None
    log_file_bytes: Offset = 0
    marked_offset: Offset = 0
    queues: dict[StoredName, dict[QueueId, tuple[Offset, Offset]]]
    completed: dict[WaitQueueId, Completed]
    pending: dict[WaitQueueId, dict[str, Offset]] | None = None
    index: Any = None
    """The key index's own part; the key index checks it."""

    def ranges(self) -> dict[tuple[str, int], tuple[int, int]]:
        """(topic, queue id) -> the first queue offset and the one behind the last."""
        return {
            (topic, queue_id): ends
            for topic, queues in self.queues.items()
            for queue_id, ends in queues.items()
        }


def _json_text(text: object) -> Any:
    """A job stands in its table as a text of JSON."""
    return read_json(text) if isinstance(text, str) else text


class RedriveProgress(BaseModel):
    """A redrive job.  parts: queue id, begin and end of each.  at: a part and a queue offset."""

    job: Annotated[RedriveJob, BeforeValidator(job_tree)]
    parts: tuple[tuple[QueueId, Offset, Offset], ...]
    at: tuple[QueueId, Offset]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.at[0] > len(self.parts):
            raise ValueError(f"the number of a part, at most {len(self.parts)}")
        return self


class RedriveEntry(RedriveProgress):
    """A job in redriveJobs.json."""

    records: tuple[Offset, Offset]
    sent: dict[QueueId, Completed]


class RedriveStep(RedriveProgress):
    """The body of a job's record.

    A run: queue offset, number of dead letters, outcome, and the numbers of two texts, topic and
    why.
    """

    begin: tuple[QueueId, Offset]
    texts: tuple[str, ...]
    runs: tuple[
        tuple[
            Offset,
            Annotated[int, Field(ge=0, le=RUN_LETTERS_MAX)],
            RedriveOutcome,
            QueueId,
            QueueId,
        ],
        ...,
    ]

    @model_validator(mode="after")
    def _check_runs(self) -> Self:
        if self.runs and self.begin[0] >= len(self.parts):
            raise ValueError(f"the number of a part to begin in, below {len(self.parts)}")
        if any(max(topic, why) >= len(self.texts) for *_, topic, why in self.runs):
            raise ValueError(f"numbers of texts, each below {len(self.texts)}")
        return self


class RedriveImported(BaseModel):
    """The body of an import's record: the dead letters of a topic that it has sent, by queue id."""

    imported: StoredName
    queues: dict[QueueId, Completed]


class RedriveJobsTable(_Table):
    """redriveJobs.json; an older rmqlite did not write imported."""

    queue_offset: Offset = 0
    jobs: tuple[Annotated[RedriveEntry, BeforeValidator(_json_text)], ...] = ()
    earlier: dict[StoredName, dict[QueueId, Completed]] = {}
    imported: dict[StoredName, dict[QueueId, Completed]] = {}


def _bulk_job(text: object) -> BulkJob:
    # Separately, because BulkJob's fields have no camelCase names.
    return validated(BulkJob, _json_text(text))


class BulkCall(BaseModel):
    """The fields in the body of a bulk job's record beside those of the job."""

    messages: Offset


class BulkJobsTable(_Table):
    """bulkJobs.json"""

    queue_offset: Offset = 0
    jobs: tuple[Annotated[BulkJob, PlainValidator(_bulk_job)], ...] = ()


LeaseKind = Literal["leased", "done", "visible", "begins", "skips"]
LEASED_SPAN_MAX: Final = 1 << 16
"""How many messages one range of an event may cover."""


def _check_runs(
    runs: tuple[tuple[int, int], ...],
) -> tuple[tuple[int, int], ...]:
    if any(not begin < end <= begin + LEASED_SPAN_MAX for begin, end in runs):
        raise ValueError(f"ranges of 1 to {LEASED_SPAN_MAX} queue offsets")
    return runs


class LeaseEvent(BaseModel):
    """The body of a record of LEASES_TOPIC.  places: topic, queue id, ranges of queue offsets."""

    kind: LeaseKind
    group: StoredName
    places: tuple[
        tuple[
            StoredName,
            QueueId,
            Annotated[tuple[tuple[Offset, Offset], ...], AfterValidator(_check_runs)],
        ],
        ...,
    ]
    lease: Offset = 0
    key: Annotated[str, Field(pattern="^([0-9a-f]{32})?$")] = ""
    topic: str = ""
    client: str = ""
    until: Offset = 0
    renewed: bool = False
    attempt: str = ""
    message_groups: Annotated[tuple[str, ...], Field(alias="messageGroups")] = ()
    counts: bool = False


class LeasedQueueRow(_Table):
    group: StoredName
    topic: StoredName
    queue_id: QueueId
    done: Completed
    failed: dict[QueueOffset, Offset] = {}


class LeasesTable(_Table):
    """leases.json.  queue_offset: from which event on they are read; end: of the table's events."""

    queue_offset: Offset = 0
    end: Offset = 0
    queues: tuple[LeasedQueueRow, ...] = ()


_RULES: Final = {
    "missing": "a value",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "an object",
    "model_type": "an object",
    "dataclass_type": "an object",
    "list_type": "a list",
    "tuple_type": "a list",
}
"""pydantic's name of an error -> the rule, where pydantic's own sentence speaks of Python."""


def validated(shape: type[_T], tree: object) -> _T:
    """The tree as a value of this shape.  Raises WrongValue for the first value that is wrong."""
    kind: Any = shape
    try:
        value: _T = _adapter(kind).validate_python(tree)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        found = "nothing" if wrong["type"] == "missing" else shown(wrong["input"])
        sentence = wrong["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
        rule = _RULES.get(wrong["type"], sentence)
        inner = wrong.get("ctx", {}).get("error")
        if isinstance(inner, WrongValue):
            rule, found = inner.rule, inner.found
        raise WrongValue(_path_in(tree, wrong["loc"]), rule, found) from error
    return value


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def _path_in(tree: Any, loc: tuple[str | int, ...]) -> Path:
    """loc without the parts that name no value of the tree, such as the branches of a union."""
    path: list[str] = []
    for number, part in enumerate(loc):
        try:
            tree = tree[part]
        except (LookupError, TypeError):
            # The last part may be the name of a missing value.
            if number < len(loc) - 1 or not isinstance(tree, Mapping) or part == "[key]":
                continue
        path.append(str(part))
    return tuple(path)
