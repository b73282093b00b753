"""rmqlite dlq list: the groups with dead letters, their times and top reasons."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from rmqlite.cli.broker_view import CALL_MS_MAX
from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint
from rmqlite.cli.output.letter_text import letters_text
from rmqlite.cli.output.spans import age_text, second_text
from rmqlite.cli.output.terminal import (
    fitted,
    note,
    numbers,
    print_json,
    print_tall_table,
    printable,
)
from rmqlite.requests.dead_letters import NO_REASON, DeadLetterGroup


def list_groups(
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also groups without open letters.")
    ] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """List the groups with dead letters, the most open ones first, and their reasons.

    Reasons are grouped by kind: # stands for each number and id; show --kind lists one kind.

    Open letters are not redriven or purged; purged letters are hidden but still in the log.
    """
    from rmqlite.client import AdminClient

    with AdminClient(endpoint, timeout_ms=CALL_MS_MAX) as admin:
        found = admin.letters.groups()
        now_ms = admin.broker_status().now_ms
    shown = [each for each in found if each.open or everything]
    shown.sort(key=lambda each: (-each.open, each.group))
    if as_json:
        print_json({"now_ms": now_ms, "groups": [_tree(each) for each in shown]})
        return
    if shown:
        _print(shown, now_ms)
    else:
        note("no open dead letters" if found else "no dead letters")
    hidden = len(found) - len(shown)
    if hidden:
        note(f"groups without open letters: {hidden:,}; --all lists them")


def _print(groups: Sequence[DeadLetterGroup], now_ms: int) -> None:
    columns = [
        ["GROUP", *[printable(each.group) for each in groups]],
        numbers("OPEN", [each.open for each in groups]),
        numbers("REDRIVEN", [each.redriven for each in groups]),
        numbers("PURGED", [each.purged for each in groups]),
    ]
    head, *rows = zip(*columns, strict=True)
    below = [_lines(each, now_ms) for each in groups]
    print_tall_table(head, list(zip(rows, below, strict=True)))


def _lines(group: DeadLetterGroup, now_ms: int) -> list[str]:
    lines = []
    if group.letters:
        ends = [
            f"{second_text(end_ms)} ({age_text(end_ms, now_ms)})"
            for end_ms in (group.oldest_ms, group.newest_ms)
        ]
        lines.append(f"from {ends[0]} to {ends[1]}")
    of = min(group.open, group.reasons_of)
    if group.reasons and of < group.open:
        lines.append(f"reasons of the newest {letters_text(group.reasons_of)}:")
    kinds = [(each.count, printable(each.reason) or NO_REASON) for each in group.reasons]
    if group.rest_letters:
        kinds.append((group.rest_letters, _rest_text(group)))
    counts = numbers("", [count for count, _ in kinds])[1:]
    for text, (count, kind) in zip(counts, kinds, strict=True):
        lines.append(fitted(f"{text}  {count / max(of, 1):4.0%}  {kind}"))
    return lines


def _rest_text(group: DeadLetterGroup) -> str:
    if not group.rest_kinds:
        return "that cannot be read"
    return f"of {group.rest_kinds:,} other kind{'s' * (group.rest_kinds > 1)}"


def _tree(group: DeadLetterGroup) -> dict[str, Any]:
    return dataclasses.asdict(group) | {"open": group.open}
