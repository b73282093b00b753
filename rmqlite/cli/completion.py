"""The words that a shell offers for TAB: names from the broker.

The shell scripts are typer's; here are only the words.  A broker that does not answer soon gives
no words, and no error.  A shell puts the words into a command line, so only names that rmqlite
would allow are offered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import typer

from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.kernel.words.names import is_dlq, is_retry, is_system
from rmqlite.views.levels import TIMER

if TYPE_CHECKING:
    from rmqlite.client import AdminClient

ANSWER_MS_MAX: Final = 1_000
"""Nobody waits longer than this for a word."""
ASKED_BY: Final = "_RMQLITE_COMPLETE"
"""Set by typer's scripts: complete_bash, complete_zsh …"""
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_JOB_ID: Final = re.compile(r"[a-zA-Z0-9_.:@=+/-]+")
_WORD_BREAKS: Final = (":", "=")


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Consumer groups."""
    return _names(ctx, incomplete, lambda admin: [each.group for each in admin.list_groups()])


def dead_letter_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Groups that have dead letters."""
    return _names(
        ctx, incomplete, lambda admin: [each.group for each in admin.dead_letters.groups()]
    )


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics, with those of retries and dead letters, without system topics."""
    return _names(ctx, incomplete, lambda admin: [t for t in _topics(admin) if not is_system(t)])


def users_topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics that messages are sent to first."""
    return _names(
        ctx,
        incomplete,
        lambda admin: [t for t in _topics(admin) if not (is_system(t) or is_retry(t) or is_dlq(t))],
    )


def jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Ids of jobs, the last changed ones first: those of redrives, then those of bulk senders."""
    found = _asked(ctx, _job_ids)
    return [each for each in found if _JOB_ID.fullmatch(each) and each.startswith(incomplete)]


def delays(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The delays of the broker's levels, each with its number."""
    levels = _asked(ctx, lambda admin: admin.levels().message_delay_level.split(" "))
    return [
        (delay, f"level {number}")
        for number, delay in enumerate(levels, 1)
        if delay.startswith(incomplete) and delay.isalnum()
    ]


def levels(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The same, and the word for the messages that wait for an instant of their own."""
    timers = [(TIMER, "any instant")] if TIMER.startswith(incomplete) else []
    return [*timers, *delays(ctx, incomplete)]


def level_numbers(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The numbers of the broker's levels, each with its delay."""
    return [
        (each.removeprefix("level "), delay)
        for delay, each in delays(ctx, "")
        if each.startswith(f"level {incomplete}")
    ]


def mend_words() -> None:
    """Join the words that bash split at ":" and "=": host:port is one word.

    Call it before typer reads the words; without a completing shell it does nothing.
    """
    words = os.environ.get("COMP_WORDS", "").split("\n")
    current = os.environ.get("COMP_CWORD", "")
    if os.environ.get(ASKED_BY) != "complete_bash" or not current.isdigit():
        return
    mended: list[str] = []
    at = int(current)
    is_open = False
    for number, word in enumerate(words):
        is_break = word in _WORD_BREAKS
        if mended and (is_break or is_open):
            mended[-1] += word
            at -= number <= int(current)
        else:
            mended.append(word)
        is_open = is_break
    os.environ["COMP_WORDS"] = "\n".join(mended)
    os.environ["COMP_CWORD"] = str(at)


# ---- inside


class _ForBash(str):
    """A name escaped for bash; startswith() compares the plain name.

    bash puts a word into the line as it is, and a bar would begin another command.
    """

    __slots__ = ()

    def startswith(self, *args: Any) -> bool:
        return self.replace("\\|", "|").startswith(*args)


def _names(
    ctx: typer.Context, incomplete: str, ask: Callable[[AdminClient], Iterable[str]]
) -> list[str]:
    found = [each for each in _asked(ctx, ask) if _NAME.fullmatch(each)]
    fitting = [each for each in found if each.startswith(incomplete)]
    if os.environ.get(ASKED_BY) == "complete_bash":
        return [_ForBash(each.replace("|", "\\|")) for each in fitting]
    return fitting


def _job_ids(admin: AdminClient) -> list[str]:
    return [*[j.job_id for j in admin.redrives.jobs()], *[j.job_id for j in admin.jobs()]]


def _topics(admin: AdminClient) -> list[str]:
    return [each.topic for each in admin.list_topics()]


def _asked(ctx: typer.Context, ask: Callable[[AdminClient], Iterable[str]]) -> list[str]:
    """The answer of the command line's broker; empty if it does not answer."""
    from rmqlite.client import AdminClient

    endpoint = ctx.params.get("endpoint")
    if not endpoint:
        return []
    try:
        with AdminClient(endpoint, timeout_ms=ANSWER_MS_MAX) as admin:
            return list(ask(admin))
    except RmqliteError:
        return []
