"""The options that several commands share, so that they are spelled and explained once."""

from __future__ import annotations

from typing import Annotated, Final, NoReturn

import typer

from rmqlite.cli import completion
from rmqlite.cli.terminal import note
from rmqlite.clock import local_ms

DEFAULT_ENDPOINT: Final = "127.0.0.1:10911"

Endpoint = Annotated[
    str,
    typer.Option(
        "--endpoint",
        "-e",
        envvar="RMQLITE_ENDPOINT",
        metavar="HOST:PORT",
        help="Where the broker listens.",
    ),
]
GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", help="The consumer group's name.", autocompletion=completion.groups
    ),
]
TopicArgument = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=completion.topics),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON for programs instead of a table for people.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Since = Annotated[
    str,
    typer.Option(
        "--since", metavar="TIME", help="Stored then or later: '2026-11-20 10:00' or epoch ms."
    ),
]
Until = Annotated[str, typer.Option("--until", metavar="TIME", help="Stored before then.")]

NOT_ALL: Final = 1
"""The exit code when nothing was found, or not all was done."""
WRONG_COMMAND_LINE: Final = 2
MOMENT_RULE: Final = "a local time such as '2026-11-20 10:00', or milliseconds since 1970"
_MS_DIGITS_MAX: Final = 15


def refuse(option: str, value: object, rule: str) -> NoReturn:
    """One line, and the exit code for a command line that is wrong."""
    note(f"error: {option}={str(value)!r} is not allowed: {rule}")
    raise typer.Exit(WRONG_COMMAND_LINE)


def moment_ms(option: str, text: str, rule: str = MOMENT_RULE) -> int | None:
    """The milliseconds since 1970 that an option of time means; None when it is empty."""
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) <= _MS_DIGITS_MAX:
        return int(text)
    moment = local_ms(text)
    if moment is None:
        refuse(option, text, rule)
    return moment
