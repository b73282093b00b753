"""Checks folders of fixed-size files for names, lengths and gaps that prevent an opening.

Each fault is corrected in the layer, so that the rest of the folder can be checked: a foreign
file is hidden, a wrong length is corrected, a missing file becomes one of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.regular_file import REGULAR
from rmqlite.kernel.store.disk.segments import NAME_DIGITS, is_numbered, position_name
from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.store_tools.checking.file_layer import FileLayer
from rmqlite.store_tools.checking.finding import Finding

FOREIGN: Final = "foreign-file"
LENGTH: Final = "file-length"
GAP: Final = "missing-file"
GAP_FILES_MAX: Final = 256
"""A file that is farther from the others than this is foreign."""
_LISTINGS_MAX: Final = 5


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
