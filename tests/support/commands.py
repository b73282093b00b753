"""The command line as a test sees it: every command, its options, and what is wrong with a call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from rmqlite.cli.main import app

COMMANDS: Any = typer.main.get_command(app)
HELP = {"--help", "-h"}
OPTION = re.compile(r"--?[A-Za-z][\w-]*")


def leaves(command: Any = COMMANDS, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its words."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, below in command.commands.items():
        yield from leaves(below, f"{path} {name}".strip())


def options_of(command: Any) -> set[str]:
    return HELP | {name for each in command.params for name in (*each.opts, *each.secondary_opts)}


def wrong_with(words: list[str]) -> list[str]:
    """What the command line would not understand of the words after rmqlite.

    "list|show" stands for both, and a word in capitals for any.
    """
    command, path = COMMANDS, "rmqlite"
    for number, word in enumerate(words):
        if not hasattr(command, "commands") or word.startswith("-"):
            break
        if word.isupper():
            return []
        if "|" in word:
            return [
                wrong
                for each in word.split("|")
                for wrong in wrong_with([*path.split()[1:], each, *words[number + 1 :]])
            ]
        if word not in command.commands:
            return [f"{path} has no command {word}"]
        command, path = command.commands[word], f"{path} {word}"
    used = [word.split("=")[0] for word in words if OPTION.fullmatch(word.split("=")[0])]
    return [f"{path} has no option {each}" for each in used if each not in options_of(command)]
