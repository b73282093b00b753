"""The tables whose every change is a record of TABLES_TOPIC, such as config/topics.json.

The log is the truth.  A file under config/ is a snapshot of it, written off the loop soon after a
change; its key LOG_END is the physical offset up to which it is true.  An opening reads the
snapshots and the records behind them; if a snapshot is lost, all records.  If a file has no such
key, RocketMQ, an older rmqlite or an editor wrote it: then it is the truth, and the log gets what
it lacks (`unlogged`).

A table is a tree of JSON, and a change puts values at paths in it, or removes them (None).  No
tree is changed in place: a change makes a new one, so that any thread can encode the former one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from rmqlite.kernel.config.table_shapes import TableChange, validated
from rmqlite.kernel.records.drafts import Draft, fresh
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.segments import Segments
from rmqlite.kernel.store.log.log_walk import LogWalk
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.store.tables.tables import Tree
from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.kernel.words.json_tree import WrongValue
from rmqlite.kernel.words.names import TABLES_TOPIC

_T = TypeVar("_T")
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
Row = tuple[Sequence[str], Any]
"""The names that lead to a value, and the value; None: it is removed."""
Rows = Iterable[Row]
Changes = Mapping[str, Sequence[Row]]
"""By the name of the table's file."""
Read = Callable[[Files, Path], Tree | None]
"""Reads a file; None when there is none.  Raises StoreDamaged."""
LOG_END: Final = "rmqliteLogEnd"
LOG_LACKS: Final = "rmqliteLogLacks"
"""True in a file that has something which is not in the log yet."""
TABLES_QUEUE: Final = (TABLES_TOPIC, 0)
BODY_BYTES_MAX: Final = 1 << 16
"""The rows of a longer change are several records."""
_ROW_DEPTH_MAX: Final = 2
"""What a file has and the log lacks is logged as rows of at most so many names."""

log = logging.getLogger(__name__)


class Logged(NamedTuple):
    """A change as it lies in the log."""

    physical_offset: int
    table: str
    rows: Sequence[Row]


class _File(NamedTuple):
    """end: the physical offset up to which it is true, or -1 for one that others have written."""

    tree: Tree | None
    end: int
    log_lacks: bool


class LoggedTables:
    """The tables of one store, by the names of their files under config/."""

    def __init__(self, files: Files, folder: Path, read: Read = tables.load) -> None:
        self._files = files
        self._read = read
        self._folder = folder
        self._trees: dict[str, Tree] = {}
        self._file_ends: dict[str, int] = {}
        self._saving: dict[str, Tree] = {}
        self._behind: Sequence[Logged] = ()
        self._older: Callable[[], Sequence[Logged]] = tuple
        self._begin = 0
        self.ends: dict[str, int] = {}
        """The physical offset up to which the file of each table is true after the next save."""
        self.logged_end = 0
        """Where the record of the last change ends."""
        self.carried_end = 0
        """Rows whose records lie before are in later records, too."""
        self.changed: set[str] = set()
        """Tables whose files are not current."""
        self.unlogged: dict[str, list[Row]] = {}
        """What tables have and the log lacks."""

    def replay(
        self,
        changes: Sequence[Logged],
        begin: int,
        ends: Mapping[str, int],
        older: Callable[[], Sequence[Logged]],
    ) -> None:
        """The log's changes, for the tables that are loaded next.

        changes: those from the physical offset `begin` on; older: reads those before.  ends: of
        the files when `begin` was saved.
        """
        self._behind, self._begin, self.ends = changes, begin, dict(ends)
        self._older = cache(older)

    def load_all(self) -> None:
        """Load every table that has changed, or that had a file.  Raises StoreDamaged."""
        for name in {*self.ends, *[each.table for each in self._behind]}:
            self.has(name)

    def end_at(self, log_end: int) -> None:
        """The log ends here: what only a file has, because the log lost its tail, is unlogged."""
        for name, tree in self._trees.items():
            if self._file_ends[name] > log_end:
                self._find_unlogged(name, tree, ())

    def load(self, name: str, shape: type[_T]) -> _T | None:
        """A table as a value of this shape; None when there is none.  Raises StoreDamaged."""
        if not self.has(name):
            return None
        try:
            return validated(shape, self._trees[name])
        except WrongValue as error:
            # The file's own error says where.
            path = self._folder / name
            tables.load_as(self._files, path, shape)
            raise StoreDamaged(str(path), 0, error.rule, error.found) from error

    def has(self, name: str) -> bool:
        """Is there such a table?  Raises StoreDamaged for a file that cannot be read."""
        if name not in self._trees:
            self._open(name)
        return name in self._trees

    def is_logged(self, name: str) -> bool:
        """Has the log changes of a table, and so all of them?"""
        return any(each.table == name for each in (*self._older(), *self._behind))

    def records(self, changes: Changes, host: bytes, now_ms: int, room: int) -> list[NewRecord]:
        """The records of changes.  host: the broker's own; room: bytes of a log file."""
        bodies = chain.from_iterable(
            _bodies(name, rows, min(BODY_BYTES_MAX, room // 4)) for name, rows in changes.items()
        )
        return [fresh(Draft(*TABLES_QUEUE, b"", body, now_ms, host), host) for body in bodies]

    def put_rows(self, name: str, rows: Rows, *, is_logged: bool = True) -> None:
        """Change a table in memory, after its records were appended, or before."""
        rows = list(rows)
        self._trees[name] = changed(self._trees.get(name, {}), rows)
        self.changed.add(name)
        if is_logged:
            self.unlogged.pop(name, None)
        else:
            self.unlogged.setdefault(name, []).extend(rows)

    def logged(self) -> None:
        """What was unlogged has been appended."""
        self.changed |= self.unlogged.keys()
        self.unlogged.clear()

    def still(self, changes: Iterable[Logged]) -> dict[str, list[Row]]:
        """The rows of former changes as they are now, without those that are gone."""
        rows = {(each.table, tuple(names)): None for each in changes for names, _ in each.rows}
        found: dict[str, list[Row]] = {}
        for name, names in rows:
            value = _found(self._trees.get(name), names)
            if value is not None:
                found.setdefault(name, []).append((names, value))
        return found

    def begin_save(self, log_end: int) -> dict[str, tables.Snapshot]:
        """Snapshots of the files that are not current, for a log of this end; then call saved()."""
        self._saving = {name: self._trees[name] for name in self.changed}
        found: dict[str, tables.Snapshot] = {}
        for name, tree in self._saving.items():
            self.ends[name] = log_end
            found[name] = self.dated(tree, log_end, is_logged=name not in self.unlogged)
        return found

    @staticmethod
    def dated(tree: Tree, log_end: int, *, is_logged: bool = True) -> tables.Snapshot:
        """A snapshot that says up to where in the log it is true."""
        keys = {LOG_END: log_end} | ({} if is_logged else {LOG_LACKS: True})
        return partial(dict, tree, **keys)

    def saved(self) -> None:
        """The snapshots are on disk; without this call the next ones repeat them."""
        self.changed -= {name for name, tree in self._saving.items() if self._trees[name] is tree}

    def _load(self, name: str) -> _File:
        tree = self._read(self._files, self._folder / name)
        if tree is None:
            return _File(None, -1, log_lacks=False)
        end = tree.pop(LOG_END, None)
        log_lacks = tree.pop(LOG_LACKS, False) or not isinstance(end, int)
        return _File(tree, end if isinstance(end, int) else -1, log_lacks=log_lacks)

    def _open(self, name: str) -> None:
        file, saved = self._load(name), self.ends.get(name, -1)
        self._file_ends[name] = file.end
        # Else the file is lost, or it is the one before.
        is_saved = file.end >= saved
        changes = [*([] if is_saved and not file.log_lacks else self._older()), *self._behind]
        mine = [each for each in changes if each.table == name]
        since = self._begin if is_saved and saved >= 0 else file.end
        tree, behind = file.tree or {}, [each for each in mine if each.physical_offset >= since]
        if file.tree is not None and file.end < 0:
            # Others wrote it, and perhaps before the last changes were in a file.
            late = [each for each in mine if each.physical_offset >= self._begin]
            added = [row for row in _rows(late) if _found(tree, row[0]) is None]
            tree = changed(tree, added if self.ends else ())
        elif behind:
            tree = changed(tree, _rows(behind))
            self.changed.add(name)
        if file.tree is not None or behind:
            self._trees[name] = tree
        if file.log_lacks:
            self._find_unlogged(name, tree, mine)

    def _find_unlogged(self, name: str, tree: Tree, mine: Sequence[Logged]) -> None:
        """Note what the log lacks of a table; mine: all its changes in the log."""
        lacking = list(_difference(changed({}, _rows(mine)), tree))
        if lacking:
            self.unlogged[name] = lacking
        self.changed.add(name)


def changes_in(segments: Segments, begin: int, end: int) -> Iterator[tuple[Record, Logged | None]]:
    """The sound records of TABLES_TOPIC between two positions; the change is None if unreadable."""
    for window in LogWalk(segments, begin, end, needle=TABLES_TOPIC.encode()):
        for head in window.heads:
            found = Record(head, window.data)
            if head.topic == TABLES_TOPIC and found.has_sound_body():
                yield found, logged_in(found)


def logged_in(found: Record) -> Logged | None:
    """The change that a record of TABLES_TOPIC has; None, with a warning, for an unknown form."""
    place = found.head.physical_offset
    try:
        change = validated(TableChange, tables.decode(bytes(found.body)))
    except (tables.NoTable, WrongValue) as error:
        log.warning("a change of a table cannot be read physical_offset=%d error=%s", place, error)
        return None
    return Logged(place, change.table, change.rows)


def changed(tree: Tree, rows: Rows) -> Tree:
    """The tree with other values at some paths; it shares all other parts with the former one."""
    tree = dict(tree)
    own = {id(tree): tree}
    for names, value in rows:
        at = tree
        for name in names[:-1]:
            inner = at.get(name)
            if id(inner) not in own:
                inner = dict(inner) if isinstance(inner, dict) else {}
                own[id(inner)] = at[name] = inner
            at = own[id(inner)]
        if value is None:
            at.pop(names[-1], None)
        else:
            at[names[-1]] = value
    return tree


def put_all(rows: dict[_Key, _Value], changes: Mapping[_Key, _Value | None]) -> None:
    """Put rows into a table, or remove those that are None."""
    for key, value in changes.items():
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value


def _difference(before: Tree, after: Tree, names: tuple[str, ...] = ()) -> Iterator[Row]:
    """The rows that make one tree of another."""
    for name in [*after, *[each for each in before if each not in after]]:
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if isinstance(new, dict) and new and len(names) + 1 < _ROW_DEPTH_MAX:
            yield from _difference(old if isinstance(old, dict) else {}, new, (*names, name))
        else:
            yield (*names, name), new


def _found(tree: Any, names: Sequence[str]) -> Any:
    """The value at a path; None if there is none."""
    for name in names:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(name)
    return tree


def _rows(changes: Iterable[Logged]) -> Iterator[Row]:
    return chain.from_iterable(each.rows for each in changes)


def _bodies(name: str, rows: Rows, bytes_max: int) -> Iterator[bytes]:
    """Bodies of records with these rows, of about bytes_max if no row is longer."""
    texts: list[str] = []
    length = 0
    for row in rows:
        text = json.dumps(row, separators=(",", ":"))
        if texts and length + len(text) > bytes_max:
            yield _body(name, texts)
            texts, length = [], 0
        texts.append(text)
        length += len(text)
    if texts:
        yield _body(name, texts)


def _body(name: str, texts: Sequence[str]) -> bytes:
    return f'{{"table":{json.dumps(name)},"rows":[{",".join(texts)}]}}'.encode()
