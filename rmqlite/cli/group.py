"""rmqlite group: consumer groups, how far each is, and who is in it."""

from __future__ import annotations

from typing import Annotated

import typer

from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint
from rmqlite.cli.terminal import note, print_json, print_table, time_text, to_tree
from rmqlite.requests import GroupStatus, QueueProgress

app = typer.Typer(no_args_is_help=True, help="List and show consumer groups.")


@app.command("list")
def list_groups(endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False) -> None:
    """List the consumer groups and their retry settings."""
    from rmqlite.client import AdminClient

    with AdminClient(endpoint) as admin:
        groups = tuple(admin.list_groups())
    if as_json:
        print_json(groups)
    elif groups:
        print_table(
            ("GROUP", "RETRIES", "RETRY QUEUES", "MAY CONSUME"),
            [(g.group, g.max_reconsume_times, g.retry_queues, g.can_consume) for g in groups],
        )
    else:
        note("no groups yet")


@app.command("show")
def show_group(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")],
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Show a group's settings, its members, and how far it is in every queue."""
    from rmqlite.client import AdminClient

    with AdminClient(endpoint) as admin:
        status = admin.group(group)
    if as_json:
        print_json(_tree(status))
        return
    info = status.info
    print_table(
        ("GROUP", "RETRIES", "RETRY QUEUES", "MAY CONSUME", "LAG"),
        [
            (
                info.group,
                info.max_reconsume_times,
                info.retry_queues,
                info.can_consume,
                sum([each.lag for each in status.progress]),
            )
        ],
    )
    _print_progress(status.progress)
    _print_members(status)


def _print_progress(progress: tuple[QueueProgress, ...]) -> None:
    if not progress:
        note("no progress yet")
        return
    print_table(
        ("TOPIC", "QUEUE", "COMMITTED", "MAX", "LAG", "READ BY"),
        [
            (
                each.queue.topic,
                each.queue.queue_id,
                each.committed_offset,
                each.max_offset,
                each.lag,
                each.client_id or "-",
            )
            for each in progress
        ],
        title="progress",
    )


def _print_members(status: GroupStatus) -> None:
    if not status.members:
        note("no members")
        return
    print_table(
        ("CLIENT", "SUBSCRIBES TO", "LAST SEEN"),
        [
            (
                member.client_id,
                ", ".join([f"{each.topic} {each.expression}" for each in member.subscriptions]),
                time_text(member.last_seen_ms),
            )
            for member in status.members
        ],
        title="members",
    )


def _tree(status: GroupStatus) -> dict[str, object]:
    """The fields of the status, with the lag of each queue, which is no field."""
    tree: dict[str, object] = to_tree(status)
    tree["progress"] = [to_tree(each) | {"lag": each.lag} for each in status.progress]
    return tree
