"""Which dead letters: the options that dlq-export and dlq-redrive share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rmqlite.cli.options import moment_ms, refuse
from rmqlite.errors import InvalidName
from rmqlite.names import check_group

Groups = Annotated[
    list[str] | None,
    typer.Option("--group", "-g", help="Only this consumer group's; may be given several times."),
]
OriginTopic = Annotated[
    str, typer.Option("--topic", "-t", help="Only what was sent to this topic first.")
]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Only where the reason has this in it.")
]
Since = Annotated[
    str,
    typer.Option(
        "--since", metavar="TIME", help="Died then or later: '2026-11-20 10:00' or epoch ms."
    ),
]
Until = Annotated[str, typer.Option("--until", metavar="TIME", help="Died before then.")]


def wanted(
    groups: list[str] | None, topic: str, reason: str, since: str, until: str
) -> dict[str, Any]:
    """What the options mean, as Wanted takes it; ends the command if one cannot be."""
    since_ms, until_ms = moment_ms("--since", since), moment_ms("--until", until)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        refuse("--until", until, "a time after --since")
    for group in groups or ():
        try:
            check_group(group)
        except InvalidName as error:
            refuse("--group", group, error.rule)
    return {
        "groups": tuple(groups or ()),
        "topic": topic,
        "reason": reason,
        "since_ms": since_ms,
        "until_ms": until_ms,
    }
