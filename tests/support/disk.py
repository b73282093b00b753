"""A disk in memory, as strict as POSIX allows: what was not synced may be lost in any way.

A file has what reading gives and what is on disk; in between lie changes, in order, each of
whole sectors.  A folder likewise: its names are on disk only after its own
fsync, and a crash keeps a prefix of what happened to them.  Everything is shared and nothing
is ever changed in place, so that a fork of the whole disk, at any moment, costs next to
nothing.  One process's calls come from one thread at a time.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

SECTOR_BYTES: Final = 512
"""So much is written whole or not at all, unless a write is torn."""
PAGE_BYTES: Final = 4096
"""A hole begins and ends at a multiple of this."""
ROOT: Final = Path("/disk")
"""Where everything lies; it is always there."""
_ROOT_NODE: Final = 1
_ZEROS: Final = bytes(PAGE_BYTES)

Loss = Literal["none", "all", "prefix", "sectors", "files"]
"""Which of what was not synced reaches the disk in a power cut.

prefix: what was done first, and the last of it torn at any byte.  sectors: any of them, each
as it was at some moment.  files: all of one and nothing of another.
"""
LOSSES: Final[tuple[Loss, ...]] = ("none", "all", "prefix", "sectors", "files")


class Change(NamedTuple):
    """One unsynced change of a file: sectors as they are after it, or another length."""

    serial: int
    position: int
    data: bytes
    first: int
    last: int
    """What the call itself wrote begins and ends there; around is what shares its sectors."""
    length: int | None
    """What the file's length has become, if this changed it."""
    is_whole: bool = True
    """Else it is still going on, and its last sector is not yet one to be written."""


Pages = Mapping[int, bytes]
"""By number; what is missing is a hole."""
_NO_PAGES: Final[Pages] = MappingProxyType({})


class Content(NamedTuple):
    """What is behind the length is zeros."""

    pages: Pages = _NO_PAGES
    length: int = 0


class File(NamedTuple):
    """cached is what reading gives; durable and some of the changes are what a crash leaves."""

    cached: Content = Content()
    durable: Content = Content()
    changes: tuple[Change, ...] = ()
    modified_ms: int = 0


Names = Mapping[str, int]


class Folder(NamedTuple):
    """Names and their nodes: now, on disk, and after each change in between."""

    names: Names
    durable: Names
    changes: tuple[tuple[int, Names], ...] = ()


class _Status(NamedTuple):
    st_mode: int
    st_size: int
    st_mtime_ns: int
    st_blocks: int


class _Usage(NamedTuple):
    f_blocks: int
    f_bfree: int
    f_bavail: int
    f_frsize: int = 4096


class _Open(NamedTuple):
    node: int
    path: str


@dataclass(slots=True)
class _Fault:
    call: str
    after: int
    times: int
    error: int
    kept_bytes: int


class SimulatedDisk:
    """A System for SystemFiles.  Each descriptor counts as another process to the locks."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        """Decides where a write is interrupted, and what a failed sync has written."""
        self.now_ms = 0
        """When files are modified."""
        self.used_ratio = 0.5
        self.calls: Counter[str] = Counter()
        """How often each call was made, the failed ones included."""
        self.faults_met = 0
        """How many calls have failed because a test wanted it."""
        self.after_each: Callable[[str, str], None] | None = None
        """Told the call and the path after each change, and in the middle of each write."""
        root: dict[str, int] = {}
        self._nodes: dict[int, File | Folder] = {_ROOT_NODE: Folder(root, root)}
        self._next_node = _ROOT_NODE + 1
        self._serial = 0
        self._open: dict[int, _Open] = {}
        self._next_fd = 3
        self._locks: dict[int, int] = {}
        self._faults: list[_Fault] = []

    # ---- what a test does to it

    def fail(
        self,
        call: str = "",
        *,
        after: int = 0,
        times: int = 1,
        error: int = errno.EIO,
        kept_bytes: int = 0,
    ) -> None:
        """Let `after` more calls pass, then fail `times` of them; "" is any but close.

        A write first keeps some bytes.  A sync that fails leaves nothing to sync: the next
        one succeeds, and what this one should have written is not on disk.
        """
        self._faults.append(_Fault(call, after, times, error, kept_bytes))

    def heal(self) -> bool:
        """No fault any more.  Was there one that had not come to its end?"""
        was_ill = bool(self._faults)
        self._faults.clear()
        return was_ill

    def fork_killed(self) -> SimulatedDisk:
        """The disk as it is when the process is gone: the cache stays."""
        fork = SimulatedDisk(self._serial)
        fork.now_ms, fork.used_ratio = self.now_ms, self.used_ratio
        fork._nodes = self._nodes.copy()
        fork._next_node, fork._serial = self._next_node, self._serial
        return fork

    def fork_power_cut(self, random: Random, loss: Loss | None = None) -> SimulatedDisk:
        """The disk as it may be when the power comes back."""
        which = random.choice(LOSSES) if loss is None else loss
        until = self._serial
        if which == "prefix":
            until = random.choice([self._synced_serial(), *self._unsynced_serials()])
        fork = self.fork_killed()
        likelihood = random.choice((0.1, 0.5, 0.9))
        for number, node in self._nodes.items():
            if not node.changes:
                continue
            if isinstance(node, Folder):
                names = _surviving_names(node, random, which, until)
                fork._nodes[number] = Folder(names, names)
            else:
                content = _surviving_content(node, random, which, until, likelihood)
                fork._nodes[number] = File(content, content, (), node.modified_ms)
        return fork

    def contents(self) -> dict[str, bytes | None]:
        """Every path with what reading gives; None for a folder."""
        every = self._walk(_ROOT_NODE, str(ROOT))
        return {
            path: _read(node.cached, 0, node.cached.length) if isinstance(node, File) else None
            for path, node in every
        }

    def export(self, folder: Path) -> None:
        """Write everything into a real folder; holes stay holes."""
        for path, node in self._walk(_ROOT_NODE, str(ROOT)):
            target = folder / Path(path).relative_to(ROOT)
            if isinstance(node, Folder):
                target.mkdir(parents=True, exist_ok=True)
                continue
            with target.open("wb") as file:
                for number, page in node.cached.pages.items():
                    file.seek(number * PAGE_BYTES)
                    file.write(page)
                file.truncate(node.cached.length)

    def forget(self, path: Path) -> None:
        """Somebody removes a file, or a folder with all that is in it; for good."""
        parent, name, number = self._parent(path)
        if name in parent.names:
            names = {each: node for each, node in parent.names.items() if each != name}
            self._nodes[number] = Folder(names, names)

    # ---- the system calls

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        assert mode & 0o600 == 0o600
        self._meet("open", path)
        parent, name, number = self._parent(path)
        node = parent.names.get(name) if name else _ROOT_NODE
        if node is None:
            if not flags & os.O_CREAT:
                raise _error(errno.ENOENT, path)
            node = self._new(File(modified_ms=self.now_ms))
            self._rename(number, {**parent.names, name: node})
            self._tell("open", str(path))
        elif flags & os.O_EXCL:
            raise _error(errno.EEXIST, path)
        elif isinstance(self._nodes[node], Folder):
            if flags & (os.O_WRONLY | os.O_RDWR):
                raise _error(errno.EISDIR, path)
        elif flags & os.O_DIRECTORY:
            raise _error(errno.ENOTDIR, path)
        elif flags & os.O_TRUNC and self._file(node).cached.length:
            self._change_length(node, 0)
            self._tell("open", str(path))
        fd = self._next_fd
        self._next_fd += 1
        self._open[fd] = _Open(node, str(path))
        return fd

    def close(self, fd: int) -> None:
        node = self._open.pop(fd).node
        if self._locks.get(node) == fd:
            del self._locks[node]

    def pread(self, fd: int, length: int, offset: int, /) -> bytes:
        at = self._at(fd)
        self._meet("pread", at.path)
        return _read(self._file(at.node).cached, offset, length)

    def posix_fadvise(self, fd: int, offset: int, length: int, advice: int, /) -> None:
        """Nothing is fetched: everything is in memory."""

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int, /) -> int:
        at = self._at(fd)
        fault = self._fault("pwrite")
        wanted = bytes(data[: fault.kept_bytes] if fault else data)
        middle = self.random.randrange(1, len(wanted)) if len(wanted) > 1 else 0
        if self.after_each and middle:
            before = self._nodes[at.node]
            self._write(at.node, offset, wanted[:middle], is_whole=False)
            self._tell("pwrite", f"{at.path} up to byte {offset + middle}")
            self._nodes[at.node] = before
        self._write(at.node, offset, wanted)
        self._tell("pwrite", at.path)
        if fault:
            raise _error(fault.error, at.path)
        return len(wanted)

    def ftruncate(self, fd: int, length: int, /) -> None:
        at = self._at(fd)
        self._meet("ftruncate", at.path)
        if self._file(at.node).cached.length != length:
            self._change_length(at.node, length)
            self._tell("ftruncate", at.path)

    def lseek(self, fd: int, position: int, whence: int, /) -> int:
        at = self._at(fd)
        self._meet("lseek", at.path)
        pages, size = self._file(at.node).cached
        if position >= size:
            raise _error(errno.ENXIO, at.path)
        is_data = whence == os.SEEK_DATA
        page = position // PAGE_BYTES
        if (page in pages) == is_data:
            return position
        if is_data:
            found = min((each for each in pages if each > page), default=size) * PAGE_BYTES
            if found >= size:
                raise _error(errno.ENXIO, at.path)
            return found
        while page in pages:
            page += 1
        return min(page * PAGE_BYTES, size)

    def fsync(self, fd: int) -> None:
        self._sync("fsync", self._at(fd))

    def fdatasync(self, fd: int) -> None:
        self._sync("fdatasync", self._at(fd))

    def fstat(self, fd: int) -> _Status:
        at = self._at(fd)
        self._meet("fstat", at.path)
        return self._status(at.node)

    def lockf(self, fd: int, command: int, length: int, /) -> None:
        at = self._at(fd)
        self._meet("lockf", at.path)
        assert length == 1
        holder = self._locks.get(at.node, fd)
        if holder != fd:
            raise _error(errno.EACCES if command == os.F_TEST else errno.EAGAIN)
        if command == os.F_TLOCK:
            self._locks[at.node] = fd

    def stat(self, path: Path) -> _Status:
        self._meet("stat", path)
        return self._status(self._existing(path))

    def lstat(self, path: Path) -> _Status:
        """There are no links here."""
        self._meet("lstat", path)
        return self._status(self._existing(path))

    def statvfs(self, path: Path) -> _Usage:
        self._meet("statvfs", path)
        self._existing(path)
        free = round(1_000 * (1 - self.used_ratio))
        return _Usage(1_000, free, free)

    def listdir(self, path: Path) -> list[str]:
        self._meet("listdir", path)
        node = self._nodes[self._existing(path)]
        if isinstance(node, File):
            raise _error(errno.ENOTDIR, path)
        return list(node.names)

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        assert mode & 0o700 == 0o700
        self._meet("mkdir", path)
        parent, name, number = self._parent(path)
        if not name or name in parent.names:
            raise _error(errno.EEXIST, path)
        self._rename(number, {**parent.names, name: self._new(Folder({}, {}))})
        self._tell("mkdir", str(path))

    def rmdir(self, path: Path) -> None:
        self._meet("rmdir", path)
        node = self._nodes[self._existing(path)]
        if isinstance(node, File):
            raise _error(errno.ENOTDIR, path)
        if node.names:
            raise _error(errno.ENOTEMPTY, path)
        self._drop("rmdir", path)

    def unlink(self, path: Path) -> None:
        self._meet("unlink", path)
        if isinstance(self._nodes[self._existing(path)], Folder):
            raise _error(errno.EISDIR, path)
        self._drop("unlink", path)

    def link(self, src: Path, dst: Path) -> None:
        self._meet("link", dst)
        node = self._existing(src)
        parent, name, number = self._parent(dst)
        if name in parent.names:
            raise _error(errno.EEXIST, dst)
        self._rename(number, {**parent.names, name: node})
        self._tell("link", str(dst))

    def replace(self, src: Path, dst: Path) -> None:
        assert src.parent == dst.parent, "a move to another folder would be in two prefixes"
        self._meet("replace", dst)
        node = self._existing(src)
        parent, name, number = self._parent(dst)
        names = {each: there for each, there in parent.names.items() if each != src.name}
        self._rename(number, {**names, name: node})
        self._tell("replace", str(dst))

    # ---- inside

    def _meet(self, call: str, path: Path | str) -> None:
        fault = self._fault(call)
        if fault:
            raise _error(fault.error, path)

    def _fault(self, call: str) -> _Fault | None:
        self.calls[call] += 1
        if not self._faults:
            return None
        for fault in self._faults:
            if fault.call not in ("", call):
                continue
            if fault.after:
                fault.after -= 1
                continue
            fault.times -= 1
            if not fault.times:
                self._faults.remove(fault)
            self.faults_met += 1
            return fault
        return None

    def _tell(self, call: str, path: str) -> None:
        if self.after_each:
            self.after_each(call, path)

    def _at(self, fd: int) -> _Open:
        found = self._open.get(fd)
        if found is None:
            raise _error(errno.EBADF)
        return found

    def _file(self, node: int) -> File:
        file = self._nodes[node]
        if isinstance(file, Folder):
            raise _error(errno.EISDIR)
        return file

    def _parent(self, path: Path) -> tuple[Folder, str, int]:
        """The folder that holds a path, its name there, and the folder's node."""
        above, name = _parts(path)
        number = _ROOT_NODE
        for part in above:
            folder = self._nodes[number]
            found = folder.names.get(part) if isinstance(folder, Folder) else None
            if found is None:
                raise _error(errno.ENOENT, path)
            number = found
        folder = self._nodes[number]
        if isinstance(folder, File):
            raise _error(errno.ENOTDIR, path)
        return folder, name, number

    def _existing(self, path: Path) -> int:
        parent, name, number = self._parent(path)
        found = parent.names.get(name) if name else number
        if found is None:
            raise _error(errno.ENOENT, path)
        return found

    def _status(self, number: int) -> _Status:
        node = self._nodes[number]
        if isinstance(node, Folder):
            return _Status(stat.S_IFDIR | 0o700, PAGE_BYTES, 0, PAGE_BYTES // 512)
        modified_ns = node.modified_ms * 1_000_000
        blocks = len(node.cached.pages) * PAGE_BYTES // 512
        return _Status(stat.S_IFREG | 0o600, node.cached.length, modified_ns, blocks)

    def _new(self, node: File | Folder) -> int:
        number = self._next_node
        self._next_node += 1
        self._nodes[number] = node
        return number

    def _rename(self, number: int, names: Names) -> None:
        folder = self._nodes[number]
        assert isinstance(folder, Folder)
        self._serial += 1
        changes = (*folder.changes, (self._serial, names))
        self._nodes[number] = Folder(names, folder.durable, changes)

    def _drop(self, call: str, path: Path) -> None:
        parent, name, number = self._parent(path)
        self._rename(number, {each: node for each, node in parent.names.items() if each != name})
        self._tell(call, str(path))

    def _write(self, number: int, position: int, data: bytes, *, is_whole: bool = True) -> None:
        if not data:
            return
        file = self._file(number)
        pages, length = dict(file.cached.pages), file.cached.length
        _splice(pages, position, data)
        end = position + len(data)
        begin = position - position % SECTOR_BYTES
        sectors = _read(Content(pages, 1 << 62), begin, end - end % -SECTOR_BYTES - begin)
        self._serial += 1
        longer = end if end > length else None
        change = Change(self._serial, begin, sectors, position, end, longer, is_whole)
        cached = Content(pages, max(length, end))
        self._nodes[number] = File(cached, file.durable, (*file.changes, change), self.now_ms)

    def _change_length(self, number: int, length: int) -> None:
        file = self._file(number)
        self._serial += 1
        change = Change(self._serial, length, b"", length, length, length)
        cached = _with_length(file.cached, length)
        self._nodes[number] = File(cached, file.durable, (*file.changes, change), self.now_ms)

    def _sync(self, call: str, at: _Open) -> None:
        fault = self._fault(call)
        node = self._nodes[at.node]
        if isinstance(node, Folder):
            if not fault:
                self._nodes[at.node] = Folder(node.names, node.names)
        elif node.changes:
            durable = node.cached
            if fault:
                durable = _surviving_content(node, self.random, "sectors", self._serial, 0.5)
            self._nodes[at.node] = node._replace(durable=durable, changes=())
        if fault:
            raise _error(fault.error, at.path)
        self._tell(call, at.path)

    def _unsynced_serials(self) -> list[int]:
        return sorted(change[0] for node in self._nodes.values() for change in node.changes)

    def _synced_serial(self) -> int:
        return min(self._unsynced_serials(), default=self._serial) - 1

    def _walk(
        self, number: int = _ROOT_NODE, path: str = ""
    ) -> Iterator[tuple[str, File | Folder]]:
        node = self._nodes[number]
        yield path or str(ROOT), node
        if isinstance(node, Folder):
            for name in sorted(node.names):
                yield from self._walk(node.names[name], f"{path or ROOT}/{name}")


def _surviving_names(folder: Folder, random: Random, loss: Loss, until: int) -> Names:
    if loss == "none":
        return folder.durable
    if loss == "all":
        return folder.names
    if loss == "prefix":
        kept = [names for serial, names in folder.changes if serial <= until]
        return kept[-1] if kept else folder.durable
    return random.choice([folder.durable, *(names for _, names in folder.changes)])


def _surviving_content(
    file: File, random: Random, loss: Loss, until: int, likelihood: float
) -> Content:
    if loss == "files":
        loss = random.choice(("none", "all"))
    if loss == "none":
        return file.durable
    if loss == "prefix":
        return _first_changes(file, random, until)
    # "all" is not file.cached: after a failed sync that has what is written no more.
    return _some_sectors(file, random, 1.0 if loss == "all" else likelihood)


def _first_changes(file: File, random: Random, until: int) -> Content:
    """What the changes up to a serial have made of a file; this one itself is torn."""
    content = file.durable
    for change in file.changes:
        if change.serial > until:
            break
        torn_at = change.last
        if change.serial == until:
            torn_at = random.randint(change.first, torn_at)
        content = _changed(content, change, change.position, torn_at)
    return content


def _some_sectors(file: File, random: Random, likelihood: float) -> Content:
    """Each change of each sector has this likelihood; of the lengths the first ones survive."""
    content = file.durable
    is_all = likelihood == 1.0
    lengths_until = random.choice(file.changes).serial
    for change in file.changes:
        if not change.data:
            if is_all or change.serial <= lengths_until:
                content = _changed(content, change, 0, 0)
            continue
        last = change.last if change.is_whole else change.last - change.last % SECTOR_BYTES
        for begin in range(change.position, last, SECTOR_BYTES):
            if is_all or random.random() < likelihood:
                end = min(begin + SECTOR_BYTES, change.position + len(change.data))
                content = _changed(content, change, begin, end)
    return content


def _changed(content: Content, change: Change, begin: int, end: int) -> Content:
    """The content after what of a change lies between two positions."""
    if not change.data:
        assert change.length is not None
        return _with_length(content, change.length)
    length = content.length
    if change.length is not None:
        length = max(length, min(end, change.length))
    # Else the file was longer before; if that is lost, so is what lies behind.
    end = min(end, length)
    if begin >= end:
        return content
    pages = dict(content.pages)
    _splice(pages, begin, change.data[begin - change.position : end - change.position])
    return Content(pages, length)


def _read(content: Content, position: int, size: int) -> bytes:
    size = min(size, content.length - position)
    if size <= 0:
        return b""
    page, at = divmod(position, PAGE_BYTES)
    if at + size <= PAGE_BYTES:
        return content.pages.get(page, _ZEROS)[at : at + size]
    last = (position + size - 1) // PAGE_BYTES
    data = b"".join(content.pages.get(each, _ZEROS) for each in range(page, last + 1))
    return data[at : at + size]


def _splice(pages: dict[int, bytes], position: int, data: bytes) -> None:
    while data:
        number, at = divmod(position, PAGE_BYTES)
        part = data[: PAGE_BYTES - at]
        page = pages.get(number, _ZEROS)
        pages[number] = page[:at] + part + page[at + len(part) :]
        position += len(part)
        data = data[len(part) :]


def _with_length(content: Content, length: int) -> Content:
    if length >= content.length:
        return Content(content.pages, length)
    last, kept = divmod(length, PAGE_BYTES)
    pages = {number: page for number, page in content.pages.items() if number <= last}
    if last in pages:
        pages[last] = pages[last][:kept].ljust(PAGE_BYTES, b"\0")
    return Content(pages, length)


@lru_cache(maxsize=4096)
def _parts(path: Path) -> tuple[tuple[str, ...], str]:
    """The folders on the way to a path, and its name; no name for the disk itself."""
    assert path.is_relative_to(ROOT), f"{path} is not on this disk"
    *above, name = ("", *path.parts[len(ROOT.parts) :])
    return tuple(above[1:]), name


def _error(number: int, path: Path | str | None = None) -> OSError:
    if path is None:
        return OSError(number, os.strerror(number))
    return OSError(number, os.strerror(number), str(path))
