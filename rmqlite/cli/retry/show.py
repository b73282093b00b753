"""rmqlite retry show: the whole life of one message, from its first record to what comes next."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rmqlite.cli.broker_view import CALL_MS_MAX
from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint
from rmqlite.cli.output.terminal import note, print_json
from rmqlite.cli.retry.life_text import Around, print_life
from rmqlite.errors import GroupUnknown
from rmqlite.requests.dead_letters import EventKind, History, HistoryEvent

if TYPE_CHECKING:
    from rmqlite.client import AdminClient

NOT_FOUND: Final = 1


def show(
    message_id: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="The message id, or the offset message id of any of its records."
        ),
    ],
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Show the whole life of a message, hop by hop, and what happens to it next.

    Exit code 1 if there is no such message.
    """
    from rmqlite.client import AdminClient

    if not message_id.strip():
        raise typer.BadParameter("a message id is empty")
    with AdminClient(endpoint, timeout_ms=CALL_MS_MAX) as admin:
        life = admin.letters.life(message_id)
        around = _around(admin, life) if life.hops else Around(0)
    if as_json:
        hops = [_tree(each) for each in life.hops]
        tree: dict[str, Any] = {"message_id": life.message_id, "now_ms": around.now_ms}
        print_json(tree | {"hops": hops, "is_cut": life.is_cut})
    elif life.hops:
        print_life(life, around)
    if not life.hops:
        note(f"no message with the id {message_id}")
        raise typer.Exit(NOT_FOUND)


def _around(admin: AdminClient, life: History) -> Around:
    """The broker's clock, and the status of the groups in the life."""
    groups = {}
    for name in {each.group for each in life.hops if each.group}:
        try:
            groups[name] = admin.group(name)
        except GroupUnknown:
            continue
    return Around(admin.broker_status().now_ms, groups)


def _tree(hop: HistoryEvent) -> dict[str, Any]:
    return dataclasses.asdict(hop) | {"kind": EventKind(hop.kind).name.lower()}
