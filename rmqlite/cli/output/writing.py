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

from rmqlite.cli.output.terminal import note
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import StoreUnavailable
from rmqlite.views.numbers import size_text

STANDARD_OUTPUT: Final = Path("-")


def note_exported(what: str, size: int, kind: str, output: Path, began_s: float) -> None:
    """Say what was exported: "exported 3 messages, 2.1 kB of records, to x.csv in 0.1 s"."""
    where = "" if output == STANDARD_OUTPUT else f" to {output}"
    took_s = elapsed_s() - began_s
    note(f"exported {what}, {size_text(size)} of {kind},{where} in {took_s:.1f} s")


@contextmanager
def writing(output: Path) -> Iterator[Callable[[bytes], object]]:
    """A function that writes to the output.  Raises BrokenPipeError, StoreUnavailable."""
    if output == STANDARD_OUTPUT:
        yield bytes_to_standard_output
        return
    with written_bytes(output) as file:
        yield file.write


def bytes_to_standard_output(data: bytes) -> None:
    """Write at once.  Raises BrokenPipeError, StoreUnavailable."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _not_written("standard output", error) from error


def to_standard_output(text: str) -> None:
    """Write at once.  Raises BrokenPipeError, StoreUnavailable."""
    bytes_to_standard_output(text.encode(sys.stdout.encoding, sys.stdout.errors or "strict"))


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
