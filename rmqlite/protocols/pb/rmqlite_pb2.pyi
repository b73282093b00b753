from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PullStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FOUND: _ClassVar[PullStatus]
    NO_NEW_MESSAGE: _ClassVar[PullStatus]
    NO_MATCHED_MESSAGE: _ClassVar[PullStatus]
    OFFSET_MOVED: _ClassVar[PullStatus]

class MessageState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STORED: _ClassVar[MessageState]
    SCHEDULED: _ClassVar[MessageState]
    RETRY: _ClassVar[MessageState]
    DEAD: _ClassVar[MessageState]
    CANCELLED: _ClassVar[MessageState]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACK: _ClassVar[Outcome]
    HOLD: _ClassVar[Outcome]
    FAIL: _ClassVar[Outcome]
    GIVE_BACK: _ClassVar[Outcome]
    BURY: _ClassVar[Outcome]

class ScheduleAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CANCEL: _ClassVar[ScheduleAction]
    FIRE: _ClassVar[ScheduleAction]
    RESCHEDULE: _ClassVar[ScheduleAction]
    ACTION_BURY: _ClassVar[ScheduleAction]

class ChangeOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DONE: _ClassVar[ChangeOutcome]
    NOT_FOUND: _ClassVar[ChangeOutcome]
    ALREADY_DELIVERED: _ClassVar[ChangeOutcome]
    ALREADY_CANCELLED: _ClassVar[ChangeOutcome]
    UNDELIVERABLE: _ClassVar[ChangeOutcome]

class EventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SENT: _ClassVar[EventKind]
    EVENT_SCHEDULED: _ClassVar[EventKind]
    DELIVERED: _ClassVar[EventKind]
    FAILED: _ClassVar[EventKind]
    RETRIED: _ClassVar[EventKind]
    EVENT_DEAD: _ClassVar[EventKind]
    EVENT_CANCELLED: _ClassVar[EventKind]
    FIRED: _ClassVar[EventKind]
    RESCHEDULED: _ClassVar[EventKind]
    EVENT_UNDELIVERABLE: _ClassVar[EventKind]
    REDRIVEN: _ClassVar[EventKind]

class RedriveOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REDRIVE_SENT: _ClassVar[RedriveOutcome]
    REDRIVE_ALREADY: _ClassVar[RedriveOutcome]
    REDRIVE_REFUSED: _ClassVar[RedriveOutcome]

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_RUNNING: _ClassVar[JobState]
    JOB_PAUSED: _ClassVar[JobState]
    JOB_DONE: _ClassVar[JobState]
    JOB_CANCELLED: _ClassVar[JobState]

class JobAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_PAUSE: _ClassVar[JobAction]
    JOB_RESUME: _ClassVar[JobAction]
    JOB_CANCEL: _ClassVar[JobAction]
    JOB_SET_RATE: _ClassVar[JobAction]

class BulkMatch(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXACT: _ClassVar[BulkMatch]
    LONGER: _ClassVar[BulkMatch]
FOUND: PullStatus
NO_NEW_MESSAGE: PullStatus
NO_MATCHED_MESSAGE: PullStatus
OFFSET_MOVED: PullStatus
STORED: MessageState
SCHEDULED: MessageState
RETRY: MessageState
DEAD: MessageState
CANCELLED: MessageState
ACK: Outcome
HOLD: Outcome
FAIL: Outcome
GIVE_BACK: Outcome
BURY: Outcome
CANCEL: ScheduleAction
FIRE: ScheduleAction
RESCHEDULE: ScheduleAction
ACTION_BURY: ScheduleAction
DONE: ChangeOutcome
NOT_FOUND: ChangeOutcome
ALREADY_DELIVERED: ChangeOutcome
ALREADY_CANCELLED: ChangeOutcome
UNDELIVERABLE: ChangeOutcome
SENT: EventKind
EVENT_SCHEDULED: EventKind
DELIVERED: EventKind
FAILED: EventKind
RETRIED: EventKind
EVENT_DEAD: EventKind
EVENT_CANCELLED: EventKind
FIRED: EventKind
RESCHEDULED: EventKind
EVENT_UNDELIVERABLE: EventKind
REDRIVEN: EventKind
REDRIVE_SENT: RedriveOutcome
REDRIVE_ALREADY: RedriveOutcome
REDRIVE_REFUSED: RedriveOutcome
JOB_RUNNING: JobState
JOB_PAUSED: JobState
JOB_DONE: JobState
JOB_CANCELLED: JobState
JOB_PAUSE: JobAction
JOB_RESUME: JobAction
JOB_CANCEL: JobAction
JOB_SET_RATE: JobAction
EXACT: BulkMatch
LONGER: BulkMatch

class Error(_message.Message):
    __slots__ = ("code", "response_code", "sentence", "field", "value", "rule", "can_retry")
    CODE_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_CODE_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    CAN_RETRY_FIELD_NUMBER: _ClassVar[int]
    code: str
    response_code: int
    sentence: str
    field: str
    value: str
    rule: str
    can_retry: bool
    def __init__(self, code: _Optional[str] = ..., response_code: _Optional[int] = ..., sentence: _Optional[str] = ..., field: _Optional[str] = ..., value: _Optional[str] = ..., rule: _Optional[str] = ..., can_retry: bool = ...) -> None: ...

class SendRequest(_message.Message):
    __slots__ = ("producer_group", "queue_id", "born_at_ms", "batches")
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BORN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    queue_id: int
    born_at_ms: int
    batches: _containers.RepeatedCompositeFieldContainer[EncodedBatch]
    def __init__(self, producer_group: _Optional[str] = ..., queue_id: _Optional[int] = ..., born_at_ms: _Optional[int] = ..., batches: _Optional[_Iterable[_Union[EncodedBatch, _Mapping]]] = ...) -> None: ...

class EncodedBatch(_message.Message):
    __slots__ = ("topic", "delay", "messages")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    delay: str
    messages: bytes
    def __init__(self, topic: _Optional[str] = ..., delay: _Optional[str] = ..., messages: _Optional[bytes] = ...) -> None: ...

class SendResponse(_message.Message):
    __slots__ = ("queue_ids", "queue_offsets", "physical_offsets", "deliver_at_ms", "store_host", "duplicates")
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    STORE_HOST_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    queue_ids: _containers.RepeatedScalarFieldContainer[int]
    queue_offsets: _containers.RepeatedScalarFieldContainer[int]
    physical_offsets: _containers.RepeatedScalarFieldContainer[int]
    deliver_at_ms: _containers.RepeatedScalarFieldContainer[int]
    store_host: str
    duplicates: _containers.RepeatedCompositeFieldContainer[Duplicate]
    def __init__(self, queue_ids: _Optional[_Iterable[int]] = ..., queue_offsets: _Optional[_Iterable[int]] = ..., physical_offsets: _Optional[_Iterable[int]] = ..., deliver_at_ms: _Optional[_Iterable[int]] = ..., store_host: _Optional[str] = ..., duplicates: _Optional[_Iterable[_Union[Duplicate, _Mapping]]] = ...) -> None: ...

class Duplicate(_message.Message):
    __slots__ = ("position", "queue_id", "message_id")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    position: int
    queue_id: int
    message_id: str
    def __init__(self, position: _Optional[int] = ..., queue_id: _Optional[int] = ..., message_id: _Optional[str] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("group", "topic", "queue_id", "queue_offset", "expression", "max_messages", "max_bytes", "wait_ms", "sql", "as_records")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    AS_RECORDS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_id: int
    queue_offset: int
    expression: str
    max_messages: int
    max_bytes: int
    wait_ms: int
    sql: str
    as_records: bool
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., expression: _Optional[str] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., wait_ms: _Optional[int] = ..., sql: _Optional[str] = ..., as_records: bool = ...) -> None: ...

class PullResponse(_message.Message):
    __slots__ = ("status", "next_offset", "min_offset", "max_offset", "records")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: bytes
    def __init__(self, status: _Optional[_Union[PullStatus, str]] = ..., next_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., records: _Optional[bytes] = ...) -> None: ...

class StoredMessage(_message.Message):
    __slots__ = ("topic", "queue_id", "queue_offset", "physical_offset", "store_size", "body", "properties", "flag", "sys_flag", "born_timestamp_ms", "born_host", "store_timestamp_ms", "store_host", "reconsume_times", "prepared_transaction_offset")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORE_SIZE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    SYS_FLAG_FIELD_NUMBER: _ClassVar[int]
    BORN_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    BORN_HOST_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    STORE_HOST_FIELD_NUMBER: _ClassVar[int]
    RECONSUME_TIMES_FIELD_NUMBER: _ClassVar[int]
    PREPARED_TRANSACTION_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    body: bytes
    properties: _containers.ScalarMap[str, str]
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., physical_offset: _Optional[int] = ..., store_size: _Optional[int] = ..., body: _Optional[bytes] = ..., properties: _Optional[_Mapping[str, str]] = ..., flag: _Optional[int] = ..., sys_flag: _Optional[int] = ..., born_timestamp_ms: _Optional[int] = ..., born_host: _Optional[str] = ..., store_timestamp_ms: _Optional[int] = ..., store_host: _Optional[str] = ..., reconsume_times: _Optional[int] = ..., prepared_transaction_offset: _Optional[int] = ...) -> None: ...

class SendBackRequest(_message.Message):
    __slots__ = ("group", "physical_offset", "delay_level", "reason", "max_reconsume_times", "delay_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MAX_RECONSUME_TIMES_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    physical_offset: int
    delay_level: int
    reason: str
    max_reconsume_times: int
    delay_ms: int
    def __init__(self, group: _Optional[str] = ..., physical_offset: _Optional[int] = ..., delay_level: _Optional[int] = ..., reason: _Optional[str] = ..., max_reconsume_times: _Optional[int] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class SendBackResponse(_message.Message):
    __slots__ = ("topic", "reconsume_times", "delay_level", "deliver_at_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECONSUME_TIMES_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    reconsume_times: int
    delay_level: int
    deliver_at_ms: int
    def __init__(self, topic: _Optional[str] = ..., reconsume_times: _Optional[int] = ..., delay_level: _Optional[int] = ..., deliver_at_ms: _Optional[int] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("topic", "queue_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ...) -> None: ...

class QueueOffset(_message.Message):
    __slots__ = ("topic", "queue_id", "queue_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    queue_offset: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ...) -> None: ...

class QueueRange(_message.Message):
    __slots__ = ("topic", "queue_id", "min_offset", "max_offset", "newest_timestamp_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEWEST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    newest_timestamp_ms: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., newest_timestamp_ms: _Optional[int] = ...) -> None: ...

class QueryOffsetsRequest(_message.Message):
    __slots__ = ("group", "queues")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    group: str
    queues: _containers.RepeatedCompositeFieldContainer[Queue]
    def __init__(self, group: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[Queue, _Mapping]]] = ...) -> None: ...

class QueryOffsetsResponse(_message.Message):
    __slots__ = ("offsets",)
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[QueueOffset]
    def __init__(self, offsets: _Optional[_Iterable[_Union[QueueOffset, _Mapping]]] = ...) -> None: ...

class CommitOffsetsRequest(_message.Message):
    __slots__ = ("group", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[QueueOffset]
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[QueueOffset, _Mapping]]] = ...) -> None: ...

class CommitOffsetsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SearchOffsetRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "timestamp_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    timestamp_ms: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class SearchOffsetResponse(_message.Message):
    __slots__ = ("queue_offset",)
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    queue_offset: int
    def __init__(self, queue_offset: _Optional[int] = ...) -> None: ...

class GetQueueRangesRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetQueueRangesResponse(_message.Message):
    __slots__ = ("ranges",)
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[QueueRange]
    def __init__(self, ranges: _Optional[_Iterable[_Union[QueueRange, _Mapping]]] = ...) -> None: ...

class QueryMessagesRequest(_message.Message):
    __slots__ = ("topic", "key", "by_message_id", "begin_ms", "end_ms", "max_messages", "history")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    BY_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    BEGIN_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: str
    by_message_id: bool
    begin_ms: int
    end_ms: int
    max_messages: int
    history: bool
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[str] = ..., by_message_id: bool = ..., begin_ms: _Optional[int] = ..., end_ms: _Optional[int] = ..., max_messages: _Optional[int] = ..., history: bool = ...) -> None: ...

class QueryMessagesResponse(_message.Message):
    __slots__ = ("messages", "is_cut")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    IS_CUT_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[FoundMessage]
    is_cut: bool
    def __init__(self, messages: _Optional[_Iterable[_Union[FoundMessage, _Mapping]]] = ..., is_cut: bool = ...) -> None: ...

class GetMessageRequest(_message.Message):
    __slots__ = ("offset_message_id",)
    OFFSET_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    offset_message_id: str
    def __init__(self, offset_message_id: _Optional[str] = ...) -> None: ...

class GetMessageResponse(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: FoundMessage
    def __init__(self, message: _Optional[_Union[FoundMessage, _Mapping]] = ...) -> None: ...

class FoundMessage(_message.Message):
    __slots__ = ("message", "state", "deliver_at_ms", "is_pending", "ended")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    IS_PENDING_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    message: StoredMessage
    state: MessageState
    deliver_at_ms: int
    is_pending: bool
    ended: str
    def __init__(self, message: _Optional[_Union[StoredMessage, _Mapping]] = ..., state: _Optional[_Union[MessageState, str]] = ..., deliver_at_ms: _Optional[int] = ..., is_pending: bool = ..., ended: _Optional[str] = ...) -> None: ...

class GetRouteRequest(_message.Message):
    __slots__ = ("topic", "create")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    create: bool
    def __init__(self, topic: _Optional[str] = ..., create: bool = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("topic", "read_queues", "write_queues", "perm")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUES_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUES_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    topic: str
    read_queues: int
    write_queues: int
    perm: int
    def __init__(self, topic: _Optional[str] = ..., read_queues: _Optional[int] = ..., write_queues: _Optional[int] = ..., perm: _Optional[int] = ...) -> None: ...

class GetRouteResponse(_message.Message):
    __slots__ = ("topic", "broker_name", "message_delay_level", "max_message_bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    broker_name: str
    message_delay_level: str
    max_message_bytes: int
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., broker_name: _Optional[str] = ..., message_delay_level: _Optional[str] = ..., max_message_bytes: _Optional[int] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("topic", "expression", "sql")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    topic: str
    expression: str
    sql: str
    def __init__(self, topic: _Optional[str] = ..., expression: _Optional[str] = ..., sql: _Optional[str] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("group", "client_id", "subscriptions", "known_epoch", "wait_ms", "is_broadcasting")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    IS_BROADCASTING_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    known_epoch: int
    wait_ms: int
    is_broadcasting: bool
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ..., subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ..., known_epoch: _Optional[int] = ..., wait_ms: _Optional[int] = ..., is_broadcasting: bool = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("epoch", "queues", "members")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    queues: _containers.RepeatedCompositeFieldContainer[Queue]
    members: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, epoch: _Optional[int] = ..., queues: _Optional[_Iterable[_Union[Queue, _Mapping]]] = ..., members: _Optional[_Iterable[str]] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("group", "client_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ...) -> None: ...

class LeaveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReceiveRequest(_message.Message):
    __slots__ = ("group", "client_id", "subscriptions", "max_messages", "invisible_ms", "wait_ms", "attempt_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    max_messages: int
    invisible_ms: int
    wait_ms: int
    attempt_id: str
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ..., subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ..., max_messages: _Optional[int] = ..., invisible_ms: _Optional[int] = ..., wait_ms: _Optional[int] = ..., attempt_id: _Optional[str] = ...) -> None: ...

class ReceiveResponse(_message.Message):
    __slots__ = ("topic", "records", "handles", "attempts")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    records: bytes
    handles: _containers.RepeatedScalarFieldContainer[str]
    attempts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., records: _Optional[bytes] = ..., handles: _Optional[_Iterable[str]] = ..., attempts: _Optional[_Iterable[int]] = ...) -> None: ...

class Settlement(_message.Message):
    __slots__ = ("topic", "handle", "outcome", "delay_ms", "reason")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic: str
    handle: str
    outcome: Outcome
    delay_ms: int
    reason: str
    def __init__(self, topic: _Optional[str] = ..., handle: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., delay_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class SettleRequest(_message.Message):
    __slots__ = ("group", "settlements")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SETTLEMENTS_FIELD_NUMBER: _ClassVar[int]
    group: str
    settlements: _containers.RepeatedCompositeFieldContainer[Settlement]
    def __init__(self, group: _Optional[str] = ..., settlements: _Optional[_Iterable[_Union[Settlement, _Mapping]]] = ...) -> None: ...

class SettleResponse(_message.Message):
    __slots__ = ("handles",)
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    handles: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, handles: _Optional[_Iterable[str]] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("group", "max_reconsume_times", "retry_queues", "can_consume", "retry_policy", "orderly", "max_per_second", "burst", "bury_expired")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MAX_RECONSUME_TIMES_FIELD_NUMBER: _ClassVar[int]
    RETRY_QUEUES_FIELD_NUMBER: _ClassVar[int]
    CAN_CONSUME_FIELD_NUMBER: _ClassVar[int]
    RETRY_POLICY_FIELD_NUMBER: _ClassVar[int]
    ORDERLY_FIELD_NUMBER: _ClassVar[int]
    MAX_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    BURY_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    group: str
    max_reconsume_times: int
    retry_queues: int
    can_consume: bool
    retry_policy: str
    orderly: bool
    max_per_second: float
    burst: int
    bury_expired: bool
    def __init__(self, group: _Optional[str] = ..., max_reconsume_times: _Optional[int] = ..., retry_queues: _Optional[int] = ..., can_consume: bool = ..., retry_policy: _Optional[str] = ..., orderly: bool = ..., max_per_second: _Optional[float] = ..., burst: _Optional[int] = ..., bury_expired: bool = ...) -> None: ...

class PreviewTopicDeletionRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class TopicReader(_message.Message):
    __slots__ = ("group", "unread", "members")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    UNREAD_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    group: str
    unread: int
    members: int
    def __init__(self, group: _Optional[str] = ..., unread: _Optional[int] = ..., members: _Optional[int] = ...) -> None: ...

class PreviewTopicDeletionResponse(_message.Message):
    __slots__ = ("topic", "messages", "unread", "waiting", "readers")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    UNREAD_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    READERS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: int
    unread: int
    waiting: int
    readers: _containers.RepeatedCompositeFieldContainer[TopicReader]
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[int] = ..., unread: _Optional[int] = ..., waiting: _Optional[int] = ..., readers: _Optional[_Iterable[_Union[TopicReader, _Mapping]]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    def __init__(self, groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ...) -> None: ...

class DescribeGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("client_id", "subscriptions", "last_seen_ms")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    last_seen_ms: int
    def __init__(self, client_id: _Optional[str] = ..., subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ..., last_seen_ms: _Optional[int] = ...) -> None: ...

class QueueProgress(_message.Message):
    __slots__ = ("topic", "queue_id", "min_offset", "max_offset", "committed_offset", "client_id", "in_flight", "has_no_lag", "oldest_timestamp_ms", "progressed_at_ms", "silent_since_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    HAS_NO_LAG_FIELD_NUMBER: _ClassVar[int]
    OLDEST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    PROGRESSED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SILENT_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    committed_offset: int
    client_id: str
    in_flight: int
    has_no_lag: bool
    oldest_timestamp_ms: int
    progressed_at_ms: int
    silent_since_ms: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., committed_offset: _Optional[int] = ..., client_id: _Optional[str] = ..., in_flight: _Optional[int] = ..., has_no_lag: bool = ..., oldest_timestamp_ms: _Optional[int] = ..., progressed_at_ms: _Optional[int] = ..., silent_since_ms: _Optional[int] = ...) -> None: ...

class DescribeGroupResponse(_message.Message):
    __slots__ = ("info", "members", "progress", "is_broadcasting", "now_ms", "held_back_at_ms", "expired")
    INFO_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    IS_BROADCASTING_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    HELD_BACK_AT_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    info: Group
    members: _containers.RepeatedCompositeFieldContainer[Member]
    progress: _containers.RepeatedCompositeFieldContainer[QueueProgress]
    is_broadcasting: bool
    now_ms: int
    held_back_at_ms: int
    expired: int
    def __init__(self, info: _Optional[_Union[Group, _Mapping]] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., progress: _Optional[_Iterable[_Union[QueueProgress, _Mapping]]] = ..., is_broadcasting: bool = ..., now_ms: _Optional[int] = ..., held_back_at_ms: _Optional[int] = ..., expired: _Optional[int] = ...) -> None: ...

class GetBrokerStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LevelStatus(_message.Message):
    __slots__ = ("level", "delay", "pending", "next_due_ms", "delivered", "lateness_p50_ms", "lateness_p99_ms", "lateness_max_ms")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    NEXT_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    LATENESS_P50_MS_FIELD_NUMBER: _ClassVar[int]
    LATENESS_P99_MS_FIELD_NUMBER: _ClassVar[int]
    LATENESS_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    level: int
    delay: str
    pending: int
    next_due_ms: int
    delivered: int
    lateness_p50_ms: int
    lateness_p99_ms: int
    lateness_max_ms: int
    def __init__(self, level: _Optional[int] = ..., delay: _Optional[str] = ..., pending: _Optional[int] = ..., next_due_ms: _Optional[int] = ..., delivered: _Optional[int] = ..., lateness_p50_ms: _Optional[int] = ..., lateness_p99_ms: _Optional[int] = ..., lateness_max_ms: _Optional[int] = ...) -> None: ...

class GetBrokerStatusResponse(_message.Message):
    __slots__ = ("version", "broker_name", "now_ms", "started_at_ms", "log_min_offset", "log_max_offset", "sent", "delivered", "retried", "dead", "parked_polls", "levels", "disk_used_ratio", "is_disk_full", "pinned_by_level", "pinned_deliver_at_ms", "pinned_physical_offset", "pinned_bytes", "cancelled", "fired", "rescheduled", "undeliverable", "warnings", "name_servers", "registered", "disk_bytes", "archives", "replication")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LOG_MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    RETRIED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    PARKED_POLLS_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    DISK_USED_RATIO_FIELD_NUMBER: _ClassVar[int]
    IS_DISK_FULL_FIELD_NUMBER: _ClassVar[int]
    PINNED_BY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    PINNED_DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PINNED_PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PINNED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    FIRED_FIELD_NUMBER: _ClassVar[int]
    RESCHEDULED_FIELD_NUMBER: _ClassVar[int]
    UNDELIVERABLE_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    NAME_SERVERS_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    ARCHIVES_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FIELD_NUMBER: _ClassVar[int]
    version: str
    broker_name: str
    now_ms: int
    started_at_ms: int
    log_min_offset: int
    log_max_offset: int
    sent: int
    delivered: int
    retried: int
    dead: int
    parked_polls: int
    levels: _containers.RepeatedCompositeFieldContainer[LevelStatus]
    disk_used_ratio: float
    is_disk_full: bool
    pinned_by_level: int
    pinned_deliver_at_ms: int
    pinned_physical_offset: int
    pinned_bytes: int
    cancelled: int
    fired: int
    rescheduled: int
    undeliverable: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    name_servers: _containers.RepeatedCompositeFieldContainer[NameServerStatus]
    registered: _containers.RepeatedCompositeFieldContainer[RegisteredBroker]
    disk_bytes: int
    archives: _containers.RepeatedCompositeFieldContainer[ArchiveStatus]
    replication: _containers.RepeatedCompositeFieldContainer[ReplicationStatus]
    def __init__(self, version: _Optional[str] = ..., broker_name: _Optional[str] = ..., now_ms: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., log_min_offset: _Optional[int] = ..., log_max_offset: _Optional[int] = ..., sent: _Optional[int] = ..., delivered: _Optional[int] = ..., retried: _Optional[int] = ..., dead: _Optional[int] = ..., parked_polls: _Optional[int] = ..., levels: _Optional[_Iterable[_Union[LevelStatus, _Mapping]]] = ..., disk_used_ratio: _Optional[float] = ..., is_disk_full: bool = ..., pinned_by_level: _Optional[int] = ..., pinned_deliver_at_ms: _Optional[int] = ..., pinned_physical_offset: _Optional[int] = ..., pinned_bytes: _Optional[int] = ..., cancelled: _Optional[int] = ..., fired: _Optional[int] = ..., rescheduled: _Optional[int] = ..., undeliverable: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ..., name_servers: _Optional[_Iterable[_Union[NameServerStatus, _Mapping]]] = ..., registered: _Optional[_Iterable[_Union[RegisteredBroker, _Mapping]]] = ..., disk_bytes: _Optional[int] = ..., archives: _Optional[_Iterable[_Union[ArchiveStatus, _Mapping]]] = ..., replication: _Optional[_Iterable[_Union[ReplicationStatus, _Mapping]]] = ...) -> None: ...

class ReplicationStatus(_message.Message):
    __slots__ = ("role", "term", "peer", "is_connected", "end", "behind_bytes", "behind_since_ms", "alone_since_ms", "trouble", "authority", "unheard_since_ms", "authority_master", "lease_left_ms", "in_sync")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    IS_CONNECTED_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    BEHIND_BYTES_FIELD_NUMBER: _ClassVar[int]
    BEHIND_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    ALONE_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    UNHEARD_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_MASTER_FIELD_NUMBER: _ClassVar[int]
    LEASE_LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    role: str
    term: int
    peer: str
    is_connected: bool
    end: int
    behind_bytes: int
    behind_since_ms: int
    alone_since_ms: int
    trouble: str
    authority: str
    unheard_since_ms: int
    authority_master: str
    lease_left_ms: int
    in_sync: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, role: _Optional[str] = ..., term: _Optional[int] = ..., peer: _Optional[str] = ..., is_connected: bool = ..., end: _Optional[int] = ..., behind_bytes: _Optional[int] = ..., behind_since_ms: _Optional[int] = ..., alone_since_ms: _Optional[int] = ..., trouble: _Optional[str] = ..., authority: _Optional[str] = ..., unheard_since_ms: _Optional[int] = ..., authority_master: _Optional[str] = ..., lease_left_ms: _Optional[int] = ..., in_sync: _Optional[_Iterable[str]] = ...) -> None: ...

class PromoteRequest(_message.Message):
    __slots__ = ("force",)
    FORCE_FIELD_NUMBER: _ClassVar[int]
    force: bool
    def __init__(self, force: bool = ...) -> None: ...

class PromoteResponse(_message.Message):
    __slots__ = ("lacking_bytes",)
    LACKING_BYTES_FIELD_NUMBER: _ClassVar[int]
    lacking_bytes: int
    def __init__(self, lacking_bytes: _Optional[int] = ...) -> None: ...

class SwitchRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SwitchResponse(_message.Message):
    __slots__ = ("master",)
    MASTER_FIELD_NUMBER: _ClassVar[int]
    master: str
    def __init__(self, master: _Optional[str] = ...) -> None: ...

class ReplicationTerm(_message.Message):
    __slots__ = ("number", "start", "id")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    number: int
    start: int
    id: str
    def __init__(self, number: _Optional[int] = ..., start: _Optional[int] = ..., id: _Optional[str] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("address", "end", "terms", "log_id", "log_file_bytes", "synced_end", "has_taken_over", "url")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SYNCED_END_FIELD_NUMBER: _ClassVar[int]
    HAS_TAKEN_OVER_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    address: str
    end: int
    terms: _containers.RepeatedCompositeFieldContainer[ReplicationTerm]
    log_id: str
    log_file_bytes: int
    synced_end: int
    has_taken_over: bool
    url: str
    def __init__(self, address: _Optional[str] = ..., end: _Optional[int] = ..., terms: _Optional[_Iterable[_Union[ReplicationTerm, _Mapping]]] = ..., log_id: _Optional[str] = ..., log_file_bytes: _Optional[int] = ..., synced_end: _Optional[int] = ..., has_taken_over: bool = ..., url: _Optional[str] = ...) -> None: ...

class FollowResponse(_message.Message):
    __slots__ = ("offset", "data", "crc", "term", "synced_end", "now_ms", "min_offset", "offsets", "hands_over", "log_id", "log_file_bytes", "is_alone")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    SYNCED_END_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    HANDS_OVER_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_ALONE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    crc: int
    term: int
    synced_end: int
    now_ms: int
    min_offset: int
    offsets: bytes
    hands_over: bool
    log_id: str
    log_file_bytes: int
    is_alone: bool
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., crc: _Optional[int] = ..., term: _Optional[int] = ..., synced_end: _Optional[int] = ..., now_ms: _Optional[int] = ..., min_offset: _Optional[int] = ..., offsets: _Optional[bytes] = ..., hands_over: bool = ..., log_id: _Optional[str] = ..., log_file_bytes: _Optional[int] = ..., is_alone: bool = ...) -> None: ...

class ArchiveStatus(_message.Message):
    __slots__ = ("url", "owner", "term", "end", "archived_at_ms", "behind_bytes", "behind_since_ms", "lost_bytes", "trouble")
    URL_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_BYTES_FIELD_NUMBER: _ClassVar[int]
    BEHIND_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    LOST_BYTES_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    url: str
    owner: str
    term: int
    end: int
    archived_at_ms: int
    behind_bytes: int
    behind_since_ms: int
    lost_bytes: int
    trouble: str
    def __init__(self, url: _Optional[str] = ..., owner: _Optional[str] = ..., term: _Optional[int] = ..., end: _Optional[int] = ..., archived_at_ms: _Optional[int] = ..., behind_bytes: _Optional[int] = ..., behind_since_ms: _Optional[int] = ..., lost_bytes: _Optional[int] = ..., trouble: _Optional[str] = ...) -> None: ...

class RegisteredBroker(_message.Message):
    __slots__ = ("broker_name", "broker_id", "address", "cluster", "topics", "registered_at_ms")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    broker_id: int
    address: str
    cluster: str
    topics: int
    registered_at_ms: int
    def __init__(self, broker_name: _Optional[str] = ..., broker_id: _Optional[int] = ..., address: _Optional[str] = ..., cluster: _Optional[str] = ..., topics: _Optional[int] = ..., registered_at_ms: _Optional[int] = ...) -> None: ...

class NameServerStatus(_message.Message):
    __slots__ = ("address", "is_registered", "since_ms", "registered_at_ms", "topics", "reason")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IS_REGISTERED_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    address: str
    is_registered: bool
    since_ms: int
    registered_at_ms: int
    topics: int
    reason: str
    def __init__(self, address: _Optional[str] = ..., is_registered: bool = ..., since_ms: _Optional[int] = ..., registered_at_ms: _Optional[int] = ..., topics: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class PendingFilter(_message.Message):
    __slots__ = ("levels", "topic", "due_from_ms", "due_until_ms", "key", "ids", "origin_topic", "tag", "reason", "failure_kind")
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DUE_FROM_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_TOPIC_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FAILURE_KIND_FIELD_NUMBER: _ClassVar[int]
    levels: _containers.RepeatedScalarFieldContainer[int]
    topic: str
    due_from_ms: int
    due_until_ms: int
    key: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    origin_topic: str
    tag: str
    reason: str
    failure_kind: str
    def __init__(self, levels: _Optional[_Iterable[int]] = ..., topic: _Optional[str] = ..., due_from_ms: _Optional[int] = ..., due_until_ms: _Optional[int] = ..., key: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., origin_topic: _Optional[str] = ..., tag: _Optional[str] = ..., reason: _Optional[str] = ..., failure_kind: _Optional[str] = ...) -> None: ...

class ListPendingRequest(_message.Message):
    __slots__ = ("filter", "cursor", "max_messages")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    filter: PendingFilter
    cursor: str
    max_messages: int
    def __init__(self, filter: _Optional[_Union[PendingFilter, _Mapping]] = ..., cursor: _Optional[str] = ..., max_messages: _Optional[int] = ...) -> None: ...

class PendingMessage(_message.Message):
    __slots__ = ("level", "queue_offset", "deliver_at_ms", "topic", "queue_id", "message_id", "tags", "keys", "born_timestamp_ms", "store_timestamp_ms", "physical_offset", "store_size", "body_size", "reconsume_times", "store_host")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    BORN_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORE_SIZE_FIELD_NUMBER: _ClassVar[int]
    BODY_SIZE_FIELD_NUMBER: _ClassVar[int]
    RECONSUME_TIMES_FIELD_NUMBER: _ClassVar[int]
    STORE_HOST_FIELD_NUMBER: _ClassVar[int]
    level: int
    queue_offset: int
    deliver_at_ms: int
    topic: str
    queue_id: int
    message_id: str
    tags: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    born_timestamp_ms: int
    store_timestamp_ms: int
    physical_offset: int
    store_size: int
    body_size: int
    reconsume_times: int
    store_host: str
    def __init__(self, level: _Optional[int] = ..., queue_offset: _Optional[int] = ..., deliver_at_ms: _Optional[int] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., message_id: _Optional[str] = ..., tags: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., born_timestamp_ms: _Optional[int] = ..., store_timestamp_ms: _Optional[int] = ..., physical_offset: _Optional[int] = ..., store_size: _Optional[int] = ..., body_size: _Optional[int] = ..., reconsume_times: _Optional[int] = ..., store_host: _Optional[str] = ...) -> None: ...

class ListPendingResponse(_message.Message):
    __slots__ = ("messages", "cursor")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[PendingMessage]
    cursor: str
    def __init__(self, messages: _Optional[_Iterable[_Union[PendingMessage, _Mapping]]] = ..., cursor: _Optional[str] = ...) -> None: ...

class CountPendingRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PendingCount(_message.Message):
    __slots__ = ("level", "topic", "pending")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    level: int
    topic: str
    pending: int
    def __init__(self, level: _Optional[int] = ..., topic: _Optional[str] = ..., pending: _Optional[int] = ...) -> None: ...

class CountPendingResponse(_message.Message):
    __slots__ = ("counts",)
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    counts: _containers.RepeatedCompositeFieldContainer[PendingCount]
    def __init__(self, counts: _Optional[_Iterable[_Union[PendingCount, _Mapping]]] = ...) -> None: ...

class GetTimelineRequest(_message.Message):
    __slots__ = ("bounds_ms", "levels")
    BOUNDS_MS_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    bounds_ms: _containers.RepeatedScalarFieldContainer[int]
    levels: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, bounds_ms: _Optional[_Iterable[int]] = ..., levels: _Optional[_Iterable[int]] = ...) -> None: ...

class LevelTimeline(_message.Message):
    __slots__ = ("level", "counts")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    level: int
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, level: _Optional[int] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...

class GetTimelineResponse(_message.Message):
    __slots__ = ("levels",)
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    levels: _containers.RepeatedCompositeFieldContainer[LevelTimeline]
    def __init__(self, levels: _Optional[_Iterable[_Union[LevelTimeline, _Mapping]]] = ...) -> None: ...

class ChangeByIdsRequest(_message.Message):
    __slots__ = ("action", "message_ids", "topic", "delay_level", "dry_run", "deliver_at_ms", "deliver_after_ms", "reason")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    action: ScheduleAction
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    topic: str
    delay_level: int
    dry_run: bool
    deliver_at_ms: int
    deliver_after_ms: int
    reason: str
    def __init__(self, action: _Optional[_Union[ScheduleAction, str]] = ..., message_ids: _Optional[_Iterable[str]] = ..., topic: _Optional[str] = ..., delay_level: _Optional[int] = ..., dry_run: bool = ..., deliver_at_ms: _Optional[int] = ..., deliver_after_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ChangedId(_message.Message):
    __slots__ = ("message_id", "outcome", "count", "deliver_at_ms")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    outcome: ChangeOutcome
    count: int
    deliver_at_ms: int
    def __init__(self, message_id: _Optional[str] = ..., outcome: _Optional[_Union[ChangeOutcome, str]] = ..., count: _Optional[int] = ..., deliver_at_ms: _Optional[int] = ...) -> None: ...

class ChangeByIdsResponse(_message.Message):
    __slots__ = ("changed",)
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    changed: _containers.RepeatedCompositeFieldContainer[ChangedId]
    def __init__(self, changed: _Optional[_Iterable[_Union[ChangedId, _Mapping]]] = ...) -> None: ...

class ChangeByFilterRequest(_message.Message):
    __slots__ = ("action", "filter", "delay_level", "dry_run", "cursor", "max_messages", "deliver_at_ms", "deliver_after_ms", "reason")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    action: ScheduleAction
    filter: PendingFilter
    delay_level: int
    dry_run: bool
    cursor: str
    max_messages: int
    deliver_at_ms: int
    deliver_after_ms: int
    reason: str
    def __init__(self, action: _Optional[_Union[ScheduleAction, str]] = ..., filter: _Optional[_Union[PendingFilter, _Mapping]] = ..., delay_level: _Optional[int] = ..., dry_run: bool = ..., cursor: _Optional[str] = ..., max_messages: _Optional[int] = ..., deliver_at_ms: _Optional[int] = ..., deliver_after_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ChangeByFilterResponse(_message.Message):
    __slots__ = ("changed", "cursor")
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    changed: int
    cursor: str
    def __init__(self, changed: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class GetLevelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LevelTable(_message.Message):
    __slots__ = ("in_force_from_ms", "message_delay_level")
    IN_FORCE_FROM_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    in_force_from_ms: int
    message_delay_level: str
    def __init__(self, in_force_from_ms: _Optional[int] = ..., message_delay_level: _Optional[str] = ...) -> None: ...

class GetLevelsResponse(_message.Message):
    __slots__ = ("message_delay_level", "configured", "tables")
    MESSAGE_DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    message_delay_level: str
    configured: str
    tables: _containers.RepeatedCompositeFieldContainer[LevelTable]
    def __init__(self, message_delay_level: _Optional[str] = ..., configured: _Optional[str] = ..., tables: _Optional[_Iterable[_Union[LevelTable, _Mapping]]] = ...) -> None: ...

class ChangeLevelsRequest(_message.Message):
    __slots__ = ("message_delay_level", "dry_run")
    MESSAGE_DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    message_delay_level: str
    dry_run: bool
    def __init__(self, message_delay_level: _Optional[str] = ..., dry_run: bool = ...) -> None: ...

class LevelChange(_message.Message):
    __slots__ = ("level", "delay_before", "delay_after", "pending", "next_due_ms")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    DELAY_BEFORE_FIELD_NUMBER: _ClassVar[int]
    DELAY_AFTER_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    NEXT_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    level: int
    delay_before: str
    delay_after: str
    pending: int
    next_due_ms: int
    def __init__(self, level: _Optional[int] = ..., delay_before: _Optional[str] = ..., delay_after: _Optional[str] = ..., pending: _Optional[int] = ..., next_due_ms: _Optional[int] = ...) -> None: ...

class ChangeLevelsResponse(_message.Message):
    __slots__ = ("before", "after", "levels")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    before: str
    after: str
    levels: _containers.RepeatedCompositeFieldContainer[LevelChange]
    def __init__(self, before: _Optional[str] = ..., after: _Optional[str] = ..., levels: _Optional[_Iterable[_Union[LevelChange, _Mapping]]] = ...) -> None: ...

class DeadLetterFilter(_message.Message):
    __slots__ = ("topic", "tag", "key", "reason", "since_ms", "until_ms", "ids", "failure_kind", "job_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_KIND_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    tag: str
    key: str
    reason: str
    since_ms: int
    until_ms: int
    ids: _containers.RepeatedScalarFieldContainer[str]
    failure_kind: str
    job_id: str
    def __init__(self, topic: _Optional[str] = ..., tag: _Optional[str] = ..., key: _Optional[str] = ..., reason: _Optional[str] = ..., since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ..., ids: _Optional[_Iterable[str]] = ..., failure_kind: _Optional[str] = ..., job_id: _Optional[str] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("group", "topic", "queue_id", "queue_offset", "physical_offset", "store_size", "body_size", "message_id", "origin_topic", "origin_message_id", "origin_queue_id", "origin_queue_offset", "tags", "keys", "delivery_attempts", "first_failure_ms", "last_failure_ms", "reason", "born_timestamp_ms", "store_timestamp_ms", "store_host", "redriven_before", "redriven_by", "due_ms", "max_reconsume_times", "failure_kind", "claimed_topic", "claimed_message_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORE_SIZE_FIELD_NUMBER: _ClassVar[int]
    BODY_SIZE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FAILURE_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_FAILURE_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BORN_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    STORE_HOST_FIELD_NUMBER: _ClassVar[int]
    REDRIVEN_BEFORE_FIELD_NUMBER: _ClassVar[int]
    REDRIVEN_BY_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_RECONSUME_TIMES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_KIND_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_TOPIC_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    body_size: int
    message_id: str
    origin_topic: str
    origin_message_id: str
    origin_queue_id: int
    origin_queue_offset: int
    tags: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    delivery_attempts: int
    first_failure_ms: int
    last_failure_ms: int
    reason: str
    born_timestamp_ms: int
    store_timestamp_ms: int
    store_host: str
    redriven_before: int
    redriven_by: str
    due_ms: int
    max_reconsume_times: int
    failure_kind: str
    claimed_topic: str
    claimed_message_id: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., physical_offset: _Optional[int] = ..., store_size: _Optional[int] = ..., body_size: _Optional[int] = ..., message_id: _Optional[str] = ..., origin_topic: _Optional[str] = ..., origin_message_id: _Optional[str] = ..., origin_queue_id: _Optional[int] = ..., origin_queue_offset: _Optional[int] = ..., tags: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., delivery_attempts: _Optional[int] = ..., first_failure_ms: _Optional[int] = ..., last_failure_ms: _Optional[int] = ..., reason: _Optional[str] = ..., born_timestamp_ms: _Optional[int] = ..., store_timestamp_ms: _Optional[int] = ..., store_host: _Optional[str] = ..., redriven_before: _Optional[int] = ..., redriven_by: _Optional[str] = ..., due_ms: _Optional[int] = ..., max_reconsume_times: _Optional[int] = ..., failure_kind: _Optional[str] = ..., claimed_topic: _Optional[str] = ..., claimed_message_id: _Optional[str] = ...) -> None: ...

class ListDeadLettersRequest(_message.Message):
    __slots__ = ("group", "filter", "newest_first", "is_open", "cursor", "max_letters")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIRST_FIELD_NUMBER: _ClassVar[int]
    IS_OPEN_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    MAX_LETTERS_FIELD_NUMBER: _ClassVar[int]
    group: str
    filter: DeadLetterFilter
    newest_first: bool
    is_open: bool
    cursor: str
    max_letters: int
    def __init__(self, group: _Optional[str] = ..., filter: _Optional[_Union[DeadLetterFilter, _Mapping]] = ..., newest_first: bool = ..., is_open: bool = ..., cursor: _Optional[str] = ..., max_letters: _Optional[int] = ...) -> None: ...

class ListDeadLettersResponse(_message.Message):
    __slots__ = ("letters", "cursor", "looked_at")
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LOOKED_AT_FIELD_NUMBER: _ClassVar[int]
    letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    cursor: str
    looked_at: int
    def __init__(self, letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., cursor: _Optional[str] = ..., looked_at: _Optional[int] = ...) -> None: ...

class ReasonCount(_message.Message):
    __slots__ = ("reason", "count")
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    reason: str
    count: int
    def __init__(self, reason: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class DeadLetterGroup(_message.Message):
    __slots__ = ("group", "letters", "redriven", "purged", "oldest_ms", "newest_ms", "reasons", "reasons_of", "rest_letters", "rest_kinds")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    REDRIVEN_FIELD_NUMBER: _ClassVar[int]
    PURGED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_MS_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    REASONS_OF_FIELD_NUMBER: _ClassVar[int]
    REST_LETTERS_FIELD_NUMBER: _ClassVar[int]
    REST_KINDS_FIELD_NUMBER: _ClassVar[int]
    group: str
    letters: int
    redriven: int
    purged: int
    oldest_ms: int
    newest_ms: int
    reasons: _containers.RepeatedCompositeFieldContainer[ReasonCount]
    reasons_of: int
    rest_letters: int
    rest_kinds: int
    def __init__(self, group: _Optional[str] = ..., letters: _Optional[int] = ..., redriven: _Optional[int] = ..., purged: _Optional[int] = ..., oldest_ms: _Optional[int] = ..., newest_ms: _Optional[int] = ..., reasons: _Optional[_Iterable[_Union[ReasonCount, _Mapping]]] = ..., reasons_of: _Optional[int] = ..., rest_letters: _Optional[int] = ..., rest_kinds: _Optional[int] = ...) -> None: ...

class ListReasonsRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class ListReasonsResponse(_message.Message):
    __slots__ = ("group", "letters", "redriven", "purged", "oldest_ms", "newest_ms", "reasons", "reasons_of", "rest_letters", "rest_kinds")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    REDRIVEN_FIELD_NUMBER: _ClassVar[int]
    PURGED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_MS_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    REASONS_OF_FIELD_NUMBER: _ClassVar[int]
    REST_LETTERS_FIELD_NUMBER: _ClassVar[int]
    REST_KINDS_FIELD_NUMBER: _ClassVar[int]
    group: str
    letters: int
    redriven: int
    purged: int
    oldest_ms: int
    newest_ms: int
    reasons: _containers.RepeatedCompositeFieldContainer[ReasonCount]
    reasons_of: int
    rest_letters: int
    rest_kinds: int
    def __init__(self, group: _Optional[str] = ..., letters: _Optional[int] = ..., redriven: _Optional[int] = ..., purged: _Optional[int] = ..., oldest_ms: _Optional[int] = ..., newest_ms: _Optional[int] = ..., reasons: _Optional[_Iterable[_Union[ReasonCount, _Mapping]]] = ..., reasons_of: _Optional[int] = ..., rest_letters: _Optional[int] = ..., rest_kinds: _Optional[int] = ...) -> None: ...

class ListDeadLetterGroupsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDeadLetterGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[DeadLetterGroup]
    def __init__(self, groups: _Optional[_Iterable[_Union[DeadLetterGroup, _Mapping]]] = ...) -> None: ...

class PurgeDeadLettersRequest(_message.Message):
    __slots__ = ("group", "until_ms", "restore", "dry_run", "filter")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    group: str
    until_ms: int
    restore: bool
    dry_run: bool
    filter: DeadLetterFilter
    def __init__(self, group: _Optional[str] = ..., until_ms: _Optional[int] = ..., restore: bool = ..., dry_run: bool = ..., filter: _Optional[_Union[DeadLetterFilter, _Mapping]] = ...) -> None: ...

class PurgeDeadLettersResponse(_message.Message):
    __slots__ = ("letters", "open")
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    letters: int
    open: int
    def __init__(self, letters: _Optional[int] = ..., open: _Optional[int] = ...) -> None: ...

class HistoryEvent(_message.Message):
    __slots__ = ("kind", "at_ms", "topic", "queue_id", "queue_offset", "physical_offset", "offset_message_id", "message_id", "group", "attempt", "level", "due_ms", "is_pending", "reason", "job_id", "readers", "max_reconsume_times")
    KIND_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OFFSET_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    IS_PENDING_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    READERS_FIELD_NUMBER: _ClassVar[int]
    MAX_RECONSUME_TIMES_FIELD_NUMBER: _ClassVar[int]
    kind: EventKind
    at_ms: int
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    offset_message_id: str
    message_id: str
    group: str
    attempt: int
    level: int
    due_ms: int
    is_pending: bool
    reason: str
    job_id: str
    readers: _containers.RepeatedScalarFieldContainer[str]
    max_reconsume_times: int
    def __init__(self, kind: _Optional[_Union[EventKind, str]] = ..., at_ms: _Optional[int] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., physical_offset: _Optional[int] = ..., offset_message_id: _Optional[str] = ..., message_id: _Optional[str] = ..., group: _Optional[str] = ..., attempt: _Optional[int] = ..., level: _Optional[int] = ..., due_ms: _Optional[int] = ..., is_pending: bool = ..., reason: _Optional[str] = ..., job_id: _Optional[str] = ..., readers: _Optional[_Iterable[str]] = ..., max_reconsume_times: _Optional[int] = ...) -> None: ...

class GetHistoryRequest(_message.Message):
    __slots__ = ("message_id",)
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    def __init__(self, message_id: _Optional[str] = ...) -> None: ...

class GetHistoryResponse(_message.Message):
    __slots__ = ("message_id", "events", "is_cut")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    IS_CUT_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    events: _containers.RepeatedCompositeFieldContainer[HistoryEvent]
    is_cut: bool
    def __init__(self, message_id: _Optional[str] = ..., events: _Optional[_Iterable[_Union[HistoryEvent, _Mapping]]] = ..., is_cut: bool = ...) -> None: ...

class SetGroupRequest(_message.Message):
    __slots__ = ("group", "max_reconsume_times", "retry_queues", "can_consume", "retry_policy", "orderly", "max_per_second", "burst", "bury_expired")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MAX_RECONSUME_TIMES_FIELD_NUMBER: _ClassVar[int]
    RETRY_QUEUES_FIELD_NUMBER: _ClassVar[int]
    CAN_CONSUME_FIELD_NUMBER: _ClassVar[int]
    RETRY_POLICY_FIELD_NUMBER: _ClassVar[int]
    ORDERLY_FIELD_NUMBER: _ClassVar[int]
    MAX_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    BURY_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    group: str
    max_reconsume_times: int
    retry_queues: int
    can_consume: bool
    retry_policy: str
    orderly: bool
    max_per_second: float
    burst: int
    bury_expired: bool
    def __init__(self, group: _Optional[str] = ..., max_reconsume_times: _Optional[int] = ..., retry_queues: _Optional[int] = ..., can_consume: bool = ..., retry_policy: _Optional[str] = ..., orderly: bool = ..., max_per_second: _Optional[float] = ..., burst: _Optional[int] = ..., bury_expired: bool = ...) -> None: ...

class SetGroupResponse(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: Group
    def __init__(self, group: _Optional[_Union[Group, _Mapping]] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("group", "force")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    group: str
    force: bool
    def __init__(self, group: _Optional[str] = ..., force: bool = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResetOffsetsRequest(_message.Message):
    __slots__ = ("group", "topic", "timestamp_ms", "queue_id", "queue_offset", "force")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    timestamp_ms: int
    queue_id: int
    queue_offset: int
    force: bool
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., timestamp_ms: _Optional[int] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., force: bool = ...) -> None: ...

class QueueReset(_message.Message):
    __slots__ = ("topic", "queue_id", "min_offset", "max_offset", "before", "after")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    before: int
    after: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., before: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...

class ResetOffsetsResponse(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[QueueReset]
    def __init__(self, queues: _Optional[_Iterable[_Union[QueueReset, _Mapping]]] = ...) -> None: ...

class RedriveSpec(_message.Message):
    __slots__ = ("group", "filter", "to_topic", "delay_level", "max_per_second", "again", "to_group")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    TO_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    MAX_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    TO_GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    filter: DeadLetterFilter
    to_topic: str
    delay_level: int
    max_per_second: int
    again: bool
    to_group: bool
    def __init__(self, group: _Optional[str] = ..., filter: _Optional[_Union[DeadLetterFilter, _Mapping]] = ..., to_topic: _Optional[str] = ..., delay_level: _Optional[int] = ..., max_per_second: _Optional[int] = ..., again: bool = ..., to_group: bool = ...) -> None: ...

class DeadLetterOutcome(_message.Message):
    __slots__ = ("queue_id", "queue_offset", "outcome", "topic", "message_id", "why")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    queue_offset: int
    outcome: RedriveOutcome
    topic: str
    message_id: str
    why: str
    def __init__(self, queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., outcome: _Optional[_Union[RedriveOutcome, str]] = ..., topic: _Optional[str] = ..., message_id: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class RedriveJob(_message.Message):
    __slots__ = ("job_id", "spec", "state", "letters", "looked_at", "sent", "already", "refused", "created_at_ms", "changed_at_ms", "ended_at_ms", "note", "samples", "results", "operator_notes")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    LOOKED_AT_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    ALREADY_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_NOTES_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    spec: RedriveSpec
    state: JobState
    letters: int
    looked_at: int
    sent: int
    already: int
    refused: int
    created_at_ms: int
    changed_at_ms: int
    ended_at_ms: int
    note: str
    samples: _containers.RepeatedCompositeFieldContainer[DeadLetterOutcome]
    results: RedriveResults
    operator_notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_id: _Optional[str] = ..., spec: _Optional[_Union[RedriveSpec, _Mapping]] = ..., state: _Optional[_Union[JobState, str]] = ..., letters: _Optional[int] = ..., looked_at: _Optional[int] = ..., sent: _Optional[int] = ..., already: _Optional[int] = ..., refused: _Optional[int] = ..., created_at_ms: _Optional[int] = ..., changed_at_ms: _Optional[int] = ..., ended_at_ms: _Optional[int] = ..., note: _Optional[str] = ..., samples: _Optional[_Iterable[_Union[DeadLetterOutcome, _Mapping]]] = ..., results: _Optional[_Union[RedriveResults, _Mapping]] = ..., operator_notes: _Optional[_Iterable[str]] = ...) -> None: ...

class RedriveResults(_message.Message):
    __slots__ = ("is_counted", "consumed", "waiting", "dead", "why")
    IS_COUNTED_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    is_counted: bool
    consumed: int
    waiting: int
    dead: int
    why: str
    def __init__(self, is_counted: bool = ..., consumed: _Optional[int] = ..., waiting: _Optional[int] = ..., dead: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class PreviewRedriveRequest(_message.Message):
    __slots__ = ("spec", "cursor")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    spec: RedriveSpec
    cursor: str
    def __init__(self, spec: _Optional[_Union[RedriveSpec, _Mapping]] = ..., cursor: _Optional[str] = ...) -> None: ...

class TopicCount(_message.Message):
    __slots__ = ("topic", "count", "groups", "more_groups")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    MORE_GROUPS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    count: int
    groups: _containers.RepeatedScalarFieldContainer[str]
    more_groups: int
    def __init__(self, topic: _Optional[str] = ..., count: _Optional[int] = ..., groups: _Optional[_Iterable[str]] = ..., more_groups: _Optional[int] = ...) -> None: ...

class PreviewRedriveResponse(_message.Message):
    __slots__ = ("letters", "looked_at", "sent", "already", "refused", "topics", "samples", "cursor")
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    LOOKED_AT_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    ALREADY_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    letters: int
    looked_at: int
    sent: int
    already: int
    refused: int
    topics: _containers.RepeatedCompositeFieldContainer[TopicCount]
    samples: _containers.RepeatedCompositeFieldContainer[DeadLetterOutcome]
    cursor: str
    def __init__(self, letters: _Optional[int] = ..., looked_at: _Optional[int] = ..., sent: _Optional[int] = ..., already: _Optional[int] = ..., refused: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[TopicCount, _Mapping]]] = ..., samples: _Optional[_Iterable[_Union[DeadLetterOutcome, _Mapping]]] = ..., cursor: _Optional[str] = ...) -> None: ...

class StartRedriveRequest(_message.Message):
    __slots__ = ("spec", "job_id")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    spec: RedriveSpec
    job_id: str
    def __init__(self, spec: _Optional[_Union[RedriveSpec, _Mapping]] = ..., job_id: _Optional[str] = ...) -> None: ...

class StartRedriveResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: RedriveJob
    def __init__(self, job: _Optional[_Union[RedriveJob, _Mapping]] = ...) -> None: ...

class GetRedriveJobRequest(_message.Message):
    __slots__ = ("job_id", "with_results")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WITH_RESULTS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    with_results: bool
    def __init__(self, job_id: _Optional[str] = ..., with_results: bool = ...) -> None: ...

class GetRedriveJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: RedriveJob
    def __init__(self, job: _Optional[_Union[RedriveJob, _Mapping]] = ...) -> None: ...

class ListRedriveJobsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRedriveJobsResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[RedriveJob]
    def __init__(self, jobs: _Optional[_Iterable[_Union[RedriveJob, _Mapping]]] = ...) -> None: ...

class ChangeRedriveJobRequest(_message.Message):
    __slots__ = ("job_id", "action", "max_per_second")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    MAX_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    action: JobAction
    max_per_second: int
    def __init__(self, job_id: _Optional[str] = ..., action: _Optional[_Union[JobAction, str]] = ..., max_per_second: _Optional[int] = ...) -> None: ...

class ChangeRedriveJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: RedriveJob
    def __init__(self, job: _Optional[_Union[RedriveJob, _Mapping]] = ...) -> None: ...

class ImportedDeadLetter(_message.Message):
    __slots__ = ("queue_id", "queue_offset", "offset_message_id", "store_timestamp_ms", "properties", "body")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OFFSET_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    queue_offset: int
    offset_message_id: str
    store_timestamp_ms: int
    properties: bytes
    body: bytes
    def __init__(self, queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., offset_message_id: _Optional[str] = ..., store_timestamp_ms: _Optional[int] = ..., properties: _Optional[bytes] = ..., body: _Optional[bytes] = ...) -> None: ...

class ImportDeadLettersRequest(_message.Message):
    __slots__ = ("group", "letters", "to_topic", "to_group", "dry_run")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    TO_TOPIC_FIELD_NUMBER: _ClassVar[int]
    TO_GROUP_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    group: str
    letters: _containers.RepeatedCompositeFieldContainer[ImportedDeadLetter]
    to_topic: str
    to_group: bool
    dry_run: bool
    def __init__(self, group: _Optional[str] = ..., letters: _Optional[_Iterable[_Union[ImportedDeadLetter, _Mapping]]] = ..., to_topic: _Optional[str] = ..., to_group: bool = ..., dry_run: bool = ...) -> None: ...

class ImportDeadLettersResponse(_message.Message):
    __slots__ = ("letters", "topics")
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    letters: _containers.RepeatedCompositeFieldContainer[DeadLetterOutcome]
    topics: _containers.RepeatedCompositeFieldContainer[TopicCount]
    def __init__(self, letters: _Optional[_Iterable[_Union[DeadLetterOutcome, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[TopicCount, _Mapping]]] = ...) -> None: ...

class ListRedriveOutcomesRequest(_message.Message):
    __slots__ = ("job_id", "outcomes", "cursor", "max_letters")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    MAX_LETTERS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    outcomes: _containers.RepeatedScalarFieldContainer[RedriveOutcome]
    cursor: str
    max_letters: int
    def __init__(self, job_id: _Optional[str] = ..., outcomes: _Optional[_Iterable[_Union[RedriveOutcome, str]]] = ..., cursor: _Optional[str] = ..., max_letters: _Optional[int] = ...) -> None: ...

class ListRedriveOutcomesResponse(_message.Message):
    __slots__ = ("letters", "cursor")
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    letters: _containers.RepeatedCompositeFieldContainer[DeadLetterOutcome]
    cursor: str
    def __init__(self, letters: _Optional[_Iterable[_Union[DeadLetterOutcome, _Mapping]]] = ..., cursor: _Optional[str] = ...) -> None: ...

class ScheduleBulkRequest(_message.Message):
    __slots__ = ("bodies", "message_ids", "topics", "tags", "keys", "properties", "delay_levels", "delays", "deliver_at_ms", "match", "job_id", "born_at_ms", "already_refused")
    BODIES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVELS_FIELD_NUMBER: _ClassVar[int]
    DELAYS_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    MATCH_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    BORN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ALREADY_REFUSED_FIELD_NUMBER: _ClassVar[int]
    bodies: _containers.RepeatedScalarFieldContainer[bytes]
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    topics: _containers.RepeatedScalarFieldContainer[str]
    tags: _containers.RepeatedScalarFieldContainer[str]
    keys: _containers.RepeatedScalarFieldContainer[str]
    properties: _containers.RepeatedScalarFieldContainer[str]
    delay_levels: _containers.RepeatedScalarFieldContainer[int]
    delays: _containers.RepeatedScalarFieldContainer[str]
    deliver_at_ms: _containers.RepeatedScalarFieldContainer[int]
    match: BulkMatch
    job_id: str
    born_at_ms: int
    already_refused: _containers.RepeatedCompositeFieldContainer[Refusal]
    def __init__(self, bodies: _Optional[_Iterable[bytes]] = ..., message_ids: _Optional[_Iterable[str]] = ..., topics: _Optional[_Iterable[str]] = ..., tags: _Optional[_Iterable[str]] = ..., keys: _Optional[_Iterable[str]] = ..., properties: _Optional[_Iterable[str]] = ..., delay_levels: _Optional[_Iterable[int]] = ..., delays: _Optional[_Iterable[str]] = ..., deliver_at_ms: _Optional[_Iterable[int]] = ..., match: _Optional[_Union[BulkMatch, str]] = ..., job_id: _Optional[str] = ..., born_at_ms: _Optional[int] = ..., already_refused: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("message_id", "code", "sentence", "field", "value", "rule")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    code: str
    sentence: str
    field: str
    value: str
    rule: str
    def __init__(self, message_id: _Optional[str] = ..., code: _Optional[str] = ..., sentence: _Optional[str] = ..., field: _Optional[str] = ..., value: _Optional[str] = ..., rule: _Optional[str] = ...) -> None: ...

class RefusedAt(_message.Message):
    __slots__ = ("position", "refusal")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    position: int
    refusal: Refusal
    def __init__(self, position: _Optional[int] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class ScheduleBulkResponse(_message.Message):
    __slots__ = ("accepted", "duplicates", "refused")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    accepted: int
    duplicates: _containers.RepeatedScalarFieldContainer[int]
    refused: _containers.RepeatedCompositeFieldContainer[RefusedAt]
    def __init__(self, accepted: _Optional[int] = ..., duplicates: _Optional[_Iterable[int]] = ..., refused: _Optional[_Iterable[_Union[RefusedAt, _Mapping]]] = ...) -> None: ...

class BulkJob(_message.Message):
    __slots__ = ("job_id", "accepted", "duplicates", "refused", "calls", "first_at_ms", "last_at_ms", "samples")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    FIRST_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    accepted: int
    duplicates: int
    refused: int
    calls: int
    first_at_ms: int
    last_at_ms: int
    samples: _containers.RepeatedCompositeFieldContainer[Refusal]
    def __init__(self, job_id: _Optional[str] = ..., accepted: _Optional[int] = ..., duplicates: _Optional[int] = ..., refused: _Optional[int] = ..., calls: _Optional[int] = ..., first_at_ms: _Optional[int] = ..., last_at_ms: _Optional[int] = ..., samples: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ...) -> None: ...

class GetBulkJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class GetBulkJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: BulkJob
    def __init__(self, job: _Optional[_Union[BulkJob, _Mapping]] = ...) -> None: ...

class ListBulkJobsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListBulkJobsResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[BulkJob]
    def __init__(self, jobs: _Optional[_Iterable[_Union[BulkJob, _Mapping]]] = ...) -> None: ...

class GetLogSnapshotRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class GetLogSnapshotResponse(_message.Message):
    __slots__ = ("begin_offset", "end_offset", "segment_bytes", "now_ms", "newest_timestamp_ms", "broker_name", "levels", "queues", "deleted_topics")
    BEGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    DELETED_TOPICS_FIELD_NUMBER: _ClassVar[int]
    begin_offset: int
    end_offset: int
    segment_bytes: int
    now_ms: int
    newest_timestamp_ms: int
    broker_name: str
    levels: _containers.RepeatedCompositeFieldContainer[LevelTable]
    queues: _containers.RepeatedCompositeFieldContainer[QueueRange]
    deleted_topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, begin_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., segment_bytes: _Optional[int] = ..., now_ms: _Optional[int] = ..., newest_timestamp_ms: _Optional[int] = ..., broker_name: _Optional[str] = ..., levels: _Optional[_Iterable[_Union[LevelTable, _Mapping]]] = ..., queues: _Optional[_Iterable[_Union[QueueRange, _Mapping]]] = ..., deleted_topics: _Optional[_Iterable[str]] = ...) -> None: ...

class ReadLogRequest(_message.Message):
    __slots__ = ("begin_offset", "end_offset", "max_bytes")
    BEGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    begin_offset: int
    end_offset: int
    max_bytes: int
    def __init__(self, begin_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class ReadLogResponse(_message.Message):
    __slots__ = ("data", "next_offset")
    DATA_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    next_offset: int
    def __init__(self, data: _Optional[bytes] = ..., next_offset: _Optional[int] = ...) -> None: ...

class ReadQueueRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "begin_queue_offset", "end_queue_offset", "max_bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BEGIN_QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    begin_queue_offset: int
    end_queue_offset: int
    max_bytes: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., begin_queue_offset: _Optional[int] = ..., end_queue_offset: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class ReadQueueResponse(_message.Message):
    __slots__ = ("records", "next_queue_offset")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    records: bytes
    next_queue_offset: int
    def __init__(self, records: _Optional[bytes] = ..., next_queue_offset: _Optional[int] = ...) -> None: ...
