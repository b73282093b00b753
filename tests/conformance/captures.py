"""What a captured scenario needs before it begins, found out from the answers in it.

A scenario was recorded on a broker that had been used before: its topics, messages and offsets
were there.  Whatever an answer shows and no request of the scenario made must have been there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqlite.kernel.words.message import TIMER_OUT_MS, StoredMessage
from rmqlite.kernel.words.names import AUTO_CREATE_TOPIC, group_of
from rmqlite.kernel.words.property_string import PropertyString
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.requests.clients import (
    ConsumerConnections,
    ProducerConnections,
    ProducersBody,
)
from rmqlite.protocols.remoting.bytes.requests.groups import ConsumeStats, SubscriptionGroups
from rmqlite.protocols.remoting.bytes.requests.name_server import RouteBody
from rmqlite.protocols.remoting.bytes.requests.topics import GroupList, QueueViewBody
from rmqlite.protocols.remoting.bytes.shapes import read_body
from tests.support.exchanges import Row, command_of, frame_of
from tests.support.remoting import records_of

SENDS = frozenset({10, 310, 320})
OF_CLIENT = "client->server"
PULLS = frozenset({11, 361})
WITH_RECORDS = PULLS | {12, 33, 200050}
OF_QUEUE = PULLS | {14, 15, 29, 30, 31, 32}


ELSEWHERE = "elsewhere"
"""The connection of clients that ran beside the captured ones."""


class Step(NamedTuple):
    """One frame.  asked: of an answer, the request that it answers."""

    row: Row
    command: Command
    asked: Command | None

    @property
    def conn(self) -> str:
        return str(self.row["conn"])

    @property
    def is_of_client(self) -> bool:
        return bool(self.row["dir"] == OF_CLIENT)


class Place(NamedTuple):
    topic: str
    queue_id: int


@dataclass
class Before:
    """What was there before a scenario began."""

    topics: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Read queues, write queues, permission."""
    groups: set[str] = field(default_factory=set)
    messages: dict[Place, dict[int, StoredMessage | None]] = field(default_factory=dict)
    """By queue offset; None: a message that nobody has looked at."""
    offsets: dict[tuple[str, Place], int] = field(default_factory=dict)
    live: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """The groups and client ids of consumers that ran already, by connection."""
    values: dict[tuple[str, str], str] = field(default_factory=dict)
    """The name server's, by namespace and key."""
    creates_topics: bool = True


def steps_of(rows: list[Row]) -> list[Step]:
    """The frames, each answer with its request.  Those that are cut off are left out."""
    found: list[Step] = []
    asked: dict[tuple[str, bool, int], Command] = {}
    for row in rows:
        frame = frame_of(row)
        if frame is None:
            continue
        command = command_of(frame)
        is_of_client = row["dir"] == OF_CLIENT
        request = None
        if command.is_answer:
            request = asked.pop((row["conn"], not is_of_client, command.opaque), None)
        else:
            asked[row["conn"], is_of_client, command.opaque] = command
        found.append(Step(row, command, request))
    return found


def place_of(command: Command) -> Place | None:
    """The queue that a request is about."""
    ext = command.ext
    if command.code in SENDS:
        names = ("topic", "queueId") if command.code == 10 else ("b", "e")
        # The Go client spells a batch in short names, C++'s in long ones.
        topic, queue_id = (ext.get(name) or "" for name in names)
        return Place(topic, int(queue_id)) if topic else None
    if command.code in OF_QUEUE and ext.get("topic"):
        return Place(ext["topic"], int(ext.get("queueId", "0")))
    return None


def before(steps: list[Step]) -> Before:
    """Walk through the answers."""
    found = Before()
    made = _Made()
    for step in steps:
        if step.asked is not None and not step.is_of_client:
            _look(step.command, step.asked, found, made)
            if step.command.code == 0:
                _look_at_tables(step.command, step.asked, found, made)
            made.note(step.asked, step.command)
        elif not step.command.is_answer and not step.is_of_client:
            _look_at_question(step, found)
        elif not step.command.is_answer:
            made.note_request(step.command)
    for topic, (reads, writes, perm) in found.topics.items():
        queues = max(
            [place.queue_id + 1 for place in found.messages if place.topic == topic] or [0]
        )
        found.topics[topic] = max(reads, queues), max(writes, queues), perm
    known = {who for conn, each in found.live.items() if conn != ELSEWHERE for who in each}
    beside = [who for who in found.live.pop(ELSEWHERE, []) if who not in known]
    if beside:
        found.live[ELSEWHERE] = beside
    return found


@dataclass
class _Made:
    """What the requests of the scenario itself have made."""

    topics: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    first_sent: dict[Place, int] = field(default_factory=dict)
    committed: set[tuple[str, Place]] = field(default_factory=set)

    def note_request(self, command: Command) -> None:
        if command.code == 34:
            text = command.body.decode()
            # The name is a JSON text; whatever else has it does no harm here.
            self.groups |= {part.split('"')[0] for part in text.split('"groupName":"')[1:]}
        if command.code == 15:
            place = place_of(command)
            assert place is not None
            self.committed.add((command.ext["consumerGroup"], place))

    def note(self, asked: Command, answer: Command) -> None:
        place = place_of(asked)
        if asked.code == 105 and answer.code == 17:
            self.absent.add(asked.ext.get("topic", ""))
        if asked.code == 17:
            self.absent.add(asked.ext["topic"])
        if asked.code in SENDS and answer.code == 0 and place is not None:
            at = Place(place.topic, int(answer.ext["queueId"]))
            if not _is_elsewhere(asked, answer):
                self.first_sent.setdefault(at, int(answer.ext["queueOffset"]))


def _look(answer: Command, asked: Command, found: Before, made: _Made) -> None:
    if asked.code == 105:
        _look_at_route(answer, asked.ext.get("topic", ""), found, made)
    place = place_of(asked)
    if place is None and asked.code not in WITH_RECORDS:
        return
    if answer.code == 0 and asked.code in WITH_RECORDS and answer.body:
        for message in records_of(answer.body):
            at = Place(message.topic, message.queue_id)
            if TIMER_OUT_MS in message.properties:
                # The scenario itself has sent it before.
                made.first_sent.setdefault(at, message.queue_offset)
            if message.queue_offset < made.first_sent.get(at, 1 << 62) and _is_plain(at.topic):
                found.messages.setdefault(at, {})[message.queue_offset] = message
    if place is None:
        return
    if asked.code == 14 and answer.code == 0:
        key = asked.ext["consumerGroup"], place
        if key not in made.committed and int(answer.ext["offset"]):
            found.offsets.setdefault(key, int(answer.ext["offset"]))
    _fill(answer, asked, place, found, made)


def _fill(answer: Command, asked: Command, place: Place, found: Before, made: _Made) -> None:
    """Messages up to the first end of the queue that the scenario shows."""
    if asked.code in SENDS:
        # A queue's first message of the scenario tells how many there were before it.
        at = Place(place.topic, int(answer.ext.get("queueId", "-1")))
        if answer.code or at in made.first_sent or _is_elsewhere(asked, answer):
            return
        if not _is_plain(place.topic):
            return
        end, place = int(answer.ext["queueOffset"]), at
    elif asked.code in PULLS and "maxOffset" in answer.ext and place not in made.first_sent:
        end = int(answer.ext["maxOffset"])
    elif asked.code == 30 and place not in made.first_sent and answer.code == 0:
        end = int(answer.ext["offset"])
    elif asked.code == 15 and place not in made.first_sent and answer.code == 0:
        end = int(asked.ext["commitOffset"])
    else:
        return
    if _is_plain(place.topic) and place.topic not in made.absent:
        queue = found.messages.setdefault(place, {})
        for offset in range(end):
            queue.setdefault(offset, None)
        if answer.code == 0 or end:
            found.topics.setdefault(place.topic, (4, 4, 6))


def _look_at_route(answer: Command, topic: str, found: Before, made: _Made) -> None:
    if topic == AUTO_CREATE_TOPIC:
        found.creates_topics = answer.code == 0
    elif answer.code == 0 and topic not in made.absent:
        group = group_of(topic)
        if group is not None:
            if group not in made.groups:
                found.groups.add(group)
            return
        if not _is_plain(topic):
            return
        (data,) = read_body(RouteBody, answer.body).queue_datas
        found.topics.setdefault(topic, (data.read_queue_nums, data.write_queue_nums, data.perm))


def _look_at_tables(answer: Command, asked: Command, found: Before, made: _Made) -> None:
    """What tools were told of groups, queues and values."""
    ext = asked.ext
    if asked.code == 101:
        found.values[ext["namespace"], ext["key"]] = answer.ext["value"]
    elif asked.code == 201:
        groups = read_body(SubscriptionGroups, answer.body).subscription_group_table
        found.groups |= groups.keys() - made.groups
    elif asked.code == 208:
        for queue, known in read_body(ConsumeStats, answer.body).offset_table.items():
            place = Place(queue.topic, queue.queue_id)
            _fill_queue(place, known.broker_offset, found)
            if _is_plain(queue.topic):
                found.offsets[ext["consumerGroup"], place] = known.consumer_offset
    elif asked.code == 300:
        for group in read_body(GroupList, answer.body).group_list:
            found.offsets.setdefault((group, Place(ext["topic"], 0)), 0)
    elif asked.code == 321:
        end = read_body(QueueViewBody, answer.body).max_queue_index
        _fill_queue(Place(ext["topic"], int(ext["queueId"])), end, found)
    found.live.setdefault(ELSEWHERE, []).extend(_clients_beside(answer, asked))


def _clients_beside(answer: Command, asked: Command) -> Iterator[tuple[str, str]]:
    """Consumers, and with an empty group producers, of which a tool was told."""
    if asked.code == 203:
        for each in read_body(ConsumerConnections, answer.body).connection_set:
            yield asked.ext["consumerGroup"], each.client_id
    elif asked.code == 204:
        for each in read_body(ProducerConnections, answer.body).connection_set:
            yield "", each.client_id
    elif asked.code == 328:
        for producers in read_body(ProducersBody, answer.body).data.values():
            for producer in producers:
                yield "", producer.client_id
    elif asked.code == 321 and read_body(QueueViewBody, answer.body).subscription_data is not None:
        yield asked.ext["consumerGroup"], "live"


def _fill_queue(place: Place, end: int, found: Before) -> None:
    if _is_plain(place.topic):
        found.topics.setdefault(place.topic, (4, 4, 6))
        queue = found.messages.setdefault(place, {})
        for offset in range(end):
            queue.setdefault(offset, None)


def _look_at_question(step: Step, found: Before) -> None:
    """A request of the broker to a client that ran before the scenario began."""
    ext = step.command.ext
    group = ext.get("consumerGroup") or ext.get("group") or ""
    if step.command.code in (220, 307, 309):
        live = found.live.setdefault(step.conn, [])
        who = (group, ext.get("clientId", "live"))
        if who not in live:
            live.append(who)
    elif step.command.code == 326:
        # Somebody who asked for a reply: a producer.
        properties = PropertyString(ext["properties"].encode())
        asker = (properties.get("REPLY_TO_CLIENT") or b"").decode()
        found.live.setdefault(step.conn, []).append(("", asker))


def _is_elsewhere(asked: Command, answer: Command) -> bool:
    """Is what was sent not in its topic yet, as a timer, which has a handle?"""
    properties = asked.ext.get("properties" if asked.code == 10 else "i", "")
    waits = "DELAY\x01" in properties or "recallHandle" in answer.ext
    return waits or "TRAN_MSG" in properties


def _is_plain(topic: str) -> bool:
    """Not made by the broker itself."""
    return group_of(topic) is None and not topic.upper().startswith(("RMQ_SYS_", "SCHEDULE_"))
