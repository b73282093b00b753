"""The options that several commands share, so that they are spelled and explained once.

Options that go together are the fields of a dataclass; a command under with_options() has one
parameter for all of them.  option() declares one of them.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, TypeVar, cast, get_origin, get_type_hints

import typer

from rmqlite.cli import completion
from rmqlite.cli.output.terminal import can_ask, is_confirmed, note
from rmqlite.cli.output.writing import STANDARD_OUTPUT
from rmqlite.kernel.words.clock import local_ms
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import instant_ms, wait_ms

C = TypeVar("C", bound=Callable[..., Any])
F = TypeVar("F", bound=enum.StrEnum)
DEFAULT_ENDPOINT: Final = "127.0.0.1:8081"


def option(usage: str, text: str, words: Any = None, **more: Any) -> Any:
    """An option of a command; usage: its names, then its value's, such as "--topic -t NAME".

    text: its help.  words: what a shell offers for TAB.
    """
    names = [each for each in usage.split() if each.startswith("-")]
    metavar = " ".join(usage.split()[len(names) :]) or None
    return typer.Option(*names, metavar=metavar, help=text, autocompletion=words, **more)


Endpoint = Annotated[
    str,
    option(
        "--endpoint -e HOST:PORT",
        "The broker's address; tls://HOST:PORT if it takes TLS; with a comma between a master's and"
        " its standby's.",
        envvar="RMQLITE_ENDPOINT",
    ),
]
GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", help="The consumer group's name.", autocompletion=completion.groups
    ),
]
TopicArgument = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=completion.topics),
]
AsJson = Annotated[bool, option("--json", "Print JSON for programs instead of a table for people.")]
Sql = Annotated[
    str | None,
    option(
        "--sql CONDITION",
        "Only messages whose properties match an SQL92 expression, for example: "
        "\"amount > 100 AND region IN ('eu', 'uk')\".",
    ),
]
Count = Annotated[int, option("--max -n", "At most this many.", min=1, max=100_000)]
Cursor = Annotated[str, option("--cursor CURSOR", "Continue where another list ended.")]
DryRun = Annotated[bool, option("--dry-run", "Show what would be done; change nothing.")]
Yes = Annotated[bool, option("--yes -y", "Do not ask.")]
Note = Annotated[
    str,
    option(
        "--note TEXT",
        "Why, such as a ticket; kept in the broker's audit log and in the job.",
        show_default=False,
    ),
]
Key = Annotated[str | None, option("--key -k KEY", "One of the message's keys.")]
Since = Annotated[
    str, option("--since TIME", "Stored at this time or later: '2026-11-20 10:00' or epoch ms.")
]
Until = Annotated[str, option("--until TIME", "Stored before this time.")]
At = Annotated[
    str,
    option(
        "--at TIME",
        "At this instant: 2028-02-29T08:00+01:00, '2028-02-29 08:00' (local), or epoch ms.",
    ),
]
After = Annotated[
    str, option("--after SPAN", "This long from now, by the broker's clock: 36h, 1d12h, 1500ms.")
]

Output = Annotated[Path, option("--output -o FILE", "The file to write; - prints it.")]
_ENDINGS: Final = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
"""The format of a file by how its name ends; any other ending: JSON lines."""
_TABLES: Final = ("parquet", "arrow")


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """The options of every change: whether and how to do it, and the output."""

    dry_run: DryRun = False
    yes: Yes = False
    note: Note = ""
    endpoint: Endpoint = DEFAULT_ENDPOINT
    as_json: AsJson = False

    def check_can_ask(self) -> None:
        """End the command if it must ask and there is no terminal."""
        if not (self.dry_run or self.yes or can_ask()):
            wrong("there is no terminal to ask on: look with --dry-run, then give --yes")

    def check_confirmed(self, question: str) -> None:
        """Ask, unless --yes is given; end the command if the answer is no."""
        if not (self.yes or is_confirmed(question)):
            raise typer.Exit(NOT_ALL)


NOT_ALL: Final = 1
"""The exit code if nothing was found, or not everything was done."""
WRONG_COMMAND_LINE: Final = 2
NOT_CLOSED: Final = 5
"""The exit code if a store was not closed, and what a crash took may be missing."""
MOMENT_RULE: Final = (
    "a time such as '2026-11-20 10:00', which is local, or 2026-11-20T10:00+01:00,"
    " or milliseconds since 1970"
)
_MS_DIGITS_MAX: Final = 15
_OUR_TIME: Final = "a time after 2001-09-09, and before the year 10000"


def with_options(command: C) -> C:
    """Show typer the options of each parameter that is a dataclass, in place of the parameter.

    Fields that are not annotated with a typer.Option keep their defaults.
    """
    parameters: list[inspect.Parameter] = []
    packed: dict[str, tuple[type, list[str]]] = {}
    for each in inspect.signature(command, eval_str=True).parameters.values():
        options = list(_options_of(each.annotation)) if is_dataclass(each.annotation) else []
        if options:
            packed[each.name] = (each.annotation, [option.name for option in options])
        parameters += options or [each.replace(kind=inspect.Parameter.KEYWORD_ONLY)]

    @wraps(command)
    def run(**given: Any) -> Any:
        for name, (kind, names) in packed.items():
            given[name] = kind(**{each: given.pop(each) for each in names})
        return command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return cast(C, run)


def _options_of(kind: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        if get_origin(hints[each.name]) is Annotated:
            default = inspect.Parameter.empty if each.default is MISSING else each.default
            yield inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=hints[each.name],
            )


def finish(exit_code: int, warnings: Sequence[str]) -> None:
    """End a command after its answer, if its exit code is not 0.

    warnings: what its source may lack; they were logged.
    """
    if warnings:
        note("the answer may lack records: see the warnings")
    if exit_code or warnings:
        raise typer.Exit(exit_code or NOT_CLOSED)


def wrong(sentence: str) -> NoReturn:
    """End the command with one line and the exit code of a wrong command line."""
    note(f"error: {sentence}")
    raise typer.Exit(WRONG_COMMAND_LINE)


def refuse(option: str, value: object, rule: str) -> NoReturn:
    """The same for a value that breaks a rule: "NAME must be RULE, not 'value'"."""
    wrong(str(InvalidValue(option, value, rule)))


def moment_ms(option: str, text: str, rule: str = MOMENT_RULE) -> int | None:
    """The milliseconds since 1970 of an option of time; None if it is not given."""
    if not text:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) <= _MS_DIGITS_MAX
    moment = int(text) if is_number else local_ms(text)
    if moment is None:
        refuse(option, text, rule)
    try:
        return instant_ms(option, moment)
    except InvalidValue as error:
        refuse(option, text, error.rule if is_number else _OUR_TIME)


def after_ms(text: str, name: str = "--after") -> int:
    """The length of an option in milliseconds."""
    try:
        return wait_ms(name, text)
    except InvalidValue as error:
        refuse(name, text, error.rule)


def format_option(need: str) -> Any:
    """The option --format; need: the formats, and that they need something."""
    return option(
        "--format -f",
        f'The format; by default as --output ends, or jsonl. {need} pip install "rmqlite[arrow]".',
        show_default=False,
    )


def format_of(form: F | None, output: Path, formats: type[F]) -> F:
    """The format of the options together; a wrong output ends the command."""
    ending = _ENDINGS.get(output.suffix.lower(), "")
    chosen = form or formats(ending if ending in list(formats) else "jsonl")
    if output == STANDARD_OUTPUT:
        if chosen in _TABLES:
            refuse("--output", output, f"the name of a file, for --format {chosen}")
    elif output.name in ("", "..") or output.is_dir():
        refuse("--output", output, "the name of a file")
    return chosen
