"""Requests of POP consumers: the broker leases messages to them, and they read no offsets.

A message that was popped is named by its extra info, eight words.  The client makes them of the
answer to its pop and of the record, keeps them in the message's property POP_CK, and sends them
back with an ack.  A record of a retry topic has topic type 1 there; whoever acks it names the topic
%RETRY%<group>_<topic>.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from rmqlite.features.request_modes.requests import RequestMode
from rmqlite.kernel.words.names import retry_topic
from rmqlite.protocols.remoting.bytes.fields import (
    BATCH_ACK_BYTES_MAX,
    BATCH_ACKS_MAX,
    ENTRIES_MAX,
    I32,
    I64,
    LOCK_QUEUES_MAX,
    Bytes,
    ClientId,
    Count,
    Expression,
    FieldError,
    Group,
    Name,
    Topic,
    Wire,
)
from rmqlite.protocols.remoting.bytes.requests.clients import MessageModel
from rmqlite.protocols.remoting.bytes.requests.groups import MessageQueue
from rmqlite.protocols.remoting.bytes.requests.request import Body, request

NORMAL: Final = "0"
RETRY: Final = "1"
RETRY_V2: Final = "2"
"""The topic types.  The last two differ in the sign between group and topic."""
_BETWEEN: Final = {RETRY: "_", RETRY_V2: "+"}
_RULE: Final = "the eight words of a popped message"
_WORDS: Final = (8, 9)
"""RocketMQ's proxy adds the physical offset."""
_WORDS_BYTES_MAX: Final = 512

ExtraInfoText = Annotated[str, Bytes(_WORDS_BYTES_MAX)]


class PopMessage(NamedTuple):
    """queue_id: -1 is every queue.  invisible_time, poll_time: in milliseconds.  born_time: the
    client's clock.  init_mode: 0 is a new group's wish for the first message, 1 for the next."""

    consumer_group: Group
    topic: Topic
    queue_id: I32
    max_msg_nums: I32
    invisible_time: I64
    poll_time: I64
    born_time: I64 = 0
    init_mode: I32 = 0
    exp_type: Name = ""
    exp: Expression = ""
    order: bool = False
    attempt_id: Name = ""


class PopAnswer(NamedTuple):
    """pop_time and revive_qid name the lease.  The texts have a part for each queue, see Offsets.

    Java fails if one of the four numbers is missing, also in an answer without messages.
    """

    pop_time: I64
    invisible_time: I64
    revive_qid: I32
    rest_num: I64 = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessage(NamedTuple):
    consumer_group: Group
    topic: Topic
    queue_id: I32
    extra_info: ExtraInfoText
    offset: I64


class ChangeInvisibleTime(NamedTuple):
    """invisible_time: in milliseconds, from now on."""

    consumer_group: Group
    topic: Topic
    queue_id: I32
    extra_info: ExtraInfoText
    offset: I64
    invisible_time: I64


class ChangeAnswer(NamedTuple):
    """Java reads the three numbers before it looks at the code."""

    pop_time: I64 = 0
    invisible_time: I64 = 0
    revive_qid: I32 = 0


class PeekMessage(NamedTuple):
    consumer_group: Group
    topic: Topic
    queue_id: I32
    max_msg_nums: I32


class Notification(NamedTuple):
    """Asks whether a pop would find a message, up to poll_time milliseconds later."""

    consumer_group: Group
    topic: Topic
    queue_id: I32
    poll_time: I64
    born_time: I64 = 0
    order: bool = False
    attempt_id: Name = ""


class NotificationAnswer(NamedTuple):
    """polling_full: too many requests wait already."""

    has_msg: bool
    polling_full: bool = False


class PollingInfo(NamedTuple):
    consumer_group: Group
    topic: Topic
    queue_id: I32


class PollingInfoAnswer(NamedTuple):
    """How many pops wait."""

    polling_num: I32


@dataclass(frozen=True, slots=True)
class ModeChangeBody:
    """Body of 401.  pop_share_queue_num: 0 lets each member pop every queue."""

    topic: Topic
    consumer_group: Group
    mode: RequestMode = RequestMode.PULL
    pop_share_queue_num: I32 = 0


@dataclass(frozen=True, slots=True)
class RequestModesBody:
    """Answer to 402, by topic and by group; a slave of RocketMQ 5.3 takes it over."""

    message_request_mode_map: Annotated[
        dict[str, Annotated[dict[str, ModeChangeBody], Count(ENTRIES_MAX)]], Count(ENTRIES_MAX)
    ]


@dataclass(frozen=True, slots=True)
class AssignmentBody:
    """Body of 400.  strategy_name: how the client would share out the queues."""

    topic: Topic
    consumer_group: Group
    client_id: ClientId
    strategy_name: Name = ""
    message_model: MessageModel = MessageModel.CLUSTERING


@dataclass(frozen=True, slots=True)
class QueueAssignment:
    message_queue: MessageQueue
    mode: RequestMode = RequestMode.PULL


@dataclass(frozen=True, slots=True)
class Assignments:
    """Answer to 400.  None: nothing is known; then the client keeps what it has."""

    message_queue_assignments: (
        Annotated[tuple[QueueAssignment, ...], Count(LOCK_QUEUES_MAX)] | None
    ) = None


@dataclass(frozen=True, slots=True)
class BatchAck:
    """Messages of one pop and one queue.  bits: a bit for each offset from start_offset on."""

    consumer_group: Annotated[Group, Wire("c")]
    topic: Annotated[Topic, Wire("t")]
    retry: Annotated[Name, Wire("r")]
    start_offset: Annotated[I64, Wire("so")]
    queue_id: Annotated[I32, Wire("q")]
    revive_queue_id: Annotated[I32, Wire("rq")]
    pop_time: Annotated[I64, Wire("pt")]
    invisible_time: Annotated[I64, Wire("it")]
    bits: Annotated[str, Wire("b"), Bytes(BATCH_ACK_BYTES_MAX)]

    def offsets(self) -> Iterator[int]:
        """The queue offsets of the messages.  Raises FieldError."""
        try:
            bits = int.from_bytes(b64decode(self.bits, validate=True), "little")
        except ValueError:
            raise FieldError("b", self.bits, "bits in base64") from None
        while bits:
            lowest = bits & -bits
            yield self.start_offset + lowest.bit_length() - 1
            bits ^= lowest


@dataclass(frozen=True, slots=True)
class BatchAcks:
    """Body of 200151."""

    acks: Annotated[tuple[BatchAck, ...], Count(BATCH_ACKS_MAX)] = ()
    broker_name: Name = ""


class ExtraInfo(NamedTuple):
    """Names one delivery.  start_offset: of the first message of its queue in the pop."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_qid: int
    topic_type: str
    broker_name: str
    queue_id: int
    queue_offset: int

    def __str__(self) -> str:
        return " ".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> ExtraInfo:
        """Raises FieldError."""
        words = text.split(" ")
        numbers = [*words[:4], *words[6:]]
        if len(words) not in _WORDS or not all(map(_is_number, numbers)):
            raise FieldError("extraInfo", text, _RULE)
        start, pop_time, invisible, revive, queue_id, offset = map(int, numbers[:6])
        return cls(start, pop_time, invisible, revive, words[4], words[5], queue_id, offset)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19


def topic_sent_to(topic: str, group: str, topic_type: str) -> str:
    """The topic that a message was sent to, of what an ack names.  Raises FieldError."""
    if topic_type == NORMAL:
        return topic
    prefix = retry_topic(group) + _BETWEEN.get(topic_type, "")
    if topic_type not in _BETWEEN or not topic.startswith(prefix) or topic == prefix:
        raise FieldError("topic", topic, f"the pop retry topic of group {group}")
    return topic.removeprefix(prefix)


class Popped(NamedTuple):
    """A message of an answer, as its record has it.  attempts: deliveries before this one."""

    topic_type: str
    queue_id: int
    queue_offset: int
    attempts: int = 0


class PopOffsets(NamedTuple):
    """Three fields of the answer to a pop; each part is about one queue, or one message.

    start "0 3 17;1 0 4", messages "0 3 17,19;1 0 4", attempts "0 qo3%19 2".
    """

    start: str
    messages: str
    attempts: str | None

    @classmethod
    def of(cls, popped: Iterable[Popped]) -> PopOffsets:
        """popped: in the order of the body, by which the client finds each message's offset."""
        queues: dict[str, list[str]] = {}
        attempts = []
        for each in popped:
            offset = str(each.queue_offset)
            queues.setdefault(f"{each.topic_type} {each.queue_id}", []).append(offset)
            if each.attempts:
                key = f"{each.topic_type} qo{each.queue_id}%{offset}"
                attempts.append(f"{key} {each.attempts}")
        start = ";".join([f"{queue} {offsets[0]}" for queue, offsets in queues.items()])
        messages = ";".join([f"{queue} {','.join(each)}" for queue, each in queues.items()])
        return cls(start, messages, ";".join(attempts) or None)


QUERY_ASSIGNMENT: Final = request(400, body=AssignmentBody, answer_body=Assignments)
SET_MESSAGE_REQUEST_MODE: Final = request(401, body=ModeChangeBody)
GET_ALL_MESSAGE_REQUEST_MODE: Final = request(402, answer_body=RequestModesBody)
POP_MESSAGE: Final = request(200050, PopMessage, PopAnswer, answer_body=Body.RECORDS)
ACK_MESSAGE: Final = request(200051, AckMessage)
PEEK_MESSAGE: Final = request(200052, PeekMessage, PopAnswer, answer_body=Body.RECORDS)
CHANGE_MESSAGE_INVISIBLETIME: Final = request(200053, ChangeInvisibleTime, ChangeAnswer)
NOTIFICATION: Final = request(200054, Notification, NotificationAnswer)
POLLING_INFO: Final = request(200055, PollingInfo, PollingInfoAnswer)
BATCH_ACK_MESSAGE: Final = request(200151, body=BatchAcks)
