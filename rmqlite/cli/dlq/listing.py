"""rmqlite dlq show: the dead letters of a group, page by page."""

from __future__ import annotations

import shlex
from typing import Annotated, Final

import typer

from rmqlite.cli.broker_view import CALL_MS_MAX, BrokerView
from rmqlite.cli.letter_options import Group, LetterOptions, checked_group, filter_text
from rmqlite.cli.options import (
    DEFAULT_ENDPOINT,
    NOT_ALL,
    AsJson,
    Count,
    Cursor,
    Endpoint,
    with_options,
)
from rmqlite.cli.output.letter_text import letter_tree, place_text, reason_line, redriven_text
from rmqlite.cli.output.progress import letters_listed
from rmqlite.cli.output.spans import second_text
from rmqlite.cli.output.terminal import (
    fitted,
    note,
    print_json,
    print_tall_table,
    printable,
    shortened,
)
from rmqlite.requests.dead_letters import DeadLetter, DeadLettersQuery

ROWS_DEFAULT: Final = 20
_COLUMNS: Final = ("FIRST FAILED", "LAST FAILED", "ATTEMPTS", "TOPIC", "TAGS", "KEYS")
_CELL_WIDTH_MAX: Final = 30
"""The width of a cell whose length senders choose; peek shows all of it."""


@with_options
def show(
    *,
    group: Group,
    options: LetterOptions,
    newest: Annotated[
        bool, typer.Option("--newest/--oldest", help="Begin with the letters that died last.")
    ] = False,
    only_open: Annotated[
        bool, typer.Option("--open/--all", help="Only letters that are not redriven, or all.")
    ] = True,
    count: Count = ROWS_DEFAULT,
    cursor: Cursor = "",
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """List the dead letters of GROUP that match all options, each with id, place and reason.

    Exit code 1 if there is none.
    """
    from rmqlite.client import AdminClient

    group = checked_group(group)
    with AdminClient(endpoint, timeout_ms=CALL_MS_MAX) as admin:
        broker = BrokerView(admin)
        wanted = options.filter(broker)
        query = DeadLettersQuery(group, wanted, newest, only_open, cursor)
        letters, more = letters_listed(admin.letters.list_dead, query, count)
    if as_json:
        print_json({"letters": [letter_tree(each) for each in letters], "cursor": more})
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


def _row(letter: DeadLetter) -> tuple[str, ...]:
    first = second_text(letter.first_failure_ms)
    last = second_text(letter.last_failure_ms)
    day = first.partition(" ")[0]
    return (
        first,
        # On the same day show only the time, so that a terminal's line has room for keys.
        last.removeprefix(f"{day} "),
        f"{letter.delivery_attempts:,}",
        shortened(printable(letter.origin_topic), _CELL_WIDTH_MAX) or "-",
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
