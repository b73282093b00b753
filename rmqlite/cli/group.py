"""rmqlite group: consumer groups, their progress, members and retries."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Final

import typer

from rmqlite.cli import completion
from rmqlite.cli.broker_view import SHORT_CALL_MS_MAX, connected
from rmqlite.cli.options import (
    DEFAULT_ENDPOINT,
    MOMENT_RULE,
    NOT_ALL,
    AsJson,
    ChangeOptions,
    Endpoint,
    GroupArgument,
    moment_ms,
    option,
    with_options,
    wrong,
)
from rmqlite.cli.output.documents import Document, fields_of, many, maybe, prints
from rmqlite.cli.output.terminal import (
    note,
    print_columns,
    print_json,
    print_lines,
    print_table,
    print_view,
    wrapped,
)
from rmqlite.cli.status import whole_picture
from rmqlite.client import GroupStatus, OffsetReset, QueueProgress, QueueReset
from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.kernel.words.errors import GroupInUse, GroupUnknown, InvalidValue
from rmqlite.kernel.words.levels import LevelTable, parse_levels
from rmqlite.kernel.words.limits import INT32_MAX, PER_SECOND_MAX
from rmqlite.kernel.words.retry_policy import RetryPolicy
from rmqlite.views.groups import (
    BROADCASTING,
    ROCKETMQS,
    GroupFigures,
    attempts_table,
    death_lines,
    expired_lines,
    group_figures,
    limit_line,
    members_table,
    oldest_cell,
    progress_table,
    resets_table,
    resets_text,
    settings_table,
    silent_lines,
)
from rmqlite.views.levels import Attempt, attempts_of, waits_text
from rmqlite.views.tables import cell_text

app = typer.Typer(no_args_is_help=True, help="List, show and change consumer groups.")

_SETTINGS: Final = (
    *("max_reconsume_times", "retry_policy", "retry_queues", "can_consume", "orderly"),
    *("max_per_second", "burst", "bury_expired"),
)
_PROGRESS: Final = Document(
    "Progress", "A group's progress in a queue, and its lag.", QueueProgress, lag=int
)
_LISTED: Final = Document(
    "ListedGroup",
    "A group.  lag: of a broadcasting group null, as are oldest_ms, the age of its oldest message"
    " that is not consumed (0: none), and due_retries.  silent_ms: how long it has finished nothing"
    " in a queue that has messages for it.",
    GroupInfo,
    **fields_of(maybe(int), "lag oldest_ms due_retries"),
    **fields_of(int, "silent_ms members waiting_retries open_dead_letters"),
)
_DELETED: Final = Document(
    "DeletedGroup", "Or would be.", GroupStatus, progress=many(_PROGRESS), dry_run=bool
)
_ATTEMPT: Final = Document(
    "Retries",
    "Retries that come one after the other; delay: the level's, or of timers (level 0) theirs.",
    Attempt,
    delay=str,
)
_SHOWN: Final = Document(
    "ShownGroup",
    "A group, and the retries that its settings make: null for a policy of a newer broker.",
    GroupStatus,
    progress=many(_PROGRESS),
    retries=maybe(many(_ATTEMPT)),
    dead_after_ms=maybe(int),
)
_CHANGED: Final = Document(
    "ChangedGroup", "before: null for a new one.", before=maybe(GroupInfo), after=GroupInfo
)
_QUEUE_RESET: Final = Document(
    "ResetQueue",
    "Messages that come again, or are skipped.",
    QueueReset,
    **fields_of(int, "again skipped"),
)
_RESET: Final = Document(
    "ResetGroup", "Or would be.", group=str, dry_run=bool, queues=many(_QUEUE_RESET)
)

Orderly = Annotated[
    bool | None,
    option("--orderly/--no-orderly", "Do clients of RocketMQ 5 consume a message group in order?"),
]

Consume = Annotated[bool | None, option("--consume/--no-consume", "May the group consume?")]
MaxPerSecond = Annotated[
    float | None,
    option(
        "--max-per-second N",
        "Messages a second that all members together are handed, retries too; such as 0.5; "
        "0 means no limit.",
        min=0,
        max=PER_SECOND_MAX,
    ),
]
Burst = Annotated[
    int | None,
    option(
        "--burst N",
        "With a limit: so many at once after a pause; 0 means those of one second, at least one.",
        min=0,
        max=PER_SECOND_MAX,
    ),
]


class Expired(enum.StrEnum):
    """What becomes of a message that has expired."""

    DEAD_LETTER = "dead-letter"
    SKIP = "skip"


IfExpired = Annotated[
    Expired | None,
    option("--expired", "Is a message that comes too late a dead letter, or skipped?"),
]


@app.command("list")
@prints(lambda: list[_LISTED])  # type: ignore[valid-type]
def list_groups(endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False) -> None:
    """List the consumer groups: how far each is, its retries and dead letters, its settings.

    LAG is how many messages it has not consumed, OLDEST the age of the oldest of them.
    """
    with connected(endpoint) as admin:
        picture = whole_picture(admin)
    figures = {each.group: each for each in picture.groups()}
    groups = [status.info for _, status in sorted(picture.described.items())]
    if as_json:
        print_json([_listed_tree(info, figures[info.group]) for info in groups])
    elif groups:
        print_view(settings_table(groups, figures))
    else:
        note("no groups yet")


def _listed_tree(info: GroupInfo, figures: GroupFigures) -> dict[str, Any]:
    return _LISTED.tree(
        info,
        lag=figures.lag,
        oldest_ms=figures.oldest_ms,
        silent_ms=figures.silent_ms,
        members=figures.members or 0,
        due_retries=figures.due,
        waiting_retries=figures.waiting or 0,
        open_dead_letters=figures.dead or 0,
    )


@app.command("show")
@prints(lambda: _SHOWN)
def show_group(
    group: GroupArgument, endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False
) -> None:
    """Show a group's settings, members, progress and retries."""
    with connected(endpoint, SHORT_CALL_MS_MAX) as admin:
        status = admin.group(group)
        table = parse_levels(admin.levels().message_delay_level)
        now_ms = admin.broker_status().now_ms
    attempts = _attempts(status.info, table)
    if as_json:
        retries = _attempts_tree(attempts, table)
        print_json(_SHOWN.tree(status, progress=_progress_trees(status), **retries))
        return
    info, figures = status.info, group_figures(group, status)
    print_columns(
        _settings([info])
        | {
            "LAG": [figures.lag],
            "OLDEST": [oldest_cell(figures).text],
            "DUE": [figures.due],
        }
    )
    if status.is_broadcasting:
        print_lines([BROADCASTING])
    if limit := limit_line(status):
        print_lines(wrapped(limit))
    for line in silent_lines(status):
        print_lines(wrapped(f"warning: {line}"))
    print_view(progress_table(status.progress, status.now_ms))
    print_view(members_table(status.members, now_ms))
    if attempts:
        print_view(attempts_table(info, attempts, table))
    print_lines([*death_lines(info, attempts), *expired_lines(status)])


@app.command("set")
@prints(lambda: _CHANGED)
def set_group(
    group: GroupArgument,
    max_reconsume_times: Annotated[
        int | None,
        option(
            "--max-reconsume-times N",
            "Retries before a message is dead; 0 means none.",
            min=0,
            max=INT32_MAX,
        ),
    ] = None,
    retry_policy: Annotated[
        str | None,
        option(
            "--retry-policy TEXT",
            "When retries come: levels '3 5 7', or lengths that become levels, '10s 1m 10m' or "
            "'exponential(10s, 2, 1h)'; exactly: 'list(90s, 10m)' or "
            "'exponential(10s, 3, 1h, jitter=20%)'; '' for RocketMQ's levels 3, 4, 5 …",
        ),
    ] = None,
    retry_queues: Annotated[
        int | None,
        option(
            "--retry-queues N", "Queues of the retry topic; it can only grow.", min=1, max=INT32_MAX
        ),
    ] = None,
    consume: Consume = None,
    orderly: Orderly = None,
    max_per_second: MaxPerSecond = None,
    burst: Burst = None,
    expired: IfExpired = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Change a group's settings at once, or create it; waiting retries keep their time."""
    wanted: dict[str, Any] = {
        "max_reconsume_times": max_reconsume_times,
        "retry_queues": retry_queues,
        "can_consume": consume,
        "retry_policy": retry_policy,
        "orderly": orderly,
        "max_per_second": max_per_second,
        "burst": burst,
        "bury_expired": None if expired is None else expired is Expired.DEAD_LETTER,
    }
    if all(each is None for each in wanted.values()):
        wrong("give a setting of the group: --max-reconsume-times, --retry-policy …")
    with connected(endpoint, SHORT_CALL_MS_MAX) as admin:
        before = None
        with suppress(GroupUnknown):
            before = admin.group(group).info
        after = admin.set_group(group, **wanted)
        table = parse_levels(admin.levels().message_delay_level)
    if as_json:
        print_json(_CHANGED.tree(before=before, after=after))
        return
    print_table(("SETTING", "BEFORE", "NOW", ""), _changes(before, after))
    made = [] if before else [f"the group {group} is new"]
    print_lines(["", *made, *death_lines(after, _attempts(after, table))])


Force = Annotated[
    bool, option("--force", "Although the group has live members, whose commits may undo it.")
]


@app.command("delete")
@prints(lambda: _DELETED)
@with_options
def delete_group(*, group: GroupArgument, force: Force = False, how: ChangeOptions) -> None:
    """Delete a group's settings and offsets; show them before.

    Refused while the group has live members.  Its retries and dead letters stay.  A group that
    consumes again begins anew: with default settings and without offsets.
    """
    how.check_can_ask()
    with connected(how.endpoint, note=how.note) as admin:
        status = admin.group(group)
        _check_unused(status, force=force)
        if not how.as_json:
            print_columns(_settings([status.info]) | {"LAG": [group_figures(group, status).lag]})
            print_view(progress_table(status.progress, status.now_ms))
        if not how.dry_run:
            how.check_confirmed(f"delete group {group}, its settings and its offsets?")
            admin.delete_group(group, force=force)
    if how.as_json:
        progress = _progress_trees(status)
        print_json(_DELETED.tree(status, progress=progress, dry_run=how.dry_run))
    elif not how.dry_run:
        print_lines([f"deleted group {group}"])


@app.command("reset-offset")
@prints(lambda: _RESET)
@with_options
def reset_offset(
    *,
    group: GroupArgument,
    topic: Annotated[
        str | None,
        option(
            "--topic -t TOPIC",
            "Only in this topic; by default in all that the group reads or has read, "
            "without its retries.",
            completion.topics,
        ),
    ] = None,
    to: Annotated[
        str,
        option(
            "--to PLACE",
            "earliest, latest, or a time: the first message stored then or later "
            "('2026-11-20 10:00' or epoch ms).",
        ),
    ] = "",
    queue_id: Annotated[
        int | None, option("--queue -q ID", "With --offset: in this queue of --topic.", min=0)
    ] = None,
    offset: Annotated[
        int | None, option("--offset N", "Instead of --to: to this queue offset.", min=0)
    ] = None,
    force: Force = False,
    how: ChangeOptions,
) -> None:
    """Let a group go on from another place; show before what comes again or is skipped.

    Refused while the group has live members.  Stop the consumers, reset, and start them again.
    """
    wanted = _reset(OffsetReset(group, topic, None, queue_id, offset, force), to)
    how.check_can_ask()
    with connected(how.endpoint, note=how.note) as admin:
        if not how.dry_run:
            _check_unused(admin.group(group), force=force)
        resets = admin.preview_offset_reset(wanted)
        moved = [each for each in resets if each.before != each.after]
        if moved and not how.as_json:
            print_view(resets_table(resets))
        if moved and not how.dry_run:
            how.check_confirmed(f"reset group {group}: {resets_text(resets)}?")
            resets = admin.reset_offsets(wanted)
    if how.as_json:
        queues = [
            _QUEUE_RESET.tree(each, again=each.again, skipped=each.skipped) for each in resets
        ]
        print_json(_RESET.tree(group=group, dry_run=how.dry_run, queues=queues))
    elif moved:
        done = "would reset" if how.dry_run else "reset"
        print_lines([f"{done} group {group}: {resets_text(resets)}"])
    if not moved:
        note(f"nothing to reset of group {group}")
        raise typer.Exit(NOT_ALL)


def _reset(request: OffsetReset, to: str) -> OffsetReset:
    """The request with the place of --to; a wrong command line ends the command."""
    is_place = (request.queue_id, request.queue_offset) != (None, None)
    if bool(to) == is_place:
        wrong("give either --to, or --offset with --queue and --topic")
    if is_place:
        if request.queue_id is None or request.queue_offset is None or not request.topic:
            wrong("--offset needs --queue and --topic")
        return request
    times: dict[str, int | None] = {"earliest": 0, "latest": None}
    at = times[to] if to in times else moment_ms("--to", to, f"earliest, latest, or {MOMENT_RULE}")
    return replace(request, timestamp_ms=at)


def _check_unused(status: GroupStatus, *, force: bool) -> None:
    """Refuse before the question is asked; the broker asks the same."""
    if status.members and not force:
        raise GroupInUse(status.info.group, len(status.members))


def _settings(groups: Sequence[GroupInfo]) -> dict[str, Sequence[object]]:
    return {
        "GROUP": [each.group for each in groups],
        "MAX RETRIES": [each.max_reconsume_times for each in groups],
        "RETRY QUEUES": [each.retry_queues for each in groups],
        "MAY CONSUME": [each.can_consume for each in groups],
        "ORDERLY": [each.orderly for each in groups],
    }


def _changes(before: GroupInfo | None, after: GroupInfo) -> list[tuple[object, ...]]:
    """Every setting before and now, and a word if it changed."""
    rows: list[tuple[object, ...]] = []
    for name in _SETTINGS:
        cells = [
            (getattr(info, name) if info else None) if name != "retry_policy" else _policy(info)
            for info in (before, after)
        ]
        word = "changed" if before and cells[0] != cells[1] else ""
        rows.append((name.replace("_", " "), *map(cell_text, cells), word))
    return rows


def _policy(info: GroupInfo | None) -> str | None:
    return (info.retry_policy or ROCKETMQS) if info else None


def _attempts(info: GroupInfo, table: LevelTable) -> tuple[Attempt, ...] | None:
    """The group's attempts; None for a policy of a newer broker that is unknown here."""
    try:
        policy = RetryPolicy.parse(info.retry_policy)
    except InvalidValue:
        return None
    return attempts_of(policy, table, info.max_reconsume_times)


def _progress_trees(status: GroupStatus) -> list[dict[str, Any]]:
    """The progress in each queue, and its lag, which is computed."""
    return [_PROGRESS.tree(each, lag=each.lag) for each in status.progress]


def _attempts_tree(attempts: Sequence[Attempt] | None, table: LevelTable) -> dict[str, object]:
    """The retries that the settings make; null for a policy that is unknown here."""
    if attempts is None:
        return {"retries": None, "dead_after_ms": None}
    retries = [_ATTEMPT.tree(each, delay=waits_text(each, table)) for each in attempts]
    return {
        "retries": retries,
        "dead_after_ms": attempts[-1].since_first_failure_ms if attempts else 0,
    }
