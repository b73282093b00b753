"""The troubles that `top` shows: the broker's own, and those of asking it."""

from __future__ import annotations

from typing import Final

from rmqlite.cli.output.terminal import printable
from rmqlite.cli.top.picture import SILENT_AFTER_S, Picture
from rmqlite.errors import RmqliteError
from rmqlite.views import troubles as views
from rmqlite.views.spans import span_text
from rmqlite.views.troubles import BAD, WARN, Trouble

_UNKNOWN: Final = "UNIMPLEMENTED"
"""gRPC's code for a call that an older broker does not have."""


def connection_trouble(picture: Picture, now_s: float, waiting_since_s: float) -> Trouble | None:
    """The trouble of a silent broker; waiting_since_s: start of the open round, 0: none."""
    age = span_text(int(picture.age_s(now_s)) * 1000)
    if picture.unreachable is not None:
        # gRPC's text has the whole path; its end is the reason.
        reason = printable(str(picture.unreachable).rsplit(": ", 1)[-1])
        return Trouble(f"no answer for {age} ({reason}), this is how it was then", BAD)
    if waiting_since_s and now_s - waiting_since_s >= SILENT_AFTER_S:
        return Trouble(f"no answer for {age}, still waiting for one", WARN)
    return None


def troubles(picture: Picture) -> list[Trouble]:
    """All troubles but those of the connection; empty if all is well."""
    if picture.status is None:
        return []
    dead_lately = picture.rates.dead_lately
    found = views.troubles(picture.status, picture.groups(), picture.jobs, dead_lately)
    return [*found, *_not_answered(picture)]


def why(error: RmqliteError) -> str:
    """An error for a person; a broker older than this tool does not have all calls."""
    is_unknown = str(error).startswith(_UNKNOWN)
    return "the broker is too old for this" if is_unknown else printable(str(error))


def _not_answered(picture: Picture) -> list[Trouble]:
    """The calls that the broker did not answer, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    for asked, error in picture.errors.items():
        age_s = picture.part_age_s(asked)
        age = "not known" if age_s is None else f"{span_text(int(age_s) * 1000)} old"
        reasons.setdefault(why(error), []).append(f"{asked.value} {age}")
    return [Trouble(f"{', '.join(asked)}: {reason}", WARN) for reason, asked in reasons.items()]
