"""Sends dead letters from a file of dlq export, each once: repaired bodies, old dead letters.

They are judged and made as a job's are.  A dead letter that this broker still has, and that was
sent from the file, counts as redriven: a record says so behind the messages of its call.  If a
crash takes that record and leaves messages, the same call again finds them in the log by their
ids, sends none twice, and writes the record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from rmqlite.features.dead_letters.reading import SeenWhole
from rmqlite.features.dead_letters.redriven import IMPORTED
from rmqlite.features.finding.finding import offset_in
from rmqlite.features.finding.matching import has_offset_id
from rmqlite.features.redrive.jobs import JobProgress, RedriveJobs, imported_record
from rmqlite.features.redrive.judge import NO_JOB, Judge, Judged, RedrivenMessages
from rmqlite.features.redrive.pages import with_groups
from rmqlite.features.redrive.requests import (
    IMPORTED_DEAD_LETTERS_MAX,
    ImportAnswer,
    ImportedDeadLetter,
    ImportRequest,
    RedriveOutcome,
    RedriveSpec,
)
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.reading import outline_at
from rmqlite.kernel.records.record import OVERHEAD_BYTES, Head, NewRecord, body_crc
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.retention import Retention
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import pack_host
from rmqlite.kernel.words.names import REDRIVE_JOBS_TOPIC, dlq_topic

_HOST: Final = pack_host("127.0.0.1:0")
_TWICE: Final = "the call has this letter twice"
"""The reason why the second one is left out."""


class Imports:
    """Imports into one broker; an answer may be sent when the log is durable up to its end."""

    def __init__(
        self,
        broker: BrokerParts,
        retention: Retention,
        jobs: RedriveJobs,
        judge: Judge,
        messages: RedrivenMessages,
    ) -> None:
        self._broker = broker
        self._retention = retention
        self._jobs = jobs
        self._judge = judge
        self._messages = messages

    def run(self, request: ImportRequest) -> ImportAnswer:
        """Send the dead letters of one call, or judge them only.

        Raises InvalidValue, InvalidName, GroupUnknown, TopicUnknown, PermissionMissing, DiskFull,
        Overloaded, StoreUnavailable; then none is sent.
        """
        spec = RedriveSpec(request.group, to_topic=request.to_topic, to_group=request.to_group)
        self._judge.check(spec)
        if not 1 <= len(request.letters) <= IMPORTED_DEAD_LETTERS_MAX:
            raise InvalidValue("letters", len(request.letters), f"1 to {IMPORTED_DEAD_LETTERS_MAX}")
        found, known = self._judged(spec, request.letters)
        sent = [each for _, each in found if each.outcome is RedriveOutcome.SENT]
        if not request.dry_run:
            self._retention.check_room(is_send=False)
            self._put(spec, sent, known)
        dead_letters = [each.shown(queue_id) for queue_id, each in found]
        topics = Counter(each.topic for each in sent)
        return ImportAnswer(tuple(dead_letters), with_groups(topics, self._broker.readers_of))

    # ---- inside

    def _judged(
        self, spec: RedriveSpec, dead_letters: Sequence[ImportedDeadLetter]
    ) -> tuple[list[tuple[int, Judged]], dict[int, CompletedOffsets]]:
        """Queue id and judgement of each dead letter; and this broker's dead letters that are sent
        by now."""
        progress = JobProgress.begun(IMPORTED, spec, (), self._broker.clock.now_ms())
        found: list[tuple[int, Judged]] = []
        known: dict[int, CompletedOffsets] = {}
        places: set[tuple[int, int]] = set()
        records: dict[tuple[int, bool], list[SeenWhole]] = {}
        for each in dead_letters:
            place = each.queue_id, each.queue_offset
            if place in places:
                twice = Judged(each.queue_offset, RedriveOutcome.ALREADY, "", "", _TWICE)
                found.append((each.queue_id, twice))
                continue
            places.add(place)
            key = each.queue_id, self._is_here(progress.topic, each)
            seen = SeenWhole(each.queue_offset, _record(progress.topic, each))
            records.setdefault(key, []).append(seen)
        for (queue_id, is_here), several in records.items():
            judged = self._judge.judged(progress, queue_id, several, is_known=is_here)
            found += [(queue_id, each) for each in judged]
            for outcome in judged if is_here else ():
                is_found = outcome.outcome is RedriveOutcome.ALREADY and outcome.why == NO_JOB
                if is_found or outcome.outcome is RedriveOutcome.SENT:
                    sent = known.setdefault(queue_id, CompletedOffsets())
                    sent.add(outcome.queue_offset, outcome.queue_offset + 1)
        return found, known

    def _is_here(self, topic: str, dead_letter: ImportedDeadLetter) -> bool:
        """Is it still a dead letter of this broker?  Another broker's may have the same place."""
        physical_offset = offset_in(dead_letter.offset_message_id)
        head = None if physical_offset is None else outline_at(self._broker.store, physical_offset)
        return (
            head is not None
            and (head.topic, head.queue_id, head.queue_offset)
            == (topic, dead_letter.queue_id, dead_letter.queue_offset)
            and has_offset_id(head, dead_letter.offset_message_id)
        )

    def _put(
        self, spec: RedriveSpec, sent: list[Judged], known: Mapping[int, CompletedOffsets]
    ) -> None:
        now_ms = self._broker.clock.now_ms()
        records: list[NewRecord] = self._messages.records(sent, 0, now_ms)
        topic = dlq_topic(spec.group)
        if known:
            self._broker.topics.ensure(REDRIVE_JOBS_TOPIC, 1)
            records.append(imported_record(topic, known, now_ms))
        if records:
            self._broker.appending.append(records)
        if known:
            self._jobs.keep_imported(topic, known)


def _record(topic: str, dead_letter: ImportedDeadLetter) -> Record:
    """A dead letter as if it lay in the log, with the file's body."""
    body, properties = dead_letter.body, dead_letter.properties
    head = Head(
        size=OVERHEAD_BYTES + len(topic) + len(body) + len(properties),
        body_crc=body_crc(body),
        queue_id=dead_letter.queue_id,
        flag=0,
        queue_offset=dead_letter.queue_offset,
        physical_offset=0,
        sys_flag=0,
        born_timestamp_ms=dead_letter.store_timestamp_ms,
        born_host=_HOST,
        store_timestamp_ms=dead_letter.store_timestamp_ms,
        store_host=_HOST,
        reconsume_times=0,
        completes=0,
        body_position=0,
        body_end=len(body),
        topic=topic,
        properties=properties,
    )
    return Record(head, body)
