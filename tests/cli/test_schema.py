"""rmqlite schema: each --json output is described.  All tests of commands compare theirs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rmqlite.cli.output.documents import Document, Either, Printed, many, maybe, schema_of
from tests.cli.conftest import Run
from tests.support.documents_printed import PRINTED, check_document, strict


@dataclass(frozen=True, slots=True)
class Place:
    """A place on a map.

    x, y: in metres.
    """

    x: int
    y: int = 0
    secret: str = ""


PLACE = Document("Place", "Where it is.", Place, without=("secret",), name=str, z=maybe(int))
WAY = Document("Way", "A way.", places=many(PLACE), optional={"length": float})
LONG_WAY = Document("LongWay", "A longer one.", WAY, rests=int)


def described(kind: Any) -> Draft202012Validator:
    return Draft202012Validator(strict(schema_of("go", Printed(lambda: kind, is_line=False))))


def test_a_document_has_the_fields_of_its_dataclass_and_its_own() -> None:
    """Without those that it leaves out; what is written is what is described."""
    tree = PLACE.tree(Place(1, 2, "s"), name="home", z=None)
    assert tree == {"x": 1, "y": 2, "name": "home", "z": None}
    assert described(PLACE).is_valid(tree)
    for wrong in (tree | {"x": "1"}, tree | {"secret": ""}, {"x": 1, "name": "home", "z": 3}):
        assert not described(PLACE).is_valid(wrong)


def test_documents_are_parts_of_documents() -> None:
    """In lists, as one of several kinds, and as what another one begins with."""
    places = [PLACE.tree(Place(1), name="a", z=3)]
    way = WAY.tree(places=places)
    assert described(WAY).is_valid(way)
    assert described(WAY).is_valid(WAY.tree(places=places, length=2.5))
    longer = LONG_WAY.tree(way, rests=2)
    assert longer == {"places": places, "rests": 2}
    assert described(LONG_WAY).is_valid(longer)
    assert described(Either(WAY, LONG_WAY)).is_valid(longer)
    assert not described(Either(PLACE, LONG_WAY)).is_valid(way)


def test_a_document_writes_no_field_that_it_does_not_describe() -> None:
    """Nor does it leave one out."""
    with pytest.raises(AssertionError):
        WAY.tree(places=[], width=1)
    with pytest.raises(AssertionError):
        WAY.tree(length=1.0)


def test_the_description_says_what_the_fields_mean() -> None:
    """The dataclass has said so already."""
    tree = schema_of("go", Printed(lambda: PLACE, is_line=True))
    assert tree["description"] == "Where it is.\n\nA place on a map.\n\nx, y: in metres."
    assert tree["$comment"] == "each line of rmqlite go --json"


@pytest.mark.parametrize("name", PRINTED)
def test_a_schema_is_one_of_json_schema(run: Run, name: str) -> None:
    """As any program's validator reads it."""
    tree = json.loads(run("schema", *name.split()).stdout)
    Draft202012Validator.check_schema(tree)
    assert tree["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    assert tree["$comment"].endswith(f"rmqlite {name} --json")


def test_without_a_command_it_lists_those_that_have_a_schema(run: Run) -> None:
    """One a line."""
    assert run("schema").stdout.splitlines() == sorted(PRINTED)


def test_a_command_without_a_schema_is_refused(run: Run) -> None:
    """Also a noun alone."""
    for words in (("store", "cat"), ("topic",), ("topic", "lists")):
        result = run("schema", *words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "COMMAND must be one that rmqlite schema lists, not" in result.stderr


def test_a_field_that_no_schema_has_is_noticed() -> None:
    """By every test that runs a command."""
    tree = {"allowed": True, "rule": None}
    check_document(["acl", "test", "--json"], json.dumps(tree))
    with pytest.raises(AssertionError, match="because"):
        check_document(["acl", "test", "--json"], json.dumps(tree | {"because": 1}))
