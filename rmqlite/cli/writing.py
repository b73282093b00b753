"""Where the output of an export goes: the standard output, or a file that is complete.

A file appears under its name when all of it is there: it is written beside it, and an error,
an interruption or a kill leaves what was there before.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import typer

from rmqlite.errors import StoreUnavailable

Write = Callable[[str], object]
STANDARD_OUTPUT: Final = Path("-")


def to_standard_output(text: str) -> None:
    """Write at once.  Raises BrokenPipeError, StoreUnavailable."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _not_written("standard output", error) from error


def bytes_to_standard_output(data: bytes) -> None:
    """Write at once.  Raises BrokenPipeError, StoreUnavailable."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _not_written("standard output", error) from error


@contextmanager
def quiet_when_nobody_reads() -> Iterator[None]:
    """`| head` has seen enough: that is no failure."""
    try:
        yield
    except BrokenPipeError as error:
        # What could not be written would be tried, and fail, once more at exit.
        sys.stdout = io.StringIO()
        raise typer.Exit(0) from error


@contextmanager
def written(path: Path) -> Iterator[Write]:
    """Text, in ASCII.  Raises StoreUnavailable."""
    with written_bytes(path) as file:
        yield lambda text: file.write(text.encode("ascii"))


@contextmanager
def written_bytes(path: Path) -> Iterator[BinaryIO]:
    """Bytes.  Raises StoreUnavailable."""
    beside = path.with_name(path.name + ".tmp")
    try:
        with beside.open("wb") as file:
            try:
                yield file
                file.flush()
                beside.replace(path)
            finally:
                beside.unlink(missing_ok=True)
    except OSError as error:
        raise _not_written(str(path), error) from error


def _not_written(where: str, error: OSError) -> StoreUnavailable:
    return StoreUnavailable("write to", where, error.strerror or str(error))
