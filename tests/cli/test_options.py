"""Options of a dataclass: a command gets one object, its user sees every option."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from rmqlite.cli.options import with_options


@dataclass(frozen=True)
class Where:
    """Two options, and a field that is none."""

    topic: Annotated[str, typer.Option("--topic", help="Which topic.")] = "orders"
    keys: Annotated[list[str] | None, typer.Option("--key", help="Which keys.")] = None
    inside: str = "untouched"


@dataclass(frozen=True)
class Needed:
    """An option without a default must be given."""

    to: Annotated[str, typer.Option("--to", help="Where to.")]


@with_options
def command(*, name: Annotated[str, typer.Argument()], where: Where, needed: Needed) -> None:
    """Do it."""
    typer.echo(f"{name} {where} {needed.to}")


app = typer.Typer()
app.command()(command)


def test_a_command_gets_its_options_as_one_object() -> None:
    """Defaults are those of the fields, and options that are not given stay out of the way."""
    done = CliRunner().invoke(app, ["x", "--key", "a", "--key", "b", "--to", "y"])
    assert done.output == f"x {Where(keys=['a', 'b'])} y\n"
    assert CliRunner().invoke(app, ["x", "--to", "y"]).output == f"x {Where()} y\n"


def test_the_help_shows_every_option_and_no_other_field() -> None:
    """In the order of the parameters."""
    page = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100"}).output
    places = [page.index(each) for each in ("Which topic.", "Which keys.", "Where to.")]
    assert places == sorted(places)
    assert "inside" not in page


def test_an_option_without_a_default_must_be_given() -> None:
    """As with any parameter of a command."""
    assert CliRunner().invoke(app, ["x"]).exit_code == 2
