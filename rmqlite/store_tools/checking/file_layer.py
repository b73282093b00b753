"""The files of a store, with changes laid over them in memory.

Nothing reaches the disk.  A check looks through such a layer at a store whose folders cannot
be opened, and a repair is tried out on one before it changes a byte.  A fault of a folder of
fixed-size files (a name, a length, a gap) that prevents an opening is corrected in the layer, so
that the rest of the folder can be checked: a foreign file is hidden, a wrong length is corrected, a
missing file becomes one of zeros.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.regular_file import REGULAR
from rmqlite.kernel.store.disk.segments import NAME_DIGITS, is_numbered, position_name
from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.store_tools.checking.finding import Finding
from rmqlite.store_tools.reading.log_view import LiveFiles

FOREIGN: Final = "foreign-file"
LENGTH: Final = "file-length"
GAP: Final = "missing-file"
GAP_FILES_MAX: Final = 256
"""A file that is farther from the others than this is foreign."""
_LISTINGS_MAX: Final = 5


class FileLayer(LiveFiles):
    """Read-only, like the files below; hide(), resize(), patch() and zero() change the view."""

    def __init__(self) -> None:
        super().__init__()
        self._hidden: set[Path] = set()
        self._sizes: dict[Path, int] = {}
        self._made: dict[Path, list[str]] = {}
        self._patches: dict[Path, list[tuple[int, bytes | None]]] = {}

    def hide(self, path: Path) -> None:
        """Show the folder without this file."""
        self._hidden.add(path)
        self._patches.pop(path, None)
        self._sizes.pop(path, None)
        if path.name in self._made.get(path.parent, ()):
            self._made[path.parent].remove(path.name)

    def resize(self, path: Path, size: int) -> None:
        """Show the file with this length; zeros fill an added part."""
        self._sizes[path] = size

    def make(self, path: Path, size: int) -> None:
        """Show a new file of zeros."""
        self._hidden.discard(path)
        insort(self._made.setdefault(path.parent, []), path.name)
        self._sizes[path] = size

    def patch(self, path: Path, position: int, data: bytes) -> None:
        """Show these bytes at a position."""
        self._patches.setdefault(path, []).append((position, data))

    def zero(self, path: Path, position: int) -> None:
        """Show only zeros from a position on."""
        self._patches.setdefault(path, []).append((position, None))

    def read(self, path: Path, position: int, size: int) -> bytes:
        if path in self._hidden:
            return b""
        wanted = self._sizes.get(path)
        if wanted is not None:
            size = max(0, min(size, wanted - position))
        data = b"" if self._is_made(path) else super().read(path, position, size)
        if wanted is not None:
            data = data.ljust(size, b"\0")
        for at, new in self._patches.get(path, ()):
            data = _patched(data, position, at, new)
        return data

    def read_all(self, path: Path) -> bytes | None:
        if path in self._hidden:
            return None
        if self._is_made(path) or path in self._patches:
            return self.read(path, 0, self.size(path))
        return super().read_all(path)

    def next_data(self, path: Path, position: int) -> int:
        # A patch may lie over a hole of the file.
        if path in self._patches or self._is_made(path):
            return min(position, self.size(path))
        found = super().next_data(path, position)
        wanted = self._sizes.get(path)
        if wanted is None:
            return found
        return min(found, wanted) if found < super().size(path) else wanted

    def size(self, path: Path) -> int:
        if path in self._sizes:
            return self._sizes[path]
        return super().size(path)

    def size_below(self, path: Path) -> int:
        """The length of the file on disk; 0 if there is none."""
        return super().size(path) if super().kind(path) == REGULAR else 0

    def kind(self, path: Path) -> str:
        if path in self._hidden:
            return ""
        return REGULAR if self._is_made(path) else super().kind(path)

    def names(self, folder: Path) -> list[str]:
        names = [name for name in super().names(folder) if folder / name not in self._hidden]
        made = self._made.get(folder)
        return sorted({*names, *made}) if made else names

    def _is_made(self, path: Path) -> bool:
        return path.name in self._made.get(path.parent, ())


def _patched(data: bytes, position: int, at: int, new: bytes | None) -> bytes:
    """The bytes of data, which lies at `position`, after a patch at `at`."""
    begin = max(0, at - position)
    end = len(data) if new is None else min(len(data), at + len(new) - position)
    if begin >= end:
        return data
    part = bytes(end - begin) if new is None else new[position + begin - at :][: end - begin]
    return data[:begin] + part + data[end:]


def look_at_root(files: Files, root: Path) -> Iterator[Finding]:
    """Check the files beside the folders; any regular file will do, because opening writes them."""
    for path in (root / "abort", root / "checkpoint"):
        kind = files.kind(path)
        if kind not in ("", REGULAR):
            yield Finding(path, 0, FOREIGN, f"{kind}, not {REGULAR}", REGULAR, kind)


def look_at_folder(
    files: FileLayer, folder: Path, file_bytes: int, *, is_live: bool = False
) -> list[Finding]:
    """Check the files of one folder; afterwards the layer shows the folder without faults."""
    found = _look(files, folder, file_bytes)
    for _ in range(_LISTINGS_MAX if is_live and found else 0):
        # A writer may have removed two files between two names of one listing.
        found = _look(files, folder, file_bytes)
    last = max(files.names(folder), default="")
    is_file = is_numbered(last) and files.kind(folder / last) == REGULAR
    if not is_live and is_file and files.size(folder / last) == 0:
        # A crash between creating a file and setting its length leaves it empty.
        files.resize(folder / last, file_bytes)
    for finding in found:
        if finding.what == FOREIGN:
            files.hide(finding.path)
        elif finding.what == LENGTH:
            files.resize(finding.path, file_bytes)
        else:
            files.make(finding.path, file_bytes)
    return found


def queue_folder(root: Path, key: QueueKey) -> Path:
    return root / "consumequeue" / key[0] / str(key[1])


def queue_name(key: QueueKey) -> str:
    """The name of a queue in a sentence."""
    return f"{key[0]} queue {key[1]}"


def _look(files: Files, folder: Path, file_bytes: int) -> list[Finding]:
    found = []
    starts = []
    names = files.names(folder)
    for name in names:
        path = folder / name
        kind = files.kind(path)
        if not is_numbered(name) or int(name) % file_bytes or kind not in ("", REGULAR):
            rule = f"a name of {NAME_DIGITS} digits, a multiple of {file_bytes}"
            if kind not in ("", REGULAR):
                rule = f"{REGULAR}, this is {kind}"
            found.append(Finding(path, 0, FOREIGN, f"not one of the files here: {rule}", rule))
            continue
        starts.append(int(name))
        size = files.size(path)
        if size != file_bytes and (size or name != names[-1]):
            text = f"{size} bytes long instead of {file_bytes}"
            # A file is empty if its length was lost in a power cut; opening restores the length.
            found.append(
                Finding(
                    path,
                    0,
                    LENGTH,
                    text,
                    str(file_bytes),
                    str(size),
                    size,
                    opening_mends=not size,
                    is_leftover=not size,
                )
            )
    near = _neighbours(starts, file_bytes)
    kept = set(near)
    for start in starts:
        if start not in kept:
            path = folder / position_name(start)
            found = [each for each in found if each.path != path]
            text = "not one of the files here: it is far from all the others"
            found.append(Finding(path, 0, FOREIGN, text))
    for start in range(near[0], near[-1], file_bytes) if near else ():
        if start not in kept:
            path = folder / position_name(start)
            text = "a gap: the file is missing between earlier and later ones"
            found.append(Finding(path, 0, GAP, text, size=file_bytes))
    return found


def _neighbours(starts: list[int], file_bytes: int) -> list[int]:
    """The largest group of files; groups are far from one another."""
    groups: list[list[int]] = []
    for start in starts:
        if groups and start - groups[-1][-1] <= GAP_FILES_MAX * file_bytes:
            groups[-1].append(start)
        else:
            groups.append([start])
    return max(groups, key=len, default=[])
