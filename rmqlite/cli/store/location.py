"""The store of a command: a path, that of a broker.conf, or the default."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, TimeRemainingColumn

from rmqlite.cli.output.progress import progress_bar

if TYPE_CHECKING:
    from rmqlite.config import BrokerConfig
    from rmqlite.store.reader import StoreReader

StorePath = Annotated[
    Path | None,
    typer.Argument(
        metavar="PATH",
        help="The store's folder; default: storePathRootDir of --config, or ~/store.",
        show_default=False,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="Take path and delay levels from a broker.conf."
    ),
]


def store_location(path: Path | None, config: Path | None) -> tuple[Path, BrokerConfig | None]:
    """The store's folder, and its broker's configuration if one is given."""
    from rmqlite.config import BrokerConfig, load_config

    given = load_config(config) if config else None
    return path or (given or BrokerConfig()).store_path, given


def open_store(path: Path | None, config: Path | None) -> StoreReader:
    from rmqlite.store.reader import StoreReader

    return StoreReader(*store_location(path, config))


def settle_timers(reader: StoreReader) -> None:
    """Find out which timers are pending; shows a bar if the log must be read for that."""
    with progress_bar(BarColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("finding pending timers", visible=False)
        reader.settle_timers(
            lambda done, total: bar.update(task, completed=done, total=total, visible=True)
        )
