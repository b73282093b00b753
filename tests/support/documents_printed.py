"""Compares what a command has printed with --json with the schema that `rmqlite schema` prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from rmqlite.cli.output.documents import DOCUMENT, Printed, schema_of
from tests.support.commands import COMMANDS, leaves

PRINTED: dict[str, Printed] = {
    path: getattr(command.callback, DOCUMENT)
    for path, command in leaves()
    if hasattr(command.callback, DOCUMENT)
}
"""What each command prints, by its words."""


def check_document(words: Sequence[str], stdout: str) -> None:
    """Fail if a command has printed JSON that its schema does not describe, field by field."""
    path = _path_of(words)
    if "--json" not in words or path not in PRINTED or not stdout.strip():
        return
    lines = stdout.splitlines() if PRINTED[path].is_line else [stdout]
    for line in lines:
        errors = list(_validator(path).iter_errors(json.loads(line)))
        assert not errors, f"{path}: {[(each.json_path, each.message) for each in errors]}"


def _path_of(words: Sequence[str]) -> str:
    """The words of the command itself."""
    command, path = COMMANDS, []
    for word in words:
        if not hasattr(command, "commands") or word not in command.commands:
            break
        command = command.commands[word]
        path.append(word)
    return " ".join(path)


@cache
def _validator(path: str) -> Draft202012Validator:
    schema = schema_of(path, PRINTED[path])
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(strict(schema))


def strict(schema: Any) -> Any:
    """The schema without room for fields that it does not name."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    tree = {name: strict(each) for name, each in schema.items()}
    return {"additionalProperties": False, **tree} if "properties" in schema else tree
