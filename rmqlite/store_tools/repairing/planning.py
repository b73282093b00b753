"""Finds a plan in rounds: check the store as it would be, then plan actions for the findings.

Each round does one kind of repair, because the next kind depends on its result: first files and
tables; then repaired places replace what is damaged; then records that cannot be right are given
up, when all records are found; checksums are made anew when the bytes are final.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records.record import MAGIC_BYTES
from rmqlite.kernel.store.commit_log import CommitLog
from rmqlite.kernel.store.disk.files import Files, ReadOnlyFiles
from rmqlite.kernel.store.disk.regular_file import REGULAR
from rmqlite.kernel.store.disk.segments import is_numbered
from rmqlite.kernel.store.opening.file_sizes import index_shape, sizes_of
from rmqlite.kernel.store.opening.recovery import DELAY_OFFSET_TABLE, LEVELS_TABLE, PROGRESS_TABLE
from rmqlite.kernel.store.tables.tables import BACKUP
from rmqlite.kernel.words.errors import InvalidValue, RepairRefused, StoreDamaged
from rmqlite.kernel.words.levels import LevelTable
from rmqlite.store_tools.check import AHEAD, BEHIND, StoreCheck
from rmqlite.store_tools.checking.file_layer import FOREIGN, GAP, LENGTH, FileLayer
from rmqlite.store_tools.checking.finding import Finding
from rmqlite.store_tools.checking.index import INDEX_FAULTS
from rmqlite.store_tools.checking.log import LOST_TAIL, POINTER, LogCheck
from rmqlite.store_tools.checking.queues import WRONG_ENTRIES
from rmqlite.store_tools.checking.sums import BROKEN_MARK, WRONG_SUM, UnsoundSpan, span_finding
from rmqlite.store_tools.checking.tables import UNREADABLE, load_sound
from rmqlite.store_tools.reading.snapshot import Snapshot
from rmqlite.store_tools.repairing.files import (
    clear_entries,
    forget_index,
    forget_progress,
    mend_file,
    mend_table,
)
from rmqlite.store_tools.repairing.log import (
    Interval,
    Pointers,
    cut_tail,
    interval_of,
    is_summed,
    mend_stretch,
    new_sums,
)
from rmqlite.store_tools.repairing.plan import (
    ACCEPTED,
    SUMS,
    Action,
    Overwrite,
    Plan,
    TopicCounts,
    Zero,
    count_topics,
    name_of,
    show,
    total,
)
from rmqlite.store_tools.repairing.suspects import Suspects, clear_pointer, records_of

ROUNDS_MAX: Final = 12
_OLD_LOG: Final = "it describes the log before the repair"
Progress = Callable[[int, int], None]
_READ_BYTES: Final = 1 << 20
_PLACE_AT: Final = 24
"""Distance of a record's physical offset from its magic number."""
_PLACE_END: Final = _PLACE_AT + 8


class _Persisted(NamedTuple):
    """The end of the log at the last persist, and the newest store timestamp before it."""

    end: int
    newest_ms: int


class Planning:
    """One plan for one store."""

    def __init__(
        self,
        root: Path,
        *,
        config: BrokerConfig | None,
        levels: LevelTable | None,
        progress: Progress | None,
    ) -> None:
        self._root = root
        self._config = config
        files = ReadOnlyFiles()
        # Read now: the files that show the sizes may change by the repair.
        self._sizes = sizes_of(files, root, config)
        self._index_shape = index_shape(files, root, config or BrokerConfig())
        files.close()
        self._levels = levels
        self._progress = progress
        self._checking: StoreCheck | None = None
        self._actions: list[Action] = []
        self._touched: set[int] = set()
        """The starts of changed log files that have checksums."""
        self._renewed: set[int] = set()
        self._cut: set[int] = set()
        """The physical offsets at which the log was cut."""
        self._trusted_end = 0
        self._persisted: _Persisted | None = None

    def run(self) -> Plan:
        checking, found = self._check()
        first = tuple(found)
        before: TopicCounts = {}
        if any(each.what == LOST_TAIL or not each.opening_mends for each in found):
            self._note(checking)
            for _ in range(ROUNDS_MAX):
                actions = self._next(checking, found)
                if not actions:
                    break
                if not self._actions:
                    before = counted_before(checking, self._root, found)
                self._actions += actions
                checking, found = self._check()
        config = self._config_to_open(checking)
        after = counted_after(checking, self._root) if self._actions else before
        checking.close()
        check_explained(self._root, self._actions, before, after)
        done = tuple(self._actions)
        return Plan(self._root, first, done, tuple(found), before, after, config)

    def _check(self) -> tuple[StoreCheck, list[Finding]]:
        """Check the store as it would be after all actions so far."""
        layer = FileLayer()
        for action in self._actions:
            for change in action.changes:
                show(change, layer)
        checking = StoreCheck(
            self._root,
            config=self._config,
            sizes=self._sizes,
            levels=self._levels,
            progress=self._progress,
            files=layer,
            trusted_end=self._trusted_end,
        )
        if self._checking is not None:
            self._checking.close()
        self._checking = checking
        return checking, list(checking.run())

    def _note(self, checking: StoreCheck) -> None:
        """Note facts that later rounds would no longer find."""
        tree = load_sound(checking.files, self._root / "config" / PROGRESS_TABLE)
        if tree is not None:
            persisted = _Persisted(int(tree["physicalOffset"]), int(tree["newestTimestamp"]))
            self._persisted = persisted
        if checking.walk is not None:
            self._trusted_end = checking.walk.trusted_end

    def _next(self, checking: StoreCheck, found: Sequence[Finding]) -> list[Action]:
        actions = [*self._mend_files(checking, found)]
        walk, log = checking.walk, checking.log
        if actions or walk is None or log is None:
            return actions
        actions = [*self._mend_damage(checking.files, log, walk)] or [
            *self._give_up(checking, log, walk, found)
        ]
        self._touch(log, checking.files, actions)
        return (
            actions
            or [*self._renew_sums(checking.files, log, walk, found)]
            or [*self._mend_queues(checking.files, found)]
        )

    def _touch(self, log: CommitLog, files: FileLayer, actions: Sequence[Action]) -> None:
        """Remember the log files whose checksums must be made anew."""
        folder = self._root / "commitlog"
        for change in [change for action in actions for change in action.changes]:
            if change.path.parent == folder and isinstance(change, Overwrite | Zero):
                start = int(change.path.name)
                if is_summed(log, files, start):
                    self._touched.add(start)

    # ---- files and tables

    def _mend_files(self, checking: StoreCheck, found: Sequence[Finding]) -> Iterator[Action]:
        log_folder = self._root / "commitlog"
        for each in found:
            if each.what in (FOREIGN, LENGTH, GAP):
                is_log = each.path.parent == log_folder
                if is_log:
                    check_holds_nothing(each, self._sizes.log_file_bytes)
                yield mend_file(each, self._sizes[0 if is_log else 1])
            elif each.what == UNREADABLE:
                name = each.path.name.removesuffix(BACKUP)
                is_logged = checking.logged is not None and checking.logged.is_logged(name)
                yield mend_table(checking.files, self._root, each, is_logged=is_logged)

    # ---- the log

    def _mend_damage(self, files: FileLayer, log: CommitLog, walk: LogCheck) -> Iterator[Action]:
        wanted = [
            each
            for each in walk.damaged
            if each.follows
            or each.was_on_disk
            or (self._actions and log.has_bytes_from(each.begin))
        ]
        pointers = self._pointers(files, [interval_of(each) for each in wanted])
        for damage in wanted:
            if damage.follows is not None:
                yield mend_stretch(log, damage, pointers)
                continue
            if damage.begin not in self._cut and self._is_lost(log, damage.begin, pointers):
                yield cut_tail(log, damage, pointers, self._trusted_end)
                self._note_cut(log, damage.begin)
        if wanted:
            yield from forget_progress(files, self._root, _OLD_LOG)

    def _note_cut(self, log: CommitLog, end: int) -> None:
        """Note a cut of the log: no mark may reach beyond it."""
        self._cut.add(end)
        self._trusted_end = min(self._trusted_end, end)
        for start in log.segment_starts:
            mark = log.log_end.mark_of(start)
            if mark is not None and mark.synced_end > end > start:
                self._touched.add(start)

    def _is_lost(self, log: CommitLog, end: int, pointers: Pointers) -> bool:
        """Does anything but storeProgress.json show that the log was longer?"""
        mark = log.log_end.mark_over(end)
        is_marked = mark is not None and end < mark.synced_end
        return is_marked or log.has_bytes_from(end) or bool(pointers.ranges_from(end))

    def _give_up(
        self, checking: StoreCheck, log: CommitLog, walk: LogCheck, found: Sequence[Finding]
    ) -> Iterator[Action]:
        files = checking.files
        odd = [gap.head for gap in walk.gaps] + walk.starts
        intervals = [(anchor, span.claim.position) for span, anchor in walk.changed]
        intervals += [(head.physical_offset, head.physical_offset + 1) for head in odd]
        suspects = Suspects(log, self._pointers(files, intervals), checking.levels)
        actions: list[Action] = []
        persisted = self._persisted
        for span, anchor in walk.changed:
            is_before = persisted is not None and span.claim.position <= persisted.end
            newest_ms = persisted.newest_ms if persisted is not None and is_before else None
            actions += suspects.in_span(span, anchor, newest_ms)
        for head in odd:
            actions += suspects.contradicted(head, head.store_timestamp_ms)
        for gap in () if actions else walk.gaps:
            actions += suspects.at_gap(gap, walk.starts)
        for each in () if actions else found:
            if each.what == POINTER:
                actions += clear_pointer(log, int(each.path.name) + each.position)
        if actions:
            actions += forget_progress(files, self._root, _OLD_LOG)
        yield from {(each.path, each.position, each.what): each for each in actions}.values()

    def _renew_sums(
        self, files: FileLayer, log: CommitLog, walk: LogCheck, found: Sequence[Finding]
    ) -> Iterator[Action]:
        starts = {span.first.position // log.segment_bytes for span, _ in walk.changed}
        starts = {number * log.segment_bytes for number in starts} | self._touched
        starts |= {
            int(each.path.name)
            for each in found
            if each.what in (WRONG_SUM, BROKEN_MARK) and each.path.name.isdigit()
        }
        for span, anchor in walk.changed:
            if not self._is_mended(log, span):
                yield self._accept(log, span, anchor)
        for start in sorted(starts - self._renewed):
            self._renewed.add(start)
            content_end = walk.content_ends.get(start, start)
            synced_end = content_end
            if start == log.segment_starts[-1]:
                synced_end = min(content_end, self._trusted_end or walk.end)
            changes = tuple(new_sums(log, files, start, content_end, synced_end))
            wrong = "its checksums do not fit its bytes"
            yield Action(SUMS, log.path_at(start), 0, wrong, "made anew", changes)
        if walk.changed:
            yield from forget_progress(files, self._root, _OLD_LOG)

    def _is_mended(self, log: CommitLog, span: UnsoundSpan) -> bool:
        """Does another action change these bytes, or were their checksums renewed?"""
        begin, end = interval(span)
        path, at = log.path_at(begin), begin % log.segment_bytes
        for action in self._actions:
            for change in action.changes:
                if change.path == path and isinstance(change, Overwrite):
                    upto = change.position + len(change.data)
                    if change.position < at + end - begin and at < upto:
                        return True
        return begin - at in self._renewed

    def _accept(self, log: CommitLog, span: UnsoundSpan, anchor: int) -> Action:
        finding = span_finding(log, span)
        _, heads, _ = records_of(log, span, anchor)
        remedy = "it is unknown which bytes: they stay as they are and get a new checksum"
        return Action(
            ACCEPTED,
            finding.path,
            finding.position,
            finding.sentence,
            remedy,
            (),
            about=tuple(name_of(head) for head in heads),
        )

    # ---- queues, and the tables of progress

    def _mend_queues(self, files: FileLayer, found: Sequence[Finding]) -> Iterator[Action]:
        wrong = ""
        fault = next((each for each in found if each.what in INDEX_FAULTS), None)
        if fault is not None:
            yield forget_index(files, fault)
        for each in found:
            if each.what in WRONG_ENTRIES and not each.opening_mends:
                yield clear_entries(files, each, self._sizes[1])
                wrong = "queues are made again from the log's first record on"
            elif each.path.name == PROGRESS_TABLE and each.what in (AHEAD, BEHIND, WRONG_SUM):
                wrong = each.sentence
            elif each.path.name == DELAY_OFFSET_TABLE and each.what == AHEAD:
                yield mend_table(files, self._root, each)
        if wrong:
            yield from forget_progress(files, self._root, wrong)

    def _pointers(self, files: FileLayer, intervals: Sequence[Interval]) -> Pointers:
        return Pointers(files, self._root, self._sizes[1], intervals)

    def _config_to_open(self, checking: StoreCheck) -> BrokerConfig:
        """The configuration to open the store with.  Raises InvalidValue without its levels."""
        logged = checking.logged
        is_known = logged is not None and logged.has(LEVELS_TABLE)
        is_known |= checking.levels_given is not None
        if self._actions and not is_known and checking.has_levels():
            rule = "the store has no record of its delay levels: give them"
            raise InvalidValue("levels", "", rule)
        plain = self._config or BrokerConfig(message_delay_level=checking.levels.current.text)
        # Not with_values(): an existing store may have shorter files than a new one may get.
        return plain.model_copy(
            update={
                "store_path": self._root,
                "mapped_file_size_commit_log": self._sizes.log_file_bytes,
                "mapped_file_size_consume_queue": self._sizes.queue_file_bytes,
                "max_hash_slots": self._index_shape.slots,
                "max_index_entries": self._index_shape.entries,
            }
        )


def interval(span: UnsoundSpan) -> Interval:
    return span.first.position, span.claim.position


def counted_before(checking: StoreCheck, root: Path, found: Sequence[Finding]) -> TopicCounts:
    """The messages that can be read of a store as it is; damage is skipped.

    found: the check's findings; unreadable tables among them are hidden in its layer.
    """
    for each in found:
        if each.what == UNREADABLE:
            checking.files.hide(each.path)
    return count_topics(_snapshot(checking, root))


def counted_after(checking: StoreCheck, root: Path) -> TopicCounts:
    """The messages that can be read after the repair.

    Raises RepairRefused if the store would not open.
    """
    try:
        snapshot = _snapshot(checking, root)
        if snapshot.damage is not None:
            raise snapshot.damage
        return count_topics(snapshot)
    except StoreDamaged as error:
        raise _refused(root, f"it would not open afterwards: {error}") from error


def check_explained(
    root: Path, actions: Sequence[Action], before: TopicCounts, after: TopicCounts
) -> None:
    """Raises RepairRefused if more messages would be gone than the actions name."""
    is_open = any(action.lost and not action.lost_messages for action in actions)
    gone = total(before.values()).messages - total(after.values()).messages
    named = sum(action.lost_messages for action in actions)
    if actions and gone > named and not is_open:
        why = f"{gone} messages would no longer be readable, but the plan names only {named}"
        raise _refused(root, why)


def check_holds_nothing(finding: Finding, file_bytes: int) -> None:
    """Raises RepairRefused if an action would remove sound records from a log file.

    This concerns findings about a foreign file, or one that is too long.
    """
    path = finding.path
    if not is_numbered(path.name) or finding.what not in (FOREIGN, LENGTH):
        return
    files = ReadOnlyFiles()
    begin = file_bytes if finding.what == LENGTH else 0
    at = _record_in(files, path, begin) if files.kind(path) == REGULAR else None
    files.close()
    if at is not None:
        why = f"a record lies where it belongs at byte {at}, and yet {finding.sentence}"
        raise _refused(path, why)


def _refused(path: Path, why: str) -> RepairRefused:
    sentence = f"{path} cannot be repaired: {why}; nothing was changed"
    return RepairRefused(sentence, field="store", value=path, rule=why)


def _snapshot(checking: StoreCheck, root: Path) -> Snapshot:
    return Snapshot(
        checking.files,
        root,
        checking.sizes,
        checking.levels.current,
        is_crashed=checking.files.read_all(root / "abort") is not None,
        skip_damaged=True,
    )


def _record_in(files: Files, path: Path, begin: int) -> int | None:
    """The first position from `begin` on in a log file where a record has its own offset."""
    size, start = files.size(path), int(path.name)
    while begin < size:
        begin = files.next_data(path, begin)
        data = files.read(path, begin, min(_READ_BYTES, size - begin))
        at = data.find(MAGIC_BYTES)
        while 4 <= at <= len(data) - _PLACE_END:
            place = int.from_bytes(data[at + _PLACE_AT : at + _PLACE_END])
            if place == start + begin + at - 4:
                return begin + at - 4
            at = data.find(MAGIC_BYTES, at + 1)
        # The next piece repeats the end of this one, for a record across the seam.
        begin += len(data) if begin + len(data) >= size else max(1, len(data) - _PLACE_END - 4)
    return None
