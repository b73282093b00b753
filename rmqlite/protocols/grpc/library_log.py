"""What gRPC and asyncio log: one line each, without a stack, and not without end.

A client can cause most of it: a header that is no UTF-8 would write ten times its size, and who
lets a connection go while it is answered would be logged as an error of the broker.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rmqlite.kernel.service.audit import Repeats
from rmqlite.kernel.words.visible import printable, shortened

LOGGERS: Final = ("grpc._cython.cygrpc", "asyncio")
_GONE: Final = "ExecuteBatchError"
"""gRPC's error when there is nobody left to write to."""


@contextmanager
def in_short_lines() -> Iterator[None]:
    """Inside it these libraries log as the broker does."""
    short = OneLine()
    for name in LOGGERS:
        logging.getLogger(name).addFilter(short)
    try:
        yield
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(short)


class OneLine(logging.Filter):
    """Makes a line of each record, and leaves out what is repeated too often."""

    def __init__(self) -> None:
        super().__init__()
        self._repeats = Repeats()

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if type(error).__name__ == _GONE:
            return False
        message = shortened(record.getMessage().partition("\n")[0])
        for key, times in self._repeats.over():
            logging.getLogger(__name__).warning(
                "logged again by=%s times=%d", key or "others", times
            )
        kind = message if error is None else f"{record.name} {type(error).__name__}"
        if not self._repeats.note(kind):
            return False
        record.msg, record.args = "%s", (printable(message + _shown(error)),)
        record.exc_info = record.exc_text = record.stack_info = None
        return True


def _shown(error: BaseException | None) -> str:
    """The error, and where it was raised."""
    if error is None:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at={frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f" error={shortened(repr(error))}{place}"
