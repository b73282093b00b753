"""The options of the commands: the store's place, and which of its messages.

The place is a path, that of a broker.conf, or the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmqlite.cli.options import Key, Since, Until, moment_ms, option, refuse
from rmqlite.cli.output.progress import reading
from rmqlite.kernel.words.errors import InvalidValue

if TYPE_CHECKING:
    from rmqlite.kernel.config.config import BrokerConfig
    from rmqlite.store_tools.reader import MessageFilter, StoreReader

StorePath = Annotated[
    Path | None,
    typer.Argument(
        metavar="PATH",
        help="The store's folder; default: storePathRootDir of --config, or ~/store.",
        show_default=False,
    ),
]
ConfigFile = Annotated[
    Path | None, option("--config -c FILE", "Take path and delay levels from a broker.conf.")
]


def store_location(path: Path | None, config: Path | None) -> tuple[Path, BrokerConfig | None]:
    """The store's folder, and its broker's configuration if one is given."""
    from rmqlite.kernel.config.config import BrokerConfig, load_config

    given = load_config(config) if config else None
    return path or (given or BrokerConfig()).store_path, given


def open_store(path: Path | None, config: Path | None) -> StoreReader:
    from rmqlite.store_tools.reader import StoreReader

    return StoreReader(*store_location(path, config))


def settle_timers(reader: StoreReader) -> None:
    """Find out which timers are pending; shows a bar if the log must be read for that."""
    with reading("finding pending timers") as advance:
        reader.settle_timers(advance)


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Which records of a store, as it was typed."""

    topic: Annotated[str, option("--topic -t NAME", "A topic, or a pattern such as 'a*'.")] = ""
    group: Annotated[str, option("--group -g NAME", "A group's retries and dead letters.")] = ""
    queue_id: Annotated[int | None, option("--queue -q ID", "A queue id.")] = None
    from_offset: Annotated[int | None, option("--from-offset N", "From this queue offset on.")] = (
        None
    )
    to_offset: Annotated[int | None, option("--to-offset N", "Before this queue offset.")] = None
    since: Since = ""
    until: Until = ""
    key: Key = None
    message_id: Annotated[
        str, option("--id ID", "A message id, scheduled copies too, or an offset message id.")
    ] = ""
    scheduled: Annotated[
        bool,
        option(
            "--scheduled",
            "The schedule's records of delayed messages and timers; --topic is their "
            "target, --queue their level - 1, 0 for timers.",
        ),
    ] = False
    limit: Annotated[int | None, option("--limit -n N", "Stop after this many messages.")] = None
    skip_damaged: Annotated[
        bool, option("--skip-damaged", "Continue behind damaged places, and count them.")
    ] = False

    def filter(self) -> MessageFilter:
        """The filter of the options; a wrong option ends the command."""
        from rmqlite.store_tools.reader import MessageFilter

        try:
            wanted = MessageFilter(
                topic=self.topic,
                group=self.group,
                queue_id=self.queue_id,
                from_offset=self.from_offset,
                to_offset=self.to_offset,
                since_ms=moment_ms("--since", self.since),
                until_ms=moment_ms("--until", self.until),
                key=self.key or "",
                message_id=self.message_id,
                is_scheduled=self.scheduled,
            )
        except InvalidValue as error:
            name = {"queue_id": "queue", "until_ms": "until"}.get(error.field, error.field)
            value = self.queue_id if name == "queue" else getattr(self, name)
            rule = f"later than --since {self.since!r}" if name == "until" else error.rule
            refuse(
                f"--{name.replace('_', '-')}", value, rule.replace("from_offset", "--from-offset")
            )
        if self.limit is not None and self.limit < 1:
            refuse("--limit", self.limit, "1 or more")
        return wanted
