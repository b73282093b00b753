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
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from rmqlite.kernel.config.values import QUEUES_MAX
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.json_tree import Path, WrongValue, read_json, shown
from rmqlite.kernel.words.levels import LevelHistory, LevelTable, parse_levels
from rmqlite.kernel.words.limits import INT32_MAX, INT64_MAX, PER_SECOND_MAX
from rmqlite.kernel.words.names import STORED_NAME_RULE, is_stored_name
from rmqlite.kernel.words.retry_policy import RetryPolicy

CHUNK_OFFSETS: Final = 8192
"""How many queue offsets one chunk of a CompletedBitmap covers."""
COMPLETED_SPAN_MAX: Final = 1 << 32
"""How far behind the first waiting message of a level a completed one may lie, in offsets."""
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


class TableShape(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, frozen=True)


class _Row(TableShape):
    model_config = ConfigDict(extra="allow")

    def row(self) -> dict[str, Any]:
        """The fields as they were read, in the order in which RocketMQ writes them."""
        return dict(sorted(self.model_dump(by_alias=True, exclude_unset=True).items()))


class DataVersion(TableShape):
    counter: Int64 = 0
    timestamp: Int64 = 0


class TopicRow(_Row):
    topic_name: StoredName
    read_queue_nums: Queues
    write_queue_nums: Queues
    perm: Annotated[int, Field(strict=True, ge=0, le=INT32_MAX)]


class TopicsTable(TableShape):
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
    rmqlite_max_per_second: Annotated[float, Field(ge=0, le=PER_SECOND_MAX)] = 0.0
    rmqlite_burst: Annotated[int, Field(strict=True, ge=0, le=PER_SECOND_MAX)] = 0
    rmqlite_bury_expired: bool = False


class GroupsTable(TableShape):
    """subscriptionGroup.json"""

    data_version: DataVersion = DataVersion()
    subscription_group_table: dict[str, GroupRow] = {}


class ConsumerOffsetsTable(TableShape):
    """consumerOffset.json; a client of RocketMQ's may have committed -1."""

    offset_table: dict[TopicAtGroup, dict[QueueId, Int64]] = {}


class DeletedTopicsTable(TableShape):
    """deletedTopics.json: the log's end at the deletion, and the next offset by queue id."""

    deleted_topics: dict[StoredName, tuple[Offset, dict[QueueId, Offset]]] = {}


class TableChange(TableShape):
    """The body of a record of TABLES_TOPIC.  rows: the names that lead to a value, and that."""

    table: Annotated[str, Field(pattern=r"^[A-Za-z]{1,64}\.json$")]
    rows: list[tuple[Annotated[tuple[str, ...], Field(min_length=1)], Any]]


class DelayOffsetsTable(TableShape):
    """delayOffset.json"""

    offset_table: dict[Level, Offset] = {}


class LevelsRow(TableShape):
    in_force_from: Int64
    message_delay_level: Levels


class LevelsTable(TableShape):
    """delayLevels.json; an older rmqlite wrote only tables of broker.conf, without configured."""

    configured: Levels | None = None
    tables: Annotated[tuple[LevelsRow, ...], Field(min_length=1)]

    def history(self) -> LevelHistory:
        entries = [(row.in_force_from, row.message_delay_level) for row in self.tables]
        entries.sort(key=lambda entry: entry[0])
        return LevelHistory(tuple(entries), self.configured or entries[-1][1])


class ClockTable(TableShape):
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


class CompletedBitmap(TableShape):
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


class ProgressTable(TableShape):
    """storeProgress.json; a field that an older rmqlite did not write is None or 0."""

    physical_offset: Offset
    newest_timestamp: Offset
    checksum: Annotated[int, Field(strict=True, ge=0, le=2**32 - 1)] | None = None
    log_file_bytes: Offset = 0
    marked_offset: Offset = 0
    queues: dict[StoredName, dict[QueueId, tuple[Offset, Offset]]]
    completed: dict[WaitQueueId, Completed]
    pending: dict[WaitQueueId, dict[str, Offset]] | None = None
    run_ends: dict[WaitQueueId, list[Offset]] | None = None
    """Of each level; None: also whether all times are deliver times is still to be found out."""
    tables: dict[str, Offset] = {}
    """The physical offset up to which the file of each logged table said it was true."""
    index: Any = None
    """The key index's own part; the key index checks it."""

    def ranges(self) -> dict[tuple[str, int], tuple[int, int]]:
        """(topic, queue id) -> the first queue offset and the one behind the last."""
        return {
            (topic, queue_id): ends
            for topic, queues in self.queues.items()
            for queue_id, ends in queues.items()
        }


def json_text(text: object) -> Any:
    """A job stands in its table as a text of JSON."""
    return read_json(text) if isinstance(text, str) else text


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
