"""Changes of files as values: first shown in a layer, then carried out.

All bytes that the changes overwrite or remove are copied to a side folder and synced before
the first change; each change may be made twice.  So an interrupted repair loses nothing, and
a new plan starts from the files as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Final

from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.regular_file import FOLDER, REGULAR
from rmqlite.store_tools.checking.file_layer import FileLayer

_COPY_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Other bytes at a position of a file; the file is made if there is none."""

    path: Path
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Zero:
    """Only zeros from a position of a file on."""

    path: Path
    position: int


@dataclass(frozen=True, slots=True)
class Resize:
    """Another length, or a new file of zeros."""

    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a file or folder with all its content, after a copy; of a link only the link."""

    path: Path


Change = Overwrite | Zero | Resize | Remove


def show(change: Change, layer: FileLayer) -> None:
    """Let the layer look as if the change were made."""
    path = change.path
    if isinstance(change, Overwrite):
        layer.patch(path, change.position, change.data)
    elif isinstance(change, Zero):
        layer.zero(path, change.position)
    elif isinstance(change, Remove):
        layer.hide(path)
    elif path.name in layer.names(path.parent):
        layer.resize(path, change.size)
    else:
        layer.make(path, change.size)


class Keeper:
    """Copies bytes that changes will overwrite or remove into a side folder, durably.

    A copy has the name of its file; a copy of a part also has its position in the name.
    """

    def __init__(self, files: Files, root: Path, side: Path) -> None:
        self._files = files
        self._root = root
        self._side = side
        self._removed: set[Path] = set()
        self._taken: set[Path] = set()

    def keep(self, change: Change) -> list[Path]:
        """Copy the bytes that one change overwrites or removes; returns the copies."""
        path = change.path
        if path in self._removed or not _exists(self._files, path):
            return []
        target = self._side / path.relative_to(self._root)
        if isinstance(change, Remove):
            self._removed.add(path)
            return list(self._keep_all(path, target))
        size = self._files.size(path)
        begin, end = change.size if isinstance(change, Resize) else change.position, size
        if isinstance(change, Overwrite):
            end = min(size, begin + len(change.data))
        elif not _has_bytes(self._files, path, begin, end):
            end = begin
        if begin >= end:
            return []
        return [self._copied(path, target.with_name(f"{target.name}@{begin}"), begin, end)]

    def _keep_all(self, path: Path, target: Path) -> Iterator[Path]:
        kind = self._files.kind(path)
        if kind == FOLDER:
            for name in self._files.names(path):
                yield from self._keep_all(path / name, target / name)
        elif kind == REGULAR:
            # Only regular files: the target of a link does not belong to this store.
            yield self._copied(path, target, 0, self._files.size(path))

    def _copied(self, path: Path, target: Path, begin: int, end: int) -> Path:
        """A copy of the bytes begin <= n < end, holes as holes, under a name of its own."""
        names = (target.with_name(f"{target.name}-{number}") for number in count(2))
        target = next(each for each in chain([target], names) if each not in self._taken)
        self._taken.add(target)
        files = self._files
        files.make_folder(target.parent)
        files.create(target, end - begin)
        at = begin
        while at < end:
            at = min(end, files.next_data(path, at))
            data = files.read(path, at, min(_COPY_BYTES, end - at))
            if any(data):
                files.write(target, at - begin, data)
            at += max(1, len(data))
        files.sync(target)
        return target


def make(change: Change, files: Files) -> None:
    """Make the change, durably."""
    path = change.path
    if isinstance(change, Remove):
        _remove(files, path)
    elif isinstance(change, Zero):
        files.cut(path, change.position)
    elif isinstance(change, Resize):
        files.make_folder(path.parent)
        files.create(path, change.size)
        files.sync(path)
    else:
        files.write(path, change.position, change.data)
        files.sync(path)


def _has_bytes(files: Files, path: Path, begin: int, end: int) -> bool:
    """Are there bytes other than zeros between begin and end?"""
    at = begin
    while at < end:
        at = min(end, files.next_data(path, at))
        data = files.read(path, at, min(_COPY_BYTES, end - at))
        if any(data):
            return True
        at += max(1, len(data))
    return False


def _remove(files: Files, path: Path) -> None:
    if files.kind(path) == FOLDER:
        for name in files.names(path):
            _remove(files, path / name)
    files.remove(path)


def _exists(files: Files, path: Path) -> bool:
    return path.name in files.names(path.parent)
