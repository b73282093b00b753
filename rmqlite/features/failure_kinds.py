"""The kind of a failure: what the reasons of the same fault have in common."""

from __future__ import annotations

import re
from typing import Final

REASON_CHARS_MAX: Final = 200
"""A kind is made from this much of a reason's first line."""
NO_REASON: Final = "(no reason)"
"""The kind of failures without a reason."""
_VARYING: Final = re.compile(
    # These digits are the kind: HTTP 404, HTTP/1.1 503, status=500, error code: 429.
    r"(\b(?:http(?:/[0-9](?:\.[0-9])?)?|status|code|error)[ :=]{1,3}[0-9]{3}\b)"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"  # a UUID
    r"|\b(?:0x)?(?=[a-f]*[0-9])[0-9a-f]+\b"  # a number, or an id in hex
    r"|[0-9]+",
    re.IGNORECASE | re.ASCII,
)


def failure_kind(reason: str) -> str:
    """The reason's first line, at most 200 characters, with # for every number and id.

    Three digits behind HTTP, status, code or error stay.  A kind is its own kind.
    """
    line = short_reason(reason)
    return _VARYING.sub(lambda found: found[1] or "#", line) if line else NO_REASON


def short_reason(reason: str) -> str:
    """The first line of a reason, at most 200 characters."""
    line = reason.strip().partition("\n")[0].strip()
    return line if len(line) <= REASON_CHARS_MAX else line[: REASON_CHARS_MAX - 1] + "…"
