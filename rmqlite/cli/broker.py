"""rmqlite broker: the service itself.

Two lines on standard output, one when calls are accepted and one when the store is
closed; the log goes to standard error.  A ready file holds the endpoint for scripts, which cannot
know it beforehand with listenPort=0.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rmqlite import __version__
from rmqlite.cli.options import with_options
from rmqlite.cli.output.writing import template_to_standard_output, written_bytes
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import StoreUnavailable
from rmqlite.kernel.words.visible import printable

if TYPE_CHECKING:
    from rmqlite.kernel.config.config import BrokerConfig
    from rmqlite.kernel.process.protocol_server import Endpoints
    from rmqlite.kernel.words.clock import SystemClock

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"


def _port_instead_of(key: str) -> Any:
    help_text = f"Instead of the file's {key}; 0 takes a free port."
    return typer.Option(min=0, max=65535, metavar="PORT", show_default=False, help=help_text)


def _print_config(asked: bool) -> None:
    if asked:
        template_to_standard_output("broker.conf")
        raise typer.Exit


PrintConfig = Annotated[
    bool,
    typer.Option(
        "--print-config",
        callback=_print_config,
        is_eager=True,
        help="Print a broker.conf with every key, its default and its meaning, and end.",
    ),
]
ReadyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write the gRPC endpoint here once calls are accepted, then the name server's.",
    ),
]


@dataclass(frozen=True)
class PortOptions:
    """The ports, if they are not the file's."""

    listen_port: Annotated[int | None, _port_instead_of("listenPort")] = None
    grpc_port: Annotated[int | None, _port_instead_of("grpcPort")] = None
    name_server_port: Annotated[int | None, _port_instead_of("nameServerPort")] = None


@with_options
def broker(
    ports: PortOptions,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", metavar="FILE", help="broker.conf; without it the defaults are used."
        ),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Instead of the file's storePathRootDir.")
    ] = None,
    ready_file: ReadyFile = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Own the archive from now on, in place of the broker that did."
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
    print_config: PrintConfig = False,  # noqa: ARG001 - typer ends the command before
) -> None:
    """Run the broker until Ctrl-C or SIGTERM; SIGHUP reads the file's delay levels again."""
    from rmqlite.kernel.config.config import BrokerConfig, load_config

    given: dict[str, object] = {
        name: port for name, port in vars(ports).items() if port is not None
    }
    if store is not None:
        given["store_path"] = str(store)

    def load() -> BrokerConfig:
        read = load_config(config) if config else BrokerConfig()
        return read.with_values(given) if given else read

    settings = load()
    if take_over:
        from rmqlite.features.archive.owning import take_over as owner_changed

        say(owner_changed(settings, wall_ms()))
    if ready_file:
        remove_ready_file(ready_file)

    def on_ready(endpoints: Endpoints) -> None:
        if ready_file:
            write_ready_file(ready_file, endpoints.grpc, endpoints.name_server)

    level = logging.DEBUG if verbose else logging.INFO
    code = run_broker(settings, on_ready, load if config else None, level=level)
    if ready_file:
        remove_ready_file(ready_file)
    raise typer.Exit(code)


def run_broker(
    settings: BrokerConfig,
    on_ready: Callable[[Endpoints], None],
    reload: Callable[[], BrokerConfig] | None,
    *,
    level: int = logging.INFO,
    clock: SystemClock | None = None,
) -> int:
    """serve(), with a log, and two lines on standard output: ready and stopped."""
    # Else gRPC logs each failed handshake, and anybody could fill the log.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # Log from here on: a wrong configuration is reported without a server.
    from rmqlite.cli.output.audit_lines import log_as_json
    from rmqlite.serving import serve

    logging.basicConfig(level=level, format=LOG_FORMAT)
    if settings.audit_log_format == "json":
        log_as_json()

    def ready(endpoints: Endpoints) -> None:
        say(
            f"rmqlite {__version__} ready at {endpoints.grpc} (gRPC),"
            f" namesrvAddr={endpoints.name_server} (RocketMQ 4.x),"
            f" store {settings.store_path}, {settings.flush_disk_type}"
        )
        on_ready(endpoints)

    code = serve(settings, ready, reload, clock)
    say("rmqlite stopped" if code == 0 else f"rmqlite stopped with exit code {code}")
    _forget_unwritten("stderr")
    return code


def say(line: str) -> None:
    """Print one line at once; an output that takes none does not stop the broker."""
    with suppress(OSError):
        sys.stdout.write(printable(line) + "\n")
    _forget_unwritten("stdout")


def _forget_unwritten(name: str) -> None:
    """Flush a standard stream; if it takes nothing, Python would fail at exit once more."""
    try:
        getattr(sys, name).flush()
    except OSError:
        setattr(sys, name, io.StringIO())


def write_ready_file(path: Path, *lines: str) -> None:
    """Write the file so that a reader never sees a part of it."""
    with written_bytes(path) as file:
        file.write("".join([f"{line}\n" for line in lines]).encode("ascii"))


def remove_ready_file(path: Path) -> None:
    """Remove the file: one left by a killed broker would name a dead endpoint."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreUnavailable("remove", str(path), error.strerror or str(error)) from error
