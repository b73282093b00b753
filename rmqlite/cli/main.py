"""The command `rmqlite`: its nouns, and how it ends.

Exit codes: 0 done, 1 refused (trying again will not help), 2 the command line is wrong, 3 the
broker is unavailable (trying again may help), 4 a job found a broken promise of the broker, 5 a
store was not closed and the next start completes it, 130 interrupted.  SIGTERM and SIGHUP end it
as Ctrl-C does, and then as these signals do.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pkgutil import resolve_name
from typing import Annotated, Any, Final

import typer
from rich.markup import escape
from typer.core import HAS_RICH, TyperGroup

from rmqlite import __version__
from rmqlite.cli import completion
from rmqlite.cli.output.terminal import error_line
from rmqlite.kernel import compiled
from rmqlite.kernel.words.errors import RmqliteError, Unavailable

REFUSED = 1
UNAVAILABLE = 3
INTERRUPTED = 130
STOPS: Final = (signal.SIGTERM, signal.SIGHUP)
ACCOUNT_HELP: Final = (
    "Account: every command that talks to a broker signs its calls with RMQLITE_ACCESS_KEY and"
    " RMQLITE_SECRET_KEY, or with the file of mode 600 that RMQLITE_CREDENTIALS names. There is no"
    " option for it, because other users could see the secret in the list of processes."
    " For tls://HOST:PORT, RMQLITE_TLS_CA names the file of the CA that the broker's certificate is"
    " from, RMQLITE_TLS_CERTIFICATE and RMQLITE_TLS_KEY those of the client's own, if it needs one."
)

COMMANDS: Final = {
    "broker": "rmqlite.cli.broker:broker",
    "send": "rmqlite.cli.send:send",
    "consume": "rmqlite.cli.consume:consume",
    "status": "rmqlite.cli.status:status",
    "schema": "rmqlite.cli.output.documents:schema",
    "top": "rmqlite.cli.top:top",
    "message": "rmqlite.cli.message:app",
    "schedule": "rmqlite.cli.schedule:app",
    "retry": "rmqlite.cli.schedule.retry:app",
    "dlq": "rmqlite.cli.dlq:app",
    "topic": "rmqlite.cli.topic:app",
    "group": "rmqlite.cli.group:app",
    "levels": "rmqlite.cli.levels:app",
    "standby": "rmqlite.cli.standby:app",
    "job": "rmqlite.cli.dlq.job:app",
    "store": "rmqlite.cli.store:app",
    "pipeline": "rmqlite.cli.pipeline:app",
    "acl": "rmqlite.cli.acl:app",
    "tls": "rmqlite.cli.tls:app",
}
"""Each word after rmqlite, in the order of --help: a function, or the group of its nouns."""
MAY_BE_EMPTY: Final = {
    "body": "a body of blanks is one; an empty one is refused as on every protocol",
    "retry_policy": "'' gives a group RocketMQ's own policy back",
}
"""The parameters that may be empty or blank, and why."""


class Commands(Mapping[str, Any]):
    """The commands by name; each is imported and built when it is asked for.

    All of them take most of a second, and nearly every call is for one.
    """

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            command = _built(name, resolve_name(COMMANDS[name]))
            _check_what_is_given(command)
            if HAS_RICH:
                _escape_markup(command)
            self._built[name] = command
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _built(name: str, found: Any) -> Any:
    """What typer makes of a function or a group of commands."""
    parent = typer.Typer()
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=name)
    else:
        parent.command(name)(found)
    return typer.main.get_group(parent).commands[name]


class CommandLine(TyperGroup):
    """Turns an error of ours into one line and an exit code, for every command below it."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        _check_what_is_given(self)
        if HAS_RICH:
            _escape_markup(self)
        commands: Any = Commands()
        self.commands = commands

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RmqliteError as error:
            with suppress(OSError):
                sys.stderr.write(error_line(error) + "\n")
            code = UNAVAILABLE if isinstance(error, Unavailable) else REFUSED
            raise typer.Exit(code) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error


def _escape_markup(command: Any) -> None:
    """Escape brackets in the help of a command and its subcommands: rich reads them as markup."""
    for name in ("help", "short_help", "epilog"):
        setattr(command, name, escape(getattr(command, name) or "") or None)
    for parameter in command.params:
        if getattr(parameter, "help", None):
            parameter.help = escape(parameter.help)
    for each in getattr(command, "commands", {}).values():
        _escape_markup(each)


def _check_what_is_given(command: Any) -> None:
    """Make a command and its subcommands refuse an option that is given twice, or empty.

    Otherwise the last one would count, and in a script --at "$WHEN" with an unset variable would
    be no --at at all, silently.  Lists take every one that is given.
    """
    make_parser = command.make_parser

    def make(ctx: Any) -> Any:
        parser = make_parser(ctx)
        parse_args = parser.parse_args

        def parse(args: list[str]) -> Any:
            found = parse_args(args=args)
            values, _, given = found
            if not ctx.resilient_parsing:
                _check_once(given)
                for each in given:
                    _check_not_empty(each, values.get(each.name))
            return found

        parser.parse_args = parse
        return parser

    command.make_parser = make
    for each in getattr(command, "commands", {}).values():
        _check_what_is_given(each)


def _check_once(given: list[Any]) -> None:
    for number, each in enumerate(given):
        is_list = each.multiple or each.nargs == -1
        if each.param_type_name == "option" and not is_list and each in given[:number]:
            raise typer.BadParameter(f"{_name_of(each)} is given twice")


def _check_not_empty(parameter: Any, value: Any) -> None:
    texts = value if isinstance(value, list | tuple) else [value]
    is_empty = any([isinstance(text, str) and not text.strip() for text in texts])
    if is_empty and parameter.name not in MAY_BE_EMPTY:
        raise typer.BadParameter(f"{_name_of(parameter)} is empty: leave it out, or give a value")


def _name_of(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar)
    names = [*parameter.opts, *parameter.secondary_opts]
    return " or ".join([name for name in names if name.startswith("--")])


app = typer.Typer(
    name="rmqlite",
    cls=CommandLine,
    no_args_is_help=True,
    epilog=ACCOUNT_HELP,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"rmqlite {__version__}\n{compiled.form()}\n")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version, and below it which form runs: compiled or plain.",
        ),
    ] = False,
) -> None:
    """A RocketMQ 4.x compatible delay, retry and dead-letter broker, and its tools."""


def main() -> None:
    """Run the command line and exit."""
    reopen_closed_streams()
    for each in (sys.stdout, sys.stderr):
        if isinstance(each, io.TextIOWrapper):
            # What the terminal cannot show is escaped: an error would end the command, and in a
            # listener fail the message.
            each.reconfigure(errors="backslashreplace")
    completion.mend_words()
    with ended_by_signals():
        app()


def reopen_closed_streams() -> None:
    """Give each closed standard stream a file that takes nothing: a write fails as on a full disk.

    Else the next file that is opened has its number, and what a library writes to standard error
    may go into the store.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one.
            os.open(os.devnull, os.O_RDONLY)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", closefd=False))


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let a command remove what it has begun when systemd, cron, `timeout` or ssh end it.

    Later ones of these signals are ignored: `timeout`, for example, sends its signal twice.  The
    broker and others replace the handlers by their own.
    """
    received: list[int] = []
    # Not those that are ignored, by nohup for example.
    stops = [each for each in STOPS if signal.getsignal(each) == signal.SIG_DFL]

    def interrupt(number: int, _: object) -> None:
        for each in stops:
            signal.signal(each, signal.SIG_IGN)
        received.append(number)
        raise KeyboardInterrupt

    for each in stops:
        signal.signal(each, interrupt)
    try:
        yield
    finally:
        for number in received:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
