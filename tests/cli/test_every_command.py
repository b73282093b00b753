"""Rules for every command that there is: help, --json, exit codes, what is said where.

The commands are read from the command line itself, so a new one is in these tests or in one
of the tables that say why it is not.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rmqlite.cli.main import COMMANDS as PLACES
from rmqlite.cli.main import MAY_BE_EMPTY, app
from rmqlite.cli.output.documents import DOCUMENT
from tests.cli.conftest import Run

WITHOUT_JSON = {
    "broker": "it runs until it is stopped",
    "top": "it is a screen",
    "dlq export": "it writes a file, of the kind that is asked for",
    "store cat": "its lines are for people; store export is for programs",
    "store export": "it writes JSON lines, or the kind that is asked for",
    "acl template": "it prints a file",
    "tls selfsigned": "it writes files",
    "schema": "it prints nothing but JSON",
}
LOCAL = (
    {"broker", "schema"}
    | {"store show", "store cat", "store check", "store repair", "store export", "store handover"}
    | {"store backup", "store restore", "store tails"}
    | {"acl check", "acl show", "acl template", "acl test", "tls selfsigned"}
)
"""They ask no broker; the pipeline's commands only perhaps."""
ARGUMENTS = {
    "send": "orders x",
    "consume": "orders --peek",
    "message history": "A",
    "message get": "0A00000100002A9F0000000000000000",
    "message query": "orders --key k",
    "schedule cancel": "A",
    "schedule deliver-now": "A",
    "schedule fire": "A",
    "schedule reschedule": "A --to 10",
    "retry list": "workers",
    "retry now": "workers A",
    "retry bury": "workers A",
    "retry cancel": "workers A",
    "dlq show": "workers",
    "dlq peek": "A",
    "dlq reasons": "workers",
    "dlq redrive": "workers --yes",
    "dlq import": f"{__file__} --yes",
    "dlq purge": "workers --yes",
    "topic show": "orders",
    "topic create": "orders",
    "topic delete": "orders --yes",
    "group show": "workers",
    "group delete": "workers --yes --force",
    "group reset-offset": "workers --to earliest --yes --force",
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


def test_a_command_explains_itself_and_all_its_options() -> None:
    """--help is the manual; it fits a terminal and needs no broker."""
    for name, command in COMMANDS.items():
        result = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "80"})
        assert (result.exit_code, "Usage:" in result.stdout) == (0, True), name
        assert max(len(line) for line in result.stdout.splitlines()) <= 80, name
        silent = [each.opts for each in command.params if not getattr(each, "help", "")]
        assert not silent, name
        assert command.help, name


def _sources(
    of: typer.Typer, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Each command and group, and the texts that its help is to show, as they are written."""
    for command in of.registered_commands:
        callback = command.callback
        assert callback is not None
        hints = typing.get_type_hints(callback, include_extras=True)
        described = [each for hint in hints.values() for each in getattr(hint, "__metadata__", ())]
        helps = [str(each.help) for each in described]
        yield (*path, str(command.name or callback.__name__)), [str(callback.__doc__), *helps]
    for group in of.registered_groups:
        assert group.typer_instance is not None
        below = (*path, str(group.name))
        yield below, [str(group.typer_instance.info.help)]
        yield from _sources(group.typer_instance, below)


def _all() -> typer.Typer:
    """All commands as they are written."""
    every = typer.Typer()
    for name, place in PLACES.items():
        found = resolve_name(place)
        if isinstance(found, typer.Typer):
            every.add_typer(found, name=name)
        else:
            every.command(name)(found)
    return every


SOURCES = {" ".join(path): texts for path, texts in _sources(_all())}


def test_the_written_help_of_every_command_is_known() -> None:
    """Else the next test would look at nothing."""
    assert set(SOURCES) >= set(COMMANDS)
    assert any("[arrow]" in text for text in SOURCES["store export"])


def test_help_is_shown_as_it_is_written() -> None:
    """Brackets are no markup: pip install "rmqlite[arrow]" must not lose its extra."""
    for name, texts in SOURCES.items():
        result = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "2000"})
        shown = " ".join(result.stdout.split())
        assert not [text for text in texts if " ".join(text.split()) not in shown], name


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_shows_help_as_it_is_written(shell: str) -> None:
    """The shells that show help beside a word get its brackets, too."""
    words = "rmqlite store export --form"
    env = {"_RMQLITE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": words}
    env |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_TYPER_COMPLETE_WORD_TO_COMPLETE": "--form"}
    result = CliRunner().invoke(app, [], prog_name="rmqlite", env=env)
    assert "rmqlite[arrow]" in result.stdout


def test_a_command_has_json_or_a_reason_not_to() -> None:
    """A program reads what a person is shown."""
    assert {name for name in COMMANDS if "--json" not in options(name)} == WITHOUT_JSON.keys()


def test_what_a_command_prints_as_json_has_a_schema() -> None:
    """Declared where it is written, so that `rmqlite schema` knows it."""
    declared = {name for name, each in COMMANDS.items() if hasattr(each.callback, DOCUMENT)}
    assert {name for name in COMMANDS if "--json" in options(name)} == declared


def test_a_command_asks_the_broker_that_it_is_told_to() -> None:
    """By the same option everywhere."""
    assert {name for name in COMMANDS if "--endpoint" not in options(name)} == LOCAL


def test_what_can_be_asked_first_can_be_looked_at_first() -> None:
    """--yes spares a question; before it there is --dry-run, or for a store `store check`."""
    asking = {name for name in COMMANDS if "--yes" in options(name)} - {"store repair"}
    assert not [name for name in asking if "--dry-run" not in options(name)]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize("as_json", [False, True])
def test_no_broker_is_exit_code_3_and_one_line(tmp_path: Path, name: str, as_json: bool) -> None:
    """Whatever was asked: the output stays empty, so no program takes it for an answer."""
    words = [*name.split(), *ARGUMENTS.get(name, "").split(), *["--json"] * as_json]
    words += ["--endpoint", f"unix:{tmp_path}/nobody"]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "80"})
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_a_wrong_option_is_exit_code_2(run: Run) -> None:
    """Nothing was asked."""
    for name in ASKING:
        result = run(*name.split(), *ARGUMENTS.get(name, "").split(), "--no-such-option")
        assert (result.exit_code, result.stdout) == (2, ""), name


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_an_option_that_is_given_twice_counts_twice_or_is_refused(name: str) -> None:
    """The last one alone would count, and a redrive of two ids would send one."""
    path = name.split()
    for option in COMMANDS[name].params:
        if option.param_type_name != "option" or option.name == "help":
            continue
        for spelling in (*option.opts, *option.secondary_opts):
            value = [] if option.is_flag else ["1"]
            given = [spelling, *value, option.opts[0], *value]
            if option.multiple:
                context = COMMANDS[name].context_class(COMMANDS[name])
                found, _, _ = COMMANDS[name].make_parser(context).parse_args(given)
                assert found[option.name] == ["1", "1"]
                assert "repeated" in option.help or "several" in option.help
            else:
                result = CliRunner().invoke(app, [*path, *given])
                assert "is given twice" in result.stderr
                assert result.exit_code == 2


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", sorted(COMMANDS))
@pytest.mark.parametrize("nothing", ["", "  "])
def test_what_is_given_empty_is_refused_by_its_name(name: str, nothing: str) -> None:
    """In a script, --at "$WHEN" with an unset variable must not deliver at once."""
    for each in COMMANDS[name].params:
        if getattr(each, "is_flag", False) or each.name in MAY_BE_EMPTY:
            continue
        if each.param_type_name == "option":
            given, shown = [each.opts[0], nothing], each.opts[0]
        else:
            before = [other for other in COMMANDS[name].params if other.param_type_name != "option"]
            given, shown = ["1"] * before.index(each) + [nothing], each.metavar
        result = CliRunner().invoke(app, [*name.split(), *given], env={"COLUMNS": "200"})
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"{shown} is empty" in " ".join(result.stderr.split())
