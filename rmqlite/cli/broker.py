"""rmqlite broker: the service itself.

Two lines on standard output, one when calls are accepted and one when the store is
closed; the log goes to standard error.  A ready file tells scripts the endpoint, which
they cannot know beforehand with listenPort=0.
"""

from __future__ import annotations

import io
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from rmqlite import __version__
from rmqlite.cli.terminal import printable
from rmqlite.errors import StoreUnavailable


def broker(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", metavar="FILE", help="broker.conf; without one, the defaults hold."
        ),
    ] = None,
    listen_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Instead of the file's listenPort; 0 takes a free port."
        ),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Instead of the file's storePathRootDir.")
    ] = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the endpoint here once calls are accepted."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Run the broker until Ctrl-C or SIGTERM; SIGHUP reads the file's delay levels again."""
    from rmqlite.config import BrokerConfig, load_config

    given: dict[str, object] = {}
    if listen_port is not None:
        given["listen_port"] = listen_port
    if store is not None:
        given["store_path"] = str(store)

    def load() -> BrokerConfig:
        read = load_config(config) if config else BrokerConfig()
        return read.with_values(given) if given else read

    settings = load()
    # Only now: a wrong configuration is told without loading a server.
    from rmqlite.server.serve import serve

    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    if ready_file:
        remove_ready_file(ready_file)

    def on_ready(endpoint: str) -> None:
        say(
            f"rmqlite {__version__} ready at {endpoint},"
            f" store {settings.store_path}, {settings.flush_disk_type}"
        )
        if ready_file:
            write_ready_file(ready_file, endpoint)

    code = serve(settings, on_ready, load if config else None)
    if ready_file:
        remove_ready_file(ready_file)
    say("rmqlite stopped" if code == 0 else f"rmqlite stopped with exit code {code}")
    raise typer.Exit(code)


def say(line: str) -> None:
    """One line for whoever watches, at once; that nobody does is no reason to stop."""
    try:
        sys.stdout.write(printable(line) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # What could not be written would be tried, and fail, once more at exit.
        sys.stdout = io.StringIO()


def write_ready_file(path: Path, endpoint: str) -> None:
    """Whoever sees the file sees all of it: it is renamed into place."""
    beside = path.with_name(path.name + ".tmp")
    try:
        beside.write_text(endpoint + "\n")
        beside.replace(path)
    except OSError as error:
        raise StoreUnavailable("write", str(path), error.strerror or str(error)) from error


def remove_ready_file(path: Path) -> None:
    """A file left by a killed broker would name an endpoint that nobody listens to."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreUnavailable("remove", str(path), error.strerror or str(error)) from error
