"""Makes the new message of a dead letter, or finds the reason why there is none.

The properties that retry or the schedule wrote are removed: attempts start anew.  A message that
goes back to the group that failed keeps those that name its origin, as every retry has them.  The
producer's own properties stay, byte by byte, and so does the body, compressed or not.  The
message names the dead letter and the job; its message id is made of the dead letter's place, so a
search for the id in the log shows whether the dead letter was sent before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rmqlite.features.dead_letters.reading import SeenWhole, check_filter, fits
from rmqlite.features.dead_letters.redriven import Redriven
from rmqlite.features.dead_letters.requests import EVERY_DEAD_LETTER
from rmqlite.features.first_messages import Asked, FirstMessages
from rmqlite.features.redrive.jobs import JobProgress, OutcomeRun, message_id_of
from rmqlite.features.redrive.requests import DeadLetterOutcome, RedriveOutcome, RedriveSpec
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC, UNREADABLE, topic_ahead
from rmqlite.kernel.records.drafts import LEFT_BEHIND, Draft, left_after_sparing
from rmqlite.kernel.records.record import Head, NewRecord, one_more
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.retry import claimed_of, origin_of
from rmqlite.kernel.routing import QUEUE_ID_MAX, record_of, route, routed
from rmqlite.kernel.tables.topics import WRITE
from rmqlite.kernel.words.compression import COMPRESSION_BITS
from rmqlite.kernel.words.errors import InvalidValue, PermissionMissing, RmqliteError, TopicUnknown
from rmqlite.kernel.words.limits import PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import (
    BODY_RULE,
    CLAIMED_ORIGIN_MESSAGE_ID,
    CLAIMED_ORIGIN_TOPIC,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    FIRST_ID_PROPERTIES,
    KEYS,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    ORIGIN_QUEUE_ID,
    ORIGIN_QUEUE_OFFSET,
    REAL_TOPIC,
    RECONSUME_TIME,
    REDRIVE_PROPERTIES,
    REDRIVEN_BY,
    REDRIVEN_FROM,
    REDRIVEN_MESSAGE_ID,
    REDRIVEN_TIMES,
    RESERVED_PROPERTIES,
    RETRY_TOPIC,
    TAGS,
    UNIQ_KEY,
)
from rmqlite.kernel.words.names import (
    SCHEDULE_GROUP,
    check_group,
    check_sendable,
    group_of,
    is_dlq,
    is_retry,
    retry_topic,
)
from rmqlite.kernel.words.property_string import PropertyString

NO_JOB: Final = "rmqlite dlq import, or a job that was forgotten"
"""The sender of a dead letter whose message id is in the log but in no job."""
WHY_CHARS_MAX: Final = 200
RATE_MAX: Final = 1_000_000
FILTER_CHARS_MAX: Final = 1_000
"""Length of each text of a filter: every record of the job contains them."""
_UNREADABLE: Final = "its content is lost: the log has no sound record of it"
_NO_ORIGIN: Final = "it does not name its original topic: name another topic"
_OWN_TOPIC: Final = "it was sent to a retry or dead-letter topic: name another topic"
_LONGEST_HOST: Final = bytes(20)
_GONE: Final = (RESERVED_PROPERTIES | REDRIVE_PROPERTIES) - {KEYS, TAGS}
_GONE_BUT_LIMIT: Final = _GONE - {MAX_RECONSUME_TIMES}
_SPARED: Final = (
    ORIGIN_QUEUE_OFFSET,
    ORIGIN_QUEUE_ID,
    CLAIMED_ORIGIN_MESSAGE_ID,
    REDRIVEN_TIMES,
    ORIGIN_MESSAGE_ID,
    REDRIVEN_BY,
    REDRIVEN_MESSAGE_ID,
)
"""What a redriven message does without, in this order, if a record has no room for it."""
_NOTHING: Final = PropertyString(b"")


class Judged(NamedTuple):
    """A dead letter that matches, and its outcome; dead letter, properties: for the message to
    send."""

    queue_offset: int
    outcome: RedriveOutcome
    topic: str
    message_id: str
    why: str
    dead_letter: Record | None = None
    properties: PropertyString = _NOTHING

    def shown(self, queue_id: int) -> DeadLetterOutcome:
        """The outcome as users see it."""
        return DeadLetterOutcome(queue_id, *self[:5])


class Judge:
    """Decides the outcomes of dead letters; changes nothing."""

    def __init__(self, broker: BrokerParts, redriven: Redriven) -> None:
        self._broker = broker
        self._redriven = redriven
        self._room = broker.room

    def judged(
        self,
        progress: JobProgress,
        queue_id: int,
        dead_letters: Sequence[SeenWhole],
        *,
        is_known: bool = True,
    ) -> list[Judged]:
        """The judgements of the matching ones of some dead letters, in order.

        is_known: False for dead letters of another broker, in whose places other dead letters may
        lie here. Raises StoreUnavailable.
        """
        refusals: dict[str, str] = {}
        found: list[Judged] = []
        for queue_offset, dead_letter in dead_letters:
            if dead_letter is not None:
                if fits(dead_letter.head, progress.job.spec.filter):
                    place = queue_id, queue_offset
                    found.append(
                        self._judged(progress, place, dead_letter, refusals, is_known=is_known)
                    )
            elif progress.job.spec.filter == EVERY_DEAD_LETTER:
                found.append(_refused(queue_offset, _UNREADABLE))
        return found if progress.job.spec.again else self._without_sent(found, is_known=is_known)

    def why_not_to(self, topic: str) -> str:
        """Why no dead letter may be redriven to a topic; empty if dead letters may."""
        try:
            self.check_topic(topic)
        except RmqliteError as error:
            return _shortened(str(error))
        return ""

    def check(self, spec: RedriveSpec) -> None:
        """Raises InvalidValue, and what check_topic() raises, for a spec that no job can have."""
        check_group(spec.group)
        check_filter(spec.filter)
        wanted = spec.filter
        texts = [(name, getattr(wanted, name)) for name in ("topic", "tag", "key", "reason")]
        for name, text in (*texts, *[("ids", each) for each in wanted.ids]):
            length = len(text)
            if length > FILTER_CHARS_MAX:
                raise InvalidValue(name, f"{length} characters", f"at most {FILTER_CHARS_MAX}")
        if spec.to_topic:
            if _is_own(spec.to_topic):
                rule = "an ordinary topic: only failed messages go to retry and dead-letter topics"
                raise InvalidValue("to_topic", spec.to_topic, rule)
            self.check_topic(spec.to_topic)
        elif spec.to_group and spec.group != SCHEDULE_GROUP:
            self.check_topic(retry_topic(spec.group))
        most = self._broker.store.levels.current.max_level
        if not 0 <= spec.delay_level <= most:
            rule = f"0, which is now, or a level of the table in force, 1 to {most}"
            raise InvalidValue("delay_level", spec.delay_level, rule)
        check_rate(spec.max_per_second)

    def check_topic(self, topic: str) -> None:
        """Raises an error unless sends to a topic work, or to the retry topic of a group.

        InvalidName, PermissionMissing, TopicUnknown, GroupUnknown.
        """
        check_sendable(topic)
        if is_retry(topic):
            self._broker.on_demand().retry_topic(group_of(topic) or "")
        info = self._broker.topics.get(topic)
        if info is None and not is_retry(topic) and not self._broker.config.auto_create_topic:
            raise TopicUnknown(topic)
        if info is not None and not info.perm & WRITE:
            raise PermissionMissing(topic, "sending to", f"its perm is {info.perm}, 2 is missing")

    # ---- inside

    def _judged(
        self,
        progress: JobProgress,
        place_in_topic: tuple[int, int],
        dead_letter: Record,
        refusals: dict[str, str],
        *,
        is_known: bool,
    ) -> Judged:
        """refusals: a cache of why_not_to() by topic."""
        spec, (queue_id, queue_offset) = progress.job.spec, place_in_topic
        origin, claimed = origin_of(dead_letter.head), claimed_of(dead_letter.head)
        topic = spec.to_topic or _target(spec, dead_letter.head, origin)
        message_id = message_id_of(progress, queue_id, queue_offset)
        if is_known and not spec.again:
            by = self._redriven.job_of(progress.topic, queue_id, queue_offset)
            if by:
                return Judged(queue_offset, RedriveOutcome.ALREADY, topic, message_id, by)
        why = _why_not(dead_letter, self._broker.config)
        # To its own group a message may go whatever is claimed: it was sent there before.
        to_own_group = spec.to_group and is_retry(topic)
        if not why and not spec.to_topic and not (claimed and to_own_group):
            why = _why_not_from(origin, claimed)
        if not why and topic not in refusals:
            refusals[topic] = self.why_not_to(topic)
        if why or refusals[topic]:
            return _refused(queue_offset, why or refusals[topic])
        place = f"{progress.topic}:{queue_id}:{queue_offset}"
        properties = new_properties(dead_letter, place, progress.job.job_id, message_id)
        if is_retry(topic):
            origins = _claims(dead_letter, topic) if claimed else {RETRY_TOPIC: origin}
            properties = properties.edited(_known_origin(dead_letter) | origins)
        properties = self._fitted(properties, topic, spec.delay_level)
        why = self._why_too_long(dead_letter.head, properties, topic, spec.delay_level)
        if why:
            return _refused(queue_offset, why)
        sent = (queue_offset, RedriveOutcome.SENT, topic, message_id, "")
        return Judged(*sent, dead_letter, properties)

    def _without_sent(self, found: list[Judged], *, is_known: bool) -> list[Judged]:
        """Change SENT to ALREADY for dead letters whose message id is in the log."""
        fresh = [each for each in found if each.outcome is RedriveOutcome.SENT]
        if not fresh:
            return found
        since_ms = min(
            each.dead_letter.head.store_timestamp_ms for each in fresh if each.dead_letter
        )
        # An older dlq import has sent it to the original topic, whatever this job's topic is.
        topics = [(each.topic, each.message_id) for each in fresh]
        if is_known:
            topics += [
                (origin_of(each.dead_letter.head), each.message_id)
                for each in fresh
                if each.dead_letter
            ]
        asked = [Asked(topic, message_id, message_id) for topic, message_id in topics]
        looking = FirstMessages(self._broker.store, asked, since_ms, waiting_since_ms=since_ms)
        ids = {
            asked[at].message_id
            for part in looking.newest_records()
            for at, head in part
            if head.store_timestamp_ms >= since_ms
        }
        return [
            each._replace(
                outcome=RedriveOutcome.ALREADY, why=NO_JOB, dead_letter=None, properties=_NOTHING
            )
            if each.message_id in ids
            else each
            for each in found
        ]

    def _fitted(self, properties: PropertyString, topic: str, level: int) -> PropertyString:
        """The string without what a record has no room for, or as it is if that is not enough."""
        added = self._size(properties, topic, level) - len(properties.encoded)
        left = left_after_sparing(properties, PROPERTIES_BYTES_MAX - added, _SPARED)
        return properties if left is None else left.of(properties)

    def _size(self, properties: PropertyString, topic: str, level: int) -> int:
        """The length of the property string with which the message is stored."""
        # Count the longest queue id, so that the result does not depend on the queue.
        place = route(topic, QUEUE_ID_MAX, level, self._broker.config.cluster_name)
        return len(routed(properties.encoded, place).encoded)

    def _why_too_long(self, head: Head, properties: PropertyString, topic: str, level: int) -> str:
        size = self._size(properties, topic, level)
        if size > PROPERTIES_BYTES_MAX:
            most = PROPERTIES_BYTES_MAX
            return f"its properties would be {size} bytes long, at most {most} can be"
        longest = head._replace(born_host=_LONGEST_HOST, store_host=_LONGEST_HOST)
        return self._room.why_not_in(longest, topic, properties_bytes=size)


class RedrivenMessages:
    """Makes the records of redriven dead letters, each for a queue of its topic.

    A topic that is missing is made, and a retry topic with its group, as every send does it.
    """

    def __init__(self, broker: BrokerParts) -> None:
        self._broker = broker
        self._turn = 0

    def records(self, sent: Sequence[Judged], delay_level: int, now_ms: int) -> list[NewRecord]:
        """The new messages of dead letters, to the queues of each topic by turns.

        Raises Overloaded, and the errors of a send to these topics.
        """
        level = self._broker.store.levels.current.clamp(delay_level)
        queues = {info.topic: _queues(info) for info in self._made({each.topic for each in sent})}
        records = []
        for each in sent:
            self._turn += 1
            queue_id = self._turn % queues[each.topic]
            records.append(self._record(each, queue_id, level, now_ms))
        return records

    def _made(self, names: set[str]) -> list[TopicInfo]:
        """These topics; missing ones are made."""
        retries = self._broker.on_demand()
        for topic in filter(is_retry, names):
            retries.retry_topic(group_of(topic) or "")
        retries.make()
        topics = [self._broker.topics.wanted(name) for name in names]
        self._broker.topics.make(topics)
        return topics

    def _record(self, judged: Judged, queue_id: int, level: int, now_ms: int) -> NewRecord:
        assert judged.dead_letter is not None
        head = judged.dead_letter.head
        draft = Draft(
            judged.topic,
            queue_id,
            judged.properties.encoded,
            judged.dead_letter.body,
            now_ms,
            self._broker.host,
            head.flag,
            head.sys_flag & COMPRESSION_BITS,
        )
        return record_of(
            draft, level, cluster=self._broker.config.cluster_name, store_host=self._broker.host
        )


def _queues(info: TopicInfo) -> int:
    """The number of a topic's queues that get messages."""
    # As for every retry: nobody would read it in a queue that is only written.
    both = min(info.read_queues, info.write_queues)
    return max(1, both if is_retry(info.topic) else info.write_queues)


def runs_of(dead_letters: list[Judged]) -> tuple[OutcomeRun, ...]:
    """Join successive dead letters with the same outcome."""
    runs: list[OutcomeRun] = []
    for each in dead_letters:
        last = runs[-1] if runs else None
        is_next = last and each.queue_offset == last.queue_offset + last.letters
        if last and is_next and (each.outcome, each.topic, each.why) == last[2:]:
            runs[-1] = last._replace(letters=last.letters + 1)
        else:
            runs.append(OutcomeRun(each.queue_offset, 1, each.outcome, each.topic, each.why))
    return tuple(runs)


def _is_own(topic: str) -> bool:
    """Is this a retry or dead-letter topic?"""
    return is_retry(topic) or is_dlq(topic)


def _target(spec: RedriveSpec, head: Head, origin: str) -> str:
    """The topic for a dead letter of a job without a to_topic."""
    if not spec.to_group:
        return origin
    is_schedules = head.topic == UNDELIVERABLE_TOPIC
    failed_in = topic_ahead(PropertyString(head.properties)) if is_schedules else head.topic
    group = group_of(failed_in)
    return retry_topic(group) if group else origin


def _why_not_from(origin: str, claimed: str) -> str:
    """Why a dead letter of this origin needs another topic; empty if it does not."""
    if not origin:
        return _NO_ORIGIN
    if claimed:
        return _shortened(f"only its sender says that it comes from {claimed}: name the topic")
    if _is_own(origin):
        return _OWN_TOPIC
    try:
        check_sendable(origin)
    except RmqliteError as error:
        return _shortened(str(error))
    return ""


def _claims(dead_letter: Record, topic: str) -> dict[str, str | bytes]:
    """What names a claimed origin in a retry topic: clients show it, and it stays a claim."""
    own = dead_letter.properties
    claimed = own.get(CLAIMED_ORIGIN_TOPIC) or b""
    claims: dict[str, str | bytes] = {RETRY_TOPIC: claimed, CLAIMED_ORIGIN_TOPIC: claimed}
    message_id = own.get(CLAIMED_ORIGIN_MESSAGE_ID)
    more = {CLAIMED_ORIGIN_MESSAGE_ID: message_id} if message_id else {}
    return claims | more | {DLQ_ORIGIN_TOPIC: topic}


def _known_origin(dead_letter: Record) -> dict[str, str | bytes]:
    """What names the record that failed first, for clients and for the next failure."""
    own = dead_letter.properties
    known = {
        ORIGIN_MESSAGE_ID: own.get(DLQ_ORIGIN_MESSAGE_ID) or own.get(ORIGIN_MESSAGE_ID),
        ORIGIN_QUEUE_ID: own.get(ORIGIN_QUEUE_ID),
        ORIGIN_QUEUE_OFFSET: own.get(ORIGIN_QUEUE_OFFSET),
    }
    return {name: value for name, value in known.items() if value}


def new_properties(dead_letter: Record, place: str, job_id: str, message_id: str) -> PropertyString:
    """The producer's own properties, byte by byte, and those that name dead letter and job."""
    own = dead_letter.properties
    changes: dict[str, str | bytes] = {
        REDRIVEN_FROM: place,
        REDRIVEN_TIMES: str(one_more(own.number(REDRIVEN_TIMES) or 0)),
        REDRIVEN_BY: job_id,
        UNIQ_KEY: message_id,
    }
    first_id = next((found for name in FIRST_ID_PROPERTIES if (found := own.get(name))), None)
    if first_id:
        changes[REDRIVEN_MESSAGE_ID] = first_id
    # With RECONSUME_TIME the limit is a consumer's, not the sender's.
    is_senders = own.get(RECONSUME_TIME) is None
    return own.edited(changes, _GONE_BUT_LIMIT if is_senders else _GONE)


def _why_not(dead_letter: Record, config: BrokerConfig) -> str:
    """Why a record cannot be sent to any topic; empty if it can."""
    head = dead_letter.head
    size = head.body_end - head.body_position
    if head.topic == UNDELIVERABLE_TOPIC and _is_without_content(dead_letter.properties, size):
        return _UNREADABLE
    if not dead_letter.has_sound_body():
        return "its content is lost: its body is damaged"
    if dead_letter.body == LEFT_BEHIND.encode():
        return LEFT_BEHIND
    if not size:
        return f"its body is empty; a body has {BODY_RULE}"
    if size > config.max_message_bytes:
        return f"its body of {size} bytes is larger than maxMessageSize={config.max_message_bytes}"
    return ""


def _is_without_content(properties: PropertyString, body_bytes: int) -> bool:
    """Is it for an unreadable scheduled record?  Older brokers left the body empty."""
    return (
        (not body_bytes or properties.get(FAILURE_REASON) == UNREADABLE.encode())
        and properties.get(REAL_TOPIC) is None
        and properties.get(RETRY_TOPIC) is None
    )


def check_rate(max_per_second: int) -> None:
    if not 0 <= max_per_second <= RATE_MAX:
        rule = f"1 to {RATE_MAX} letters per second, or 0 for no limit"
        raise InvalidValue("max_per_second", max_per_second, rule)


def _refused(queue_offset: int, why: str) -> Judged:
    return Judged(queue_offset, RedriveOutcome.REFUSED, "", "", why)


def _shortened(why: str) -> str:
    return why if len(why) <= WHY_CHARS_MAX else why[: WHY_CHARS_MAX - 1] + "…"
