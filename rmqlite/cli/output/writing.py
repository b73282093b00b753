"""The output of an export: the standard output, or a file that is always complete.

A file is written under another name and renamed at the end: after an error, an interruption or a
kill the old file is still there.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
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


def template_to_standard_output(name: str) -> None:
    """Write a file of conf/, which comes with the package.  Raises StoreUnavailable."""
    with quiet_when_nobody_reads():
        bytes_to_standard_output(files("rmqlite").joinpath("conf", name).read_bytes())


@contextmanager
def quiet_when_nobody_reads() -> Iterator[None]:
    """End with exit code 0 if the reader of a pipe, such as `head`, stops."""
    try:
        yield
    except BrokenPipeError as error:
        # Python would write the rest of the buffer at exit, and fail again.
        sys.stdout = io.StringIO()
        raise typer.Exit(0) from error


@contextmanager
def written(path: Path) -> Iterator[Write]:
    """Open a file for text in ASCII.  Raises StoreUnavailable."""
    with written_bytes(path) as file:
        yield lambda text: file.write(text.encode("ascii"))


@contextmanager
def written_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a file for bytes.  Raises StoreUnavailable."""
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
