"""A check's single walk over the whole log: records, checksums, queue offsets.

Bytes are read in blocks, and each block goes to the checksums first.  Records are read from
it as recovery would read them, and the walk goes on behind damage; the entry that each record
should have goes to its queue.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from rmqlite.kernel.records import record
from rmqlite.kernel.records.completion import completion_of, wait_queue_left, waited_for
from rmqlite.kernel.records.record import BLANK_BYTES, Head
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import queue_of, wait_queue_name, wait_queue_of
from rmqlite.kernel.store.commit_log import CommitLog
from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.kernel.store.log.repaired_place import is_anonymous, is_repaired
from rmqlite.kernel.store.walk import Completing, Redo
from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.store_tools.checking.finding import Damage, Finding, Gap, what_is_wrong
from rmqlite.store_tools.checking.index import IndexCheck
from rmqlite.store_tools.checking.queues import QueueChecks
from rmqlite.store_tools.checking.sums import SumsCheck, UnsoundSpan, span_finding

READ_BYTES: Final = 1 << 20
RECORD: Final = "damaged-record"
LOST_TAIL: Final = "lost-tail"
UNSYNCED_TAIL: Final = "unsynced-tail"
SEQUENCE: Final = "queue-offset"
POINTER: Final = "wrong-delivery"
EARLY: Final = "delivered-early"
AGAIN: Final = "delivered-again"


class LogCheck:
    """One walk; afterwards `end`, `records` and `at_persisted` hold its results."""

    def __init__(
        self,
        log: CommitLog,
        sums: SumsCheck,
        queues: QueueChecks,
        index: IndexCheck,
        *,
        log_begin: Callable[[], int],
        trusted_end: int,
        persisted_end: int,
        is_live: bool,
        progress: Callable[[int], None],
    ) -> None:
        """log_begin: the log's minimum now.  Up to trusted_end the log was on disk once.

        is_live: a broker may still append behind it.  persisted_end: there the walk notes
        at_persisted.  progress: receives the number of bytes done.
        """
        self.records = 0
        self.bytes = 0
        self.end = log.min_offset
        """One past the last record."""
        self.newest_timestamp_ms = 0
        self.at_persisted: Moment | None = None
        """The state at persisted_end; None if the walk did not reach it."""
        self.damaged: list[Damage] = []
        self.gaps: list[Gap] = []
        self.starts: list[Head] = []
        """Records with which a queue begins, or begins anew, and records without a queue."""
        self.changed: list[tuple[UnsoundSpan, int]] = []
        """Bytes that have changed, and where a record begins at or before them."""
        self.content_ends: dict[int, int] = {}
        """By start of the file: one past its last record and its blank's head."""
        self._log = log
        self._sums = sums
        self._queues = queues
        self._index = index
        self._redo = CheckedRedo(log, queues, log_begin)
        self.trusted_end = trusted_end
        self._persisted_end = persisted_end
        self._is_live = is_live
        self._progress = progress
        self._position = log.min_offset
        self._is_over = False
        self._found = self._redo.found

    def run(self) -> Iterator[Finding]:
        """All findings, file by file."""
        for start in self._log.segment_starts:
            self._check_file(start)
            yield from self._told()
        if self.end == self._persisted_end and self.at_persisted is None:
            self._note_persisted()
        self._redo.write()

    def _check_file(self, start: int) -> None:
        log, sums = self._log, self._sums
        sums.begin_file(start)
        file_end = start + log.segment_bytes
        carried, at = b"", start
        begins = [start]
        while at < file_end and (self._wants(file_end) or at < sums.summed_end):
            begins.append(self._position)
            part = log.read_raw(at, min(READ_BYTES, file_end - at))
            if not part:
                # Retention has removed the file: skip it.
                self._position = max(self._position, file_end)
                break
            sums.feed(part)
            base = at - len(carried)
            at += len(part)
            if self._wants(file_end) and self._position < at:
                data = (carried + part if carried else part)[self._position - base :]
                base = self._position
                self._take(data, base, is_whole=at >= file_end)
                carried = data[self._position - base :]
            self.bytes += len(part)
            self._progress(self.bytes)
        content_end = self.end + BLANK_BYTES if self._position >= file_end else self.end
        self.content_ends[start] = max(start, content_end)
        sums.end_file(content_end)
        reach = max(self.trusted_end, content_end)
        sums.spans = [each for each in sums.spans if each.claim.position <= reach]
        sums.wrong = [each for each in sums.wrong if each[0] <= reach]
        for span in sums.spans:
            before = bisect_right(begins, span.first.position) - 1
            self.changed.append((span, begins[before]))

    def _wants(self, file_end: int) -> bool:
        return self._position < file_end and not self._is_over

    def _told(self) -> Iterator[Finding]:
        """The findings in one file; changed bytes only if no damaged record covers them."""
        log = self._log
        extents = []
        for finding in self._found:
            begin = int(finding.path.name) + finding.position
            extents.append((begin, begin + max(1, finding.size)))
            yield finding
        for _, finding in self._sums.wrong:
            yield finding
        for span in self._sums.spans:
            first, last = span.first.position, span.claim.position
            if not any(begin < last and first < end for begin, end in extents):
                yield span_finding(log, span)
        yield from self._queues.take_found()
        self._found.clear()
        self._sums.wrong, self._sums.spans = [], []

    # ---- records

    def _take(self, data: bytes, base: int, *, is_whole: bool) -> None:
        """Take every record in data, which lies at base; is_whole: data ends with the file."""
        file_end = base - base % self._log.segment_bytes + self._log.segment_bytes
        while self._wants(file_end):
            at = self._take_plain(data, self._position - base, base)
            position = self._position = base + at
            if position == self._persisted_end and self.at_persisted is None:
                self._note_persisted()
            if position >= file_end:
                return
            left = len(data) - at
            size, magic = record.BLANK.unpack_from(data, at) if left >= BLANK_BYTES else (0, 0)
            is_begun = left < BLANK_BYTES or (magic == record.MAGIC and size > left)
            if is_begun and not is_whole and size <= file_end - position:
                return
            head = record.read_head(data, at)
            if head is not None and head.physical_offset == position and self._is_sound(head, data):
                self._position = self.end = position + head.size
                self._check_record(Record(head, data))
            elif magic == record.BLANK_MAGIC and size == file_end - position:
                self._position = file_end
            else:
                self._break(position)

    def _is_sound(self, head: Head, data: bytes) -> bool:
        if not record.has_sound_body(head, data):
            return False
        return head.physical_offset < self.trusted_end or not self._log.log_end.is_torn(head)

    def _take_plain(self, data: bytes, at: int, base: int) -> int:
        """Take ordinary records; returns where the first other one begins."""
        upto = len(data)
        if base + at < self._persisted_end < base + upto:
            upto = self._persisted_end - base
        plain = self._redo.plain(data, at, base, upto)
        if plain.keyed:
            self.newest_timestamp_ms = max(self.newest_timestamp_ms, plain.newest_timestamp_ms)
            self.end = base + plain.at
            self.records += len(plain.keyed)
            self._index.want(plain.keyed)
        return plain.at

    def _check_record(self, walked: Record) -> None:
        head, queues = walked.head, self._queues
        self.records += 1
        self.newest_timestamp_ms = max(self.newest_timestamp_ms, head.store_timestamp_ms)
        if not is_anonymous(head):
            self._index.want_head(head)
            if not record.has_entry(head.sys_flag) and not is_repaired(head):
                self.starts.append(head)
                return
            key = (head.topic, head.queue_id)
            is_dead = queues.deleted.is_dead(*key, head.queue_offset, head.physical_offset)
            if not is_dead and queues.opened(key) is None:
                self._redo.complete(walked)
                return
            if not is_dead and self._redo.begins(head):
                self.starts.append(head)
                if wait_queue := wait_queue_of(*key):
                    queues.progress.of(wait_queue).add(0, head.queue_offset)
        try:
            self._redo.enter(walked)
        except StoreDamaged:
            self._skip_gap(head)
            if head.queue_offset < 0:
                self._redo.complete(walked)
            else:
                expected = queues.queue(*key).max_offset
                self._redo.enter(Record(head._replace(queue_offset=expected), walked.buffer))

    def _skip_gap(self, head: Head) -> None:
        queue = self._queues.queue(head.topic, head.queue_id)
        self.gaps.append(Gap(head, queue.max_offset, queue.last_offset))
        text = f"{queue.name}: queue offset {head.queue_offset} follows {queue.max_offset - 1}"
        self._report(
            head.physical_offset,
            SEQUENCE,
            text,
            head.size,
            expected=str(queue.max_offset),
            found=str(head.queue_offset),
        )
        if head.queue_offset >= queue.max_offset:
            self._redo.skip_to(queue.key, head.queue_offset)

    def _note_persisted(self) -> None:
        self._redo.write()
        progress = self._queues.progress
        self.at_persisted = Moment(self._queues.ranges(), progress.ranges(), progress.pending_now())

    # ---- damage

    def _break(self, position: int) -> None:
        """Handle bytes that are neither a record nor a blank: the log's end, or damage."""
        log_end = self._log.log_end
        if not self._is_live or position >= self.trusted_end:
            try:
                log_end.check(position, self.newest_timestamp_ms, self._persisted_end)
            except StoreDamaged:
                # A record that was read while it was written is whole by now.
                self._is_over = self._is_live and log_end.goes_on_at(position)
            else:
                self._end_here(position)
            if self._is_over:
                return
        # A changed timestamp must not hide all records behind it.
        newest_ms = 0 if position < self.trusted_end else self.newest_timestamp_ms
        follows = log_end.next_sound(position, newest_ms)
        if follows is not None:
            self._note_damage(position, follows)
            text = f"{what_is_wrong(self._log, position)}; records follow"
            self._report(position, RECORD, text, follows - position)
            self._position = follows
            return
        self._note_damage(position, None)
        text = f"{what_is_wrong(self._log, position)}; nothing sound follows"
        lost = max(0, self.trusted_end - position)
        if lost:
            text += f", though {lost} bytes more were on disk"
        self._report(position, LOST_TAIL, text, lost)
        self._is_over = True

    def _end_here(self, position: int) -> None:
        self._is_over = True
        lost = self.trusted_end - position
        if lost <= 0 and (self._is_live or not self._log.has_bytes_from(position)):
            return
        self._note_damage(position, None)
        what = what_is_wrong(self._log, position)
        text = f"{what}; nothing follows, so opening the store cuts it"
        if lost > 0:
            text += f": {lost} bytes that were on disk are lost"
        self._report(
            position,
            LOST_TAIL if lost > 0 else UNSYNCED_TAIL,
            text,
            max(0, lost),
            opening_mends=True,
        )

    def _note_damage(self, position: int, follows: int | None) -> None:
        was_on_disk = position < self.trusted_end
        self.damaged.append(Damage(position, follows, self.newest_timestamp_ms, was_on_disk))
        if follows is not None:
            self._index.skip(position, follows)

    def _report(
        self,
        physical_offset: int,
        what: str,
        text: str,
        size: int = 0,
        *,
        expected: str = "",
        found: str = "",
        opening_mends: bool = False,
    ) -> None:
        position = physical_offset % self._log.segment_bytes
        path = self._log.path_at(physical_offset)
        finding = Finding(path, position, what, text, expected, found, size, opening_mends)
        self._found.append(replace(finding, is_leftover=what == UNSYNCED_TAIL))


class Moment(NamedTuple):
    """The state of a walk at one point.

    queues: first and next queue offset.  completed: by level, ranges of queue offsets.
    pending: by level and topic, the number of waiting messages.
    """

    queues: dict[QueueKey, tuple[int, int]]
    completed: dict[int, list[tuple[int, int]]]
    pending: dict[int, dict[str, int]]


class CheckedRedo(Redo):
    """A walk that checks every record which completes a scheduled one."""

    def __init__(self, log: CommitLog, queues: QueueChecks, log_begin: Callable[[], int]) -> None:
        """log_begin: the log's minimum now."""
        super().__init__(queues, log)
        self.found: list[Finding] = []
        """The findings since the walk last took them."""
        self._checked_log = log
        self._queues = queues
        self._log_begin = log_begin

    def _complete_lost(self, topic: str, queue_id: int, queue_offset: int, count: int) -> None:
        """A lost record may have been delivered before it was lost."""

    def _complete(self, completing: Completing) -> None:
        physical_offset, topic, completes, stored_ms, properties = completing
        wait_queue = wait_queue_left(topic, properties)
        key = queue_of(wait_queue)
        scheduled = self._queues.queues.get(key)
        if completes <= self._checked_log.min_offset or key in self._queues.unreadable:
            return
        if scheduled is not None and not scheduled.is_settled:
            return
        entry = None
        if scheduled is not None:
            queue_offset = self._completed_by(wait_queue, completes)
            entry = self.entry(key, queue_offset) if queue_offset is not None else None
        if entry is None:
            # No finding if retention has just removed the scheduled record.
            if completes > self._log_begin():
                text = (
                    f"completes {completes}, where no record of {wait_queue_name(wait_queue)} ends"
                )
                self._add(physical_offset, POINTER, text)
            return
        if stored_ms < entry.tags_code and not completion_of(topic, properties).may_be_early:
            text = f"delivered {entry.tags_code - stored_ms} ms early"
            self._add(physical_offset, EARLY, text)
        assert queue_offset is not None
        destination = waited_for(topic, properties)
        if not self._queues.progress.complete_one(wait_queue, queue_offset, destination):
            text = f"completes queue offset {queue_offset} of {wait_queue_name(wait_queue)} again"
            self._add(physical_offset, AGAIN, text)

    def _add(self, physical_offset: int, what: str, text: str) -> None:
        log = self._checked_log
        position = physical_offset % log.segment_bytes
        self.found.append(Finding(log.path_at(physical_offset), position, what, text))
