"""Rules for every command that there is: help, --json, exit codes, what is said where.

The commands are read from the command line itself, so a new one is in these tests or in one
of the tables that say why it is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from rmqlite.cli.main import app
from tests.cli.conftest import Run

WITHOUT_JSON = {
    "broker": "it runs until it is stopped",
    "top": "it is a screen",
    "dlq export": "it writes a file, of the kind that is asked for",
    "store cat": "its lines are for people; store export is for programs",
    "store export": "it writes JSON lines, or the kind that is asked for",
}
LOCAL = {"broker", "bench", "store show", "store cat", "store check", "store repair"} | {
    "store export"
}
"""They ask no broker; the pipeline's commands only perhaps."""
ARGUMENTS = {
    "send": "orders x",
    "consume": "orders --peek",
    "message get": "0A00000100002A9F0000000000000000",
    "message query": "orders --key k",
    "schedule cancel": "A",
    "schedule fire": "A",
    "schedule reschedule": "A --to 10",
    "retry list": "workers",
    "retry show": "A",
    "retry now": "workers A",
    "retry cancel": "workers A",
    "dlq show": "workers",
    "dlq peek": "A",
    "dlq redrive": "workers --yes",
    "dlq import": f"{__file__} --yes",
    "dlq purge": "workers --yes",
    "topic show": "orders",
    "topic create": "orders",
    "group show": "workers",
    "group set": "workers --max-reconsume-times 3",
    "levels set": "10s --yes",
    "job show": "job-1",
    "job outcomes": "job-1",
    "job pause": "job-1",
    "job resume": "job-1",
    "job cancel": "job-1",
    "job rate": "job-1 5",
}
"""The least that a command needs to know before it asks the broker."""


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield " ".join(path), command
        return
    for name, each in command.commands.items():
        yield from _commands(each, (*path, name))


COMMANDS = dict(_commands(typer.main.get_command(app)))


def options(name: str) -> set[str]:
    return {option for each in COMMANDS[name].params for option in each.opts}


ASKING = sorted(
    [
        each
        for each in COMMANDS
        if each not in LOCAL | set(WITHOUT_JSON) and not each.startswith("pipeline")
    ]
)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_explains_itself_and_all_its_options(run: Run, name: str) -> None:
    """--help is the manual; it fits a terminal and needs no broker."""
    result = run(*name.split(), "--help")
    assert (result.exit_code, "Usage:" in result.stdout) == (0, True)
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    silent = [each.opts for each in COMMANDS[name].params if not getattr(each, "help", "")]
    assert not silent
    assert COMMANDS[name].help


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_json_or_a_reason_not_to(name: str) -> None:
    """A program reads what a person is shown."""
    assert ("--json" in options(name)) == (name not in WITHOUT_JSON)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_asks_the_broker_that_it_is_told_to(name: str) -> None:
    """By the same option everywhere."""
    assert ("--endpoint" in options(name)) == (name not in LOCAL)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_can_be_asked_first_can_be_looked_at_first(name: str) -> None:
    """--yes spares a question; before it there is --dry-run, or for a store `store check`."""
    if "--yes" in options(name) and name != "store repair":
        assert "--dry-run" in options(name)


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize("as_json", [False, True])
def test_no_broker_is_exit_code_3_and_one_line(
    run: Run, tmp_path: Path, name: str, as_json: bool
) -> None:
    """Whatever was asked: the output stays empty, so no program takes it for an answer."""
    words = [*name.split(), *ARGUMENTS.get(name, "").split(), *["--json"] * as_json]
    result = run(*words, "--endpoint", f"unix:{tmp_path}/nobody")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ASKING)
def test_a_wrong_option_is_exit_code_2(run: Run, name: str) -> None:
    """Nothing was asked."""
    result = run(*name.split(), *ARGUMENTS.get(name, "").split(), "--no-such-option")
    assert (result.exit_code, result.stdout) == (2, "")
