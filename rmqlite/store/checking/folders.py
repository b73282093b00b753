"""Folders of fixed-size files: names, lengths and gaps that an opening would refuse.

What is found is put right in the layer, so that the rest of the folder can be looked at:
a foreign file is hidden, a wrong length passed over, a missing file is one of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rmqlite.store.checking.file_layer import FileLayer
from rmqlite.store.checking.finding import Finding
from rmqlite.store.dispatch import QueueKey
from rmqlite.store.files import Files
from rmqlite.store.regular_file import REGULAR

FOREIGN: Final = "foreign-file"
LENGTH: Final = "file-length"
GAP: Final = "missing-file"
GAP_FILES_MAX: Final = 256
"""A file farther from the others than this is none of theirs."""
_NAME_DIGITS: Final = 20
_LISTINGS_MAX: Final = 5


def look_at_root(files: Files, root: Path) -> Iterator[Finding]:
    """The files beside the folders: their content is written anew, they need only be files."""
    for path in (root / "abort", root / "checkpoint"):
        kind = files.kind(path)
        if kind not in ("", REGULAR):
            yield Finding(path, 0, FOREIGN, f"{kind}, not {REGULAR}", REGULAR, kind)


def look_at_folder(
    files: FileLayer, folder: Path, file_bytes: int, *, is_live: bool = False
) -> list[Finding]:
    """What is wrong with the files of one folder; afterwards the layer shows them in order."""
    found = _look(files, folder, file_bytes)
    for _ in range(_LISTINGS_MAX if is_live and found else 0):
        # A writer may have removed two files between two names of one listing.
        found = _look(files, folder, file_bytes)
    last = max(files.names(folder), default="")
    is_file = _is_position(last) and files.kind(folder / last) == REGULAR
    if not is_live and is_file and files.size(folder / last) == 0:
        # A crash between making a file and giving it its length; nothing was in it.
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
    """How a queue is called in a sentence."""
    return f"{key[0]} queue {key[1]}"


def _look(files: Files, folder: Path, file_bytes: int) -> list[Finding]:
    found = []
    starts = []
    names = files.names(folder)
    for name in names:
        path = folder / name
        kind = files.kind(path)
        if not _is_position(name) or int(name) % file_bytes or kind not in ("", REGULAR):
            rule = f"a name of {_NAME_DIGITS} digits, a multiple of {file_bytes}"
            if kind not in ("", REGULAR):
                rule = f"{REGULAR}, this is {kind}"
            found.append(Finding(path, 0, FOREIGN, f"not one of the files here: {rule}", rule))
            continue
        starts.append(int(name))
        size = files.size(path)
        if size != file_bytes and (size or name != names[-1]):
            said = f"{size} bytes long, {file_bytes} bytes are right"
            # Empty where its length did not survive a power cut; opening gives it back.
            found.append(
                Finding(
                    *(path, 0, LENGTH, said, str(file_bytes), str(size), size),
                    opening_mends=not size,
                    is_leftover=not size,
                )
            )
    near = _neighbours(starts, file_bytes)
    kept = set(near)
    for start in starts:
        if start not in kept:
            path = folder / f"{start:0{_NAME_DIGITS}d}"
            found = [each for each in found if each.path != path]
            said = "not one of the files here: it is far from all the others"
            found.append(Finding(path, 0, FOREIGN, said))
    for start in range(near[0], near[-1], file_bytes) if near else ():
        if start not in kept:
            path = folder / f"{start:0{_NAME_DIGITS}d}"
            said = f"a gap: the file is missing, there are some before and behind {start}"
            found.append(Finding(path, 0, GAP, said, size=file_bytes))
    return found


def _neighbours(starts: list[int], file_bytes: int) -> list[int]:
    """Of files that lie in groups far from one another the largest group."""
    groups: list[list[int]] = []
    for start in starts:
        if groups and start - groups[-1][-1] <= GAP_FILES_MAX * file_bytes:
            groups[-1].append(start)
        else:
            groups.append([start])
    return max(groups, key=len, default=[])


def _is_position(name: str) -> bool:
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()
