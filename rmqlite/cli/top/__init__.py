"""rmqlite top: one screen that shows whether a broker is well, and leads down to a message.

The answers so far (picture), the next calls (questions) and the tables and pages are plain values
without a screen; the screens only draw them and pass keys on.  Here are the command's checks, and
the picture as text for scripts.
"""

from __future__ import annotations

import select
import signal
import sys
import termios
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rmqlite.cli.options import DEFAULT_ENDPOINT, WRONG_COMMAND_LINE, Endpoint, refuse
from rmqlite.cli.output.terminal import note, print_view, progress_console
from rmqlite.cli.status import print_picture
from rmqlite.extras import check_extra
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import parse_delay
from rmqlite.views.groups import groups_table
from rmqlite.views.jobs import redrives_table

if TYPE_CHECKING:
    from rmqlite.cli.top.app import TopApp


CALL_MS_MAX: Final = 5_000
_INTERVAL_MS_MAX: Final = 3_600_000
_END_S_MAX: Final = 3.0
"""After this time a SIGTERM ends top without drawing: the terminal takes no output."""


def top(
    interval: Annotated[
        str, typer.Option("--interval", "-i", metavar="DELAY", help="How often to ask: 1s, 1m.")
    ] = "2s",
    once: Annotated[
        bool, typer.Option("--once", help="Print the overview once as text, and end.")
    ] = False,
    light: Annotated[
        bool, typer.Option("--light/--dark", help="For a light or a dark terminal; t changes it.")
    ] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Watch a broker on a full screen: rates, levels, groups, retries, dead letters.

    Enter opens a group and then a message; ? lists the keys.
    """
    interval_s = _interval_s(interval)
    if once:
        _print_once(endpoint)
        return
    _check_terminal()
    check_extra("top")
    from rmqlite.cli.top.app import TopApp
    from rmqlite.cli.top.overview_screen import OverviewScreen
    from rmqlite.client import AdminClient

    with AdminClient(endpoint, timeout_ms=CALL_MS_MAX) as admin:
        # Report a wrong endpoint on the command line, before there is a screen.
        admin.broker_status()
        app = TopApp(admin, endpoint, OverviewScreen, interval_s=interval_s, is_light=light)
        _end_with_its_terminal()
        _end_at_sigterm(app)
        # Without a mouse text can be selected as in any terminal.
        app.run(mouse=False)
    if app.return_code:
        raise typer.Exit(app.return_code)


def _interval_s(interval: str) -> float:
    rule = "a delay from 1s to 1h"
    try:
        interval_ms = parse_delay(interval)
    except InvalidValue:
        refuse("--interval", interval, rule)
    if interval_ms > _INTERVAL_MS_MAX:
        refuse("--interval", interval, rule)
    return interval_ms / 1000


def _check_terminal() -> None:
    """End the command without a terminal on standard error (drawn) and standard input (read)."""
    is_dumb = progress_console().is_dumb_terminal
    if not is_dumb and all([each.isatty() for each in (sys.stdin, sys.stdout, sys.stderr)]):
        return
    note("error: this is no terminal for a full screen: try rmqlite status --json, or top --once")
    raise typer.Exit(WRONG_COMMAND_LINE)


def _end_with_its_terminal() -> None:
    """End by SIGHUP if the terminal vanishes, even if the kernel sends no SIGHUP (setsid).

    A vanished terminal reads as empty for ever: Textual's input thread would read it in a
    loop, and its loop would wait for ever for the output thread, which failed.
    """
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    terminals = select.poll()
    for each in (sys.stdin, sys.stderr):
        # Register no event: a hang-up is always reported.
        terminals.register(each, 0)

    def watch() -> None:
        if any([event & select.POLLHUP for _, event in terminals.poll()]):
            signal.raise_signal(signal.SIGHUP)

    threading.Thread(target=watch, name="terminal-watch", daemon=True).start()


def _end_at_sigterm(app: TopApp) -> None:
    """The first SIGTERM ends in order and restores the terminal; a second one ends at once.

    A terminal that takes no output (Ctrl-S) would hold the orderly end for ever.
    """
    attributes = termios.tcgetattr(sys.stdin)

    def end_without_drawing() -> None:
        with suppress(termios.error):
            termios.tcsetattr(sys.stdin, termios.TCSANOW, attributes)
        signal.raise_signal(signal.SIGTERM)

    def terminated(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        timer = threading.Timer(_END_S_MAX, end_without_drawing)
        timer.daemon = True
        timer.start()
        app.exit()

    signal.signal(signal.SIGTERM, terminated)


def _print_once(endpoint: str) -> None:
    """Print the overview, with totals in place of rates: rates need two rounds."""
    from rmqlite.cli.status import whole_picture
    from rmqlite.client import AdminClient

    with AdminClient(endpoint, timeout_ms=CALL_MS_MAX) as admin:
        picture = whole_picture(admin)
    print_picture(picture)
    print_view(groups_table(picture.groups(), sort="worst"))
    if jobs := picture.shown_jobs():
        print_view(redrives_table(jobs))
