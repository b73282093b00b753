"""The options that name an instant for a message: --at and --after."""

from __future__ import annotations

from typing import Annotated

import typer

from rmqlite.cli.options import moment_ms, refuse
from rmqlite.declared_types.deliver_times import instant_ms, wait_ms
from rmqlite.errors import InvalidValue

At = Annotated[
    str,
    typer.Option(
        "--at",
        metavar="TIME",
        help="At this instant: 2028-02-29T08:00+01:00, '2028-02-29 08:00' (local), or epoch ms.",
    ),
]
After = Annotated[
    str,
    typer.Option(
        "--after",
        metavar="SPAN",
        help="This long from now, by the broker's clock: 36h, 1d12h, 1500ms.",
    ),
]


def at_ms(text: str) -> int | None:
    """The instant of --at in milliseconds; None without one."""
    at = moment_ms("--at", text)
    try:
        return None if at is None else instant_ms("--at", at)
    except InvalidValue as error:
        refuse("--at", text, error.rule)


def after_ms(text: str) -> int:
    """The length of --after in milliseconds."""
    try:
        return wait_ms("--after", text)
    except InvalidValue as error:
        refuse("--after", text, error.rule)
