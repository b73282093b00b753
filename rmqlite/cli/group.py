"""rmqlite group: consumer groups, their progress, members and retries."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Final

import typer

from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint, GroupArgument, refuse
from rmqlite.cli.output.spans import delay_text
from rmqlite.cli.output.terminal import (
    note,
    print_json,
    print_lines,
    print_table,
    time_text,
    to_tree,
)
from rmqlite.errors import GroupUnknown, InvalidValue
from rmqlite.levels import LevelTable, parse_levels
from rmqlite.requests.groups import GroupInfo, GroupStatus, QueueProgress
from rmqlite.retry_policy import Attempt, RetryPolicy, attempts_of
from rmqlite.views.group_figures import group_figures

app = typer.Typer(no_args_is_help=True, help="List, show and change consumer groups.")

_POLICY_CHARS: Final = 32
"""A list cuts a longer policy; `group show` shows all of it."""
_ROCKETMQS: Final = "RocketMQ's"
_ROCKETMQS_LEVELS: Final = "RocketMQ's levels 3, 4, 5 and so on"
_INT_MAX: Final = 2**31 - 1
_SETTINGS: Final = ("max_reconsume_times", "retry_policy", "retry_queues", "can_consume")


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
            ("GROUP", "RETRIES", "RETRY QUEUES", "MAY CONSUME", "RETRY POLICY"),
            [
                (
                    each.group,
                    each.max_reconsume_times,
                    each.retry_queues,
                    each.can_consume,
                    _shortened(each.retry_policy or _ROCKETMQS),
                )
                for each in groups
            ],
        )
    else:
        note("no groups yet")


@app.command("show")
def show_group(
    group: GroupArgument, endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False
) -> None:
    """Show a group's settings, members, progress and retries."""
    from rmqlite.client import AdminClient

    with AdminClient(endpoint) as admin:
        status = admin.group(group)
        table = parse_levels(admin.levels().message_delay_level)
    rungs = _rungs(status.info, table)
    if as_json:
        print_json(_tree(status) | _ladder_tree(rungs, table))
        return
    info, figures = status.info, group_figures(group, status)
    print_table(
        ("GROUP", "RETRIES", "RETRY QUEUES", "MAY CONSUME", "LAG", "DUE RETRIES"),
        [
            (
                info.group,
                info.max_reconsume_times,
                info.retry_queues,
                info.can_consume,
                figures.lag,
                figures.due,
            )
        ],
    )
    _print_progress(status.progress)
    _print_members(status)
    _print_ladder(info, rungs, table)


@app.command("set")
def set_group(
    group: GroupArgument,
    max_reconsume_times: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, max=_INT_MAX, help="Retries before a message is dead; 0 means none."
        ),
    ] = None,
    retry_policy: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="When retries come: levels '3 5 7', lengths '10s 1m 10m', "
            "'exponential(10s, 2, 1h)', or '' for RocketMQ's levels 3, 4, 5 …",
        ),
    ] = None,
    retry_queues: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=_INT_MAX, help="Queues of the retry topic; it can only grow."
        ),
    ] = None,
    consume: Annotated[
        bool | None, typer.Option("--consume/--no-consume", help="May the group consume?")
    ] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Change a group's settings at once, or create it; waiting retries keep their time."""
    from rmqlite.client import AdminClient

    asked = (max_reconsume_times, retry_policy, retry_queues, consume)
    if all(each is None for each in asked):
        refuse("GROUP", group, "given with a setting: --max-reconsume-times, --retry-policy …")
    with AdminClient(endpoint) as admin:
        before = None
        with suppress(GroupUnknown):
            before = admin.group(group).info
        after = admin.set_group(
            group,
            max_reconsume_times=max_reconsume_times,
            retry_queues=retry_queues,
            can_consume=consume,
            retry_policy=retry_policy,
        )
        table = parse_levels(admin.levels().message_delay_level)
    if as_json:
        print_json({"before": before and asdict(before), "after": asdict(after)})
        return
    print_table(("SETTING", "BEFORE", "NOW", ""), _changes(before, after))
    made = [] if before else [f"the group {group} is new"]
    print_lines(["", *made, *_end_lines(after, _rungs(after, table))])


def _changes(before: GroupInfo | None, after: GroupInfo) -> list[tuple[object, ...]]:
    """Every setting before and now, and a word if it changed."""
    rows: list[tuple[object, ...]] = []
    for name in _SETTINGS:
        cells = [
            (getattr(info, name) if info else None) if name != "retry_policy" else _policy(info)
            for info in (before, after)
        ]
        word = "changed" if before and cells[0] != cells[1] else ""
        rows.append((name.replace("_", " "), *[_cell(cell) for cell in cells], word))
    return rows


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)


def _policy(info: GroupInfo | None) -> str | None:
    return (info.retry_policy or _ROCKETMQS) if info else None


def _rungs(info: GroupInfo, table: LevelTable) -> tuple[Attempt, ...] | None:
    """The group's attempts; None for a policy of a newer broker that is unknown here."""
    try:
        policy = RetryPolicy.parse(info.retry_policy)
    except InvalidValue:
        return None
    return attempts_of(policy, table, info.max_reconsume_times)


def _print_ladder(info: GroupInfo, rungs: Sequence[Attempt] | None, table: LevelTable) -> None:
    has_lengths = any([rung.asked_ms is not None for rung in rungs or ()])
    columns = ["ATTEMPT", "POLICY SAYS", "LEVEL", "WAITS", "AFTER THE FIRST FAILURE"]
    rows: list[list[object]] = [
        [
            _attempts(rung),
            "" if rung.asked_ms is None else delay_text(rung.asked_ms),
            rung.level,
            table.name(rung.level),
            delay_text(rung.since_first_failure_ms),
        ]
        for rung in rungs or ()
    ]
    if not has_lengths:
        del columns[1]
        for row in rows:
            del row[1]
    title = f"retries by {info.retry_policy or _ROCKETMQS_LEVELS}"
    if rows:
        print_table(columns, rows, title=title)
    print_lines(_end_lines(info, rungs))


def _end_lines(info: GroupInfo, rungs: Sequence[Attempt] | None) -> list[str]:
    """When a message that keeps failing is dead."""
    if rungs is None:
        return [f"this rmqlite does not know the retry policy {info.retry_policy!r}"]
    if not rungs:
        return ["a message is a dead letter at its first failure"]
    last = rungs[-1]
    return [
        f"when attempt {last.last_attempt:,} fails, too, it is a dead letter:"
        f" {delay_text(last.since_first_failure_ms)} after",
        "the first failure, plus the time that the attempts take",
    ]


def _attempts(rung: Attempt) -> object:
    if rung.first_attempt == rung.last_attempt:
        return rung.first_attempt
    return f"{rung.first_attempt:,} to {rung.last_attempt:,}"


def _shortened(policy: str) -> str:
    return policy if len(policy) <= _POLICY_CHARS else policy[: _POLICY_CHARS - 1] + "…"


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
                ", ".join(map(str, member.subscriptions)),
                time_text(member.last_seen_ms),
            )
            for member in status.members
        ],
        title="members",
    )


def _tree(status: GroupStatus) -> dict[str, object]:
    """The fields of the status, and the lag of each queue, which is computed."""
    tree: dict[str, object] = to_tree(status)
    tree["progress"] = [to_tree(each) | {"lag": each.lag} for each in status.progress]
    return tree


def _ladder_tree(rungs: Sequence[Attempt] | None, table: LevelTable) -> dict[str, object]:
    """The retries that the settings make; null for a policy that is unknown here."""
    if rungs is None:
        return {"retries": None, "dead_after_ms": None}
    retries = [asdict(rung) | {"delay": table.name(rung.level)} for rung in rungs]
    return {
        "retries": retries,
        "dead_after_ms": rungs[-1].since_first_failure_ms if rungs else 0,
    }
