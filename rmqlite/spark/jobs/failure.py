"""Turns Spark's hundred lines about a failure into the one line that names the cause.

An error of rmqlite on an executor reaches the driver as text at the end of Python's and Java's
traces; here it becomes that error again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rmqlite.errors import Refused, RmqliteError, by_code, restore

_OURS: Final = re.compile(r"rmqlite\.errors\.(\w+): (.+)")
_RAISED: Final = re.compile(r"^(\w+Error: .+)$", re.MULTILINE)
"""The last line of a Python trace."""
_NOISE: Final = re.compile(r"^(?:\[[A-Z_.]+\]|[\w.$]+(?:Exception|Error):)\s*")


@contextmanager
def as_ours() -> Iterator[None]:
    """An exception of Spark inside becomes an error of rmqlite, with Spark's as its cause."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise told(str(error)) from error


def told(text: str) -> RmqliteError:
    """The error in a text of Spark: rmqlite's, else Python's, else Spark's first line."""
    found = _OURS.findall(text)
    if found:
        name, sentence = found[-1]
        code = {cls.__name__: code for code, cls in by_code().items()}.get(name, "error")
        return restore(code, sentence.strip(), field="", value="", rule="")
    raised = _RAISED.findall(text)
    if raised:
        # Spark's first line only says that Python failed.
        return Refused(f"Spark: {raised[-1]}")
    first = next((line for line in text.splitlines() if line.strip()), "an error without a text")
    return Refused(f"Spark: {_NOISE.sub('', first.strip())}")
