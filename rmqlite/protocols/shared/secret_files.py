"""Opens the files that hold secrets, and those that stand beside them.

Links are followed: an operator, or Kubernetes, puts secrets elsewhere and links to them.  What is
at the end must be a regular file, since a named pipe or a device has no end.  Its type and mode
are looked at when it is open already, so that nobody can exchange it in between.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

_OTHERS: Final = 0o077


def read_text(path: Path, bytes_max: int, *, no_link: bool = False) -> tuple[str, str]:
    """The text of a file, and a warning if others than its owner can open it, or "".

    Raises ValueError with the rule it breaks.  no_link: the path itself must be the file.
    """
    try:
        data, mode = _read(path, bytes_max + 1, os.O_NOFOLLOW if no_link else 0)
    except OSError as error:
        raise ValueError(f"a file that can be read: {error.strerror}") from error
    if len(data) > bytes_max:
        raise ValueError(f"at most {bytes_max:,} bytes")
    # Not errors="strict": its exception holds the bytes, which may be a secret.  A file that has
    # U+FFFD is as good as broken.  utf-8-sig: some editors begin a file with a byte order mark.
    text = data.decode("utf-8-sig", errors="replace")
    if "\ufffd" in text:
        raise ValueError("text in UTF-8")
    return text, _warning(path, mode)


def from_environment(name: str) -> str | None:
    return os.environ.get(name)


def _read(path: Path, size: int, flags: int) -> tuple[bytes, int]:
    # O_NONBLOCK: opening a named pipe would wait for somebody who writes to it.
    fd = os.open(path, flags | os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise ValueError("a regular file")
        with open(fd, "rb", closefd=False) as file:
            return file.read(size), mode
    finally:
        os.close(fd)


def _warning(path: Path, mode: int) -> str:
    if not mode & _OTHERS:
        return ""
    return f"{path} is open to others than its owner (mode {mode & 0o777:03o}): chmod 600 {path}"
