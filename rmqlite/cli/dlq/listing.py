"""rmqlite dlq list and show: the groups with dead letters, and those of one group."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from rmqlite.cli.broker_view import BrokerView, connected
from rmqlite.cli.filters import DeadLetterOptions, Group, checked_group
from rmqlite.cli.options import (
    DEFAULT_ENDPOINT,
    NOT_ALL,
    AsJson,
    Count,
    Cursor,
    Endpoint,
    option,
    with_options,
)
from rmqlite.cli.output.documents import Document, many, prints
from rmqlite.cli.output.progress import letters_listed, note_letters
from rmqlite.cli.output.terminal import (
    fitted,
    note,
    numbers,
    print_json,
    print_lines,
    print_tall_table,
    printable,
    shortened,
)
from rmqlite.client import DeadLetter, DeadLetterGroup, DeadLettersQuery
from rmqlite.kernel.words.reasons import NO_REASON
from rmqlite.views.counts import counted
from rmqlite.views.failed_messages import (
    filter_text,
    letters_text,
    origin_text,
    place_text,
    reason_line,
    redriven_text,
)
from rmqlite.views.times import age_text, second_text

LETTER: Final = Document(
    "DeadLetter",
    "A dead letter without its body; place and offset_message_id name it to other commands.",
    DeadLetter,
    place=str,
    offset_message_id=str,
)
_LETTERS: Final = Document(
    "DeadLetters",
    "cursor: for the next part of the list, or empty.",
    letters=many(LETTER),
    cursor=str,
)
_GROUP: Final = Document(
    "DeadLetterGroup", "A group's dead letters, and the open ones.", DeadLetterGroup, open=int
)
_GROUPS: Final = Document("DeadLetterGroups", "By group.", now_ms=int, groups=many(_GROUP))
ROWS_DEFAULT: Final = 20
_COLUMNS: Final = ("FIRST FAILED", "LAST FAILED", "ATTEMPTS", "TOPIC", "TAGS", "KEYS")
_CELL_WIDTH_MAX: Final = 30
"""The width of a cell whose length senders choose; peek shows all of it."""


@prints(lambda: _LETTERS)
@with_options
def show(
    *,
    group: Group,
    options: DeadLetterOptions,
    newest: Annotated[
        bool, option("--newest/--oldest", "Begin with those that died last.")
    ] = False,
    only_open: Annotated[
        bool, option("--open/--all", "Only those that are not redriven, or all.")
    ] = True,
    count: Count = ROWS_DEFAULT,
    cursor: Cursor = "",
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """List the dead letters of GROUP that match all options, each with id, place and reason.

    Exit code 1 if there is none.
    """
    group = checked_group(group)
    with connected(endpoint) as admin:
        broker = BrokerView(admin)
        wanted = options.filter(broker)
        query = DeadLettersQuery(group, wanted, newest, only_open, cursor)
        call = admin.dead_letters.list_dead
        letters, more = letters_listed(call, query, count)
        if not as_json:
            note_letters(call, query, len(letters), more, "dead letter")
    if as_json:
        print_json(_LETTERS.tree(letters=[letter_tree(each) for each in letters], cursor=more))
    elif letters:
        print_tall_table(_COLUMNS, [(_row(each), _lines(each)) for each in letters])
    if more:
        again = f"rmqlite dlq show {shlex.quote(group)} {options.words()}".rstrip()
        flags = [" --newest"] * newest + [" --all"] * (not only_open)
        flags += [f" --max {count}"] * (count != ROWS_DEFAULT)
        note(f"more: {again}{''.join(flags)} --cursor {shlex.quote(more)}")
    if not letters:
        note(_nothing(group, filter_text(wanted), only_open=only_open, is_first=not cursor))
        raise typer.Exit(NOT_ALL)


def letter_tree(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter for JSON."""
    return LETTER.tree(letter, place=place_text(letter), offset_message_id=letter.offset_message_id)


def _row(letter: DeadLetter) -> tuple[str, ...]:
    first = second_text(letter.first_failure_ms)
    last = second_text(letter.last_failure_ms)
    day = first.partition(" ")[0]
    return (
        first,
        # On the same day show only the time, so that a terminal's line has room for keys.
        last.removeprefix(f"{day} "),
        f"{letter.delivery_attempts:,}",
        shortened(origin_text(letter), _CELL_WIDTH_MAX) or "-",
        shortened(printable(letter.tags), _CELL_WIDTH_MAX) or "-",
        shortened(printable(" ".join(letter.keys)), _CELL_WIDTH_MAX) or "-",
    )


def _lines(letter: DeadLetter) -> list[str]:
    lines = [f"{printable(letter.message_id)}  {place_text(letter)}"]
    redriven = redriven_text(letter)
    return [*lines, *[redriven] * bool(redriven), fitted(reason_line(letter.reason))]


def _nothing(group: str, filtered: str, *, only_open: bool, is_first: bool) -> str:
    if not is_first:
        return "no more dead letters"
    what = "open dead letter" if only_open else "dead letter"
    return f"no {what} of group {group}{' matches: ' if filtered else ''}{filtered}"


@prints(lambda: _GROUPS)
def list_groups(
    everything: Annotated[bool, option("--all -a", "Also groups without open ones.")] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """List the groups with dead letters, the most open ones first, and their reasons.

    Reasons are grouped by kind: # stands for each number and id; show --kind lists one kind.

    Open ones are not redriven or purged; purged ones are hidden but still in the log.
    """
    with connected(endpoint) as admin:
        found = admin.dead_letters.groups()
        now_ms = admin.broker_status().now_ms
    shown = [each for each in found if each.open or everything]
    shown.sort(key=lambda each: (-each.open, each.group))
    if as_json:
        print_json(_GROUPS.tree(now_ms=now_ms, groups=[_group_tree(each) for each in shown]))
        return
    if shown:
        _print_groups(shown, now_ms)
    else:
        note("no open dead letters" if found else "no dead letters")
    hidden = len(found) - len(shown)
    if hidden:
        note(f"groups without open letters: {hidden:,}; --all lists them")


@prints(lambda: _GROUP)
@with_options
def reasons(
    *, group: Group, endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False
) -> None:
    """Show every kind of reason of GROUP's open dead letters, the most frequent first.

    # stands for each number and id; show --kind lists the dead letters of one kind.

    Exit code 1 if there is none.
    """
    group = checked_group(group)
    with connected(endpoint) as admin:
        found = admin.dead_letters.reasons(group)
    if as_json:
        print_json(_group_tree(found))
    else:
        print_lines(_reason_lines(found))
    if not found.reasons:
        note(f"no open dead letter of group {group} has a reason")
        raise typer.Exit(NOT_ALL)


def _print_groups(groups: Sequence[DeadLetterGroup], now_ms: int) -> None:
    columns = [
        ["GROUP", *[printable(each.group) for each in groups]],
        numbers("OPEN", [each.open for each in groups]),
        numbers("REDRIVEN", [each.redriven for each in groups]),
        numbers("PURGED", [each.purged for each in groups]),
    ]
    head, *rows = zip(*columns, strict=True)
    below = [_group_lines(each, now_ms) for each in groups]
    print_tall_table(head, list(zip(rows, below, strict=True)))


def _group_lines(group: DeadLetterGroup, now_ms: int) -> list[str]:
    lines = []
    if group.letters:
        ends = [
            f"{second_text(end_ms)} ({age_text(end_ms, now_ms)})"
            for end_ms in (group.oldest_ms, group.newest_ms)
        ]
        lines.append(f"from {ends[0]} to {ends[1]}")
    return lines + _reason_lines(group)


def _reason_lines(group: DeadLetterGroup) -> list[str]:
    """Each kind of reasons with its count and its share."""
    lines = []
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
    command = f"rmqlite dlq reasons {shlex.quote(group.group)}"
    return f"of {counted(group.rest_kinds, 'other kind')}: {command}"


def _group_tree(group: DeadLetterGroup) -> dict[str, Any]:
    return _GROUP.tree(group, open=group.open)
