"""How many connections the process's limit of open files leaves room for.

The store must always be able to open a file: so connections get what the rest of the broker does
not need, and a limit that leaves none stops the start, before the store is opened.
"""

from __future__ import annotations

import logging
import resource
from typing import Final

from rmqlite.config import KEYS, BrokerConfig
from rmqlite.errors import InvalidValue
from rmqlite.server.gate.limits import PROTOCOLS
from rmqlite.server.gate.tls import OPENING_MAX
from rmqlite.store.disk.files import OPEN_FILES_MAX

OTHER_FILES: Final = OPEN_FILES_MAX + 288
"""File descriptors that connections must leave free, for the store, the metrics and the page."""

log = logging.getLogger(__name__)


def connections_max(config: BrokerConfig) -> int:
    """The most connections that each protocol may accept: maxConnections, or fewer with a warning.

    Raises the process's limit of open files if it is too low, at most to the hard limit.  Raises
    InvalidValue if not even one connection to each protocol fits.
    """
    others = OTHER_FILES + (0 if config.tls_mode == "disabled" else OPENING_MAX)
    wanted = PROTOCOLS * config.connections_max + others
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    found = min(config.connections_max, (files - others) // PROTOCOLS)
    if found < 1:
        setting = f"{KEYS['connections_max']}={config.connections_max}"
        rule = f"at least {others + PROTOCOLS}, and {wanted} for {setting}"
        raise InvalidValue("limit of open files (ulimit -Hn)", hard, rule)
    if found < config.connections_max:
        log.warning(
            "the limit of open files (ulimit -Hn) is too low for maxConnections, each protocol"
            " accepts fewer connections=%d open_files=%d wanted=%d",
            found,
            files,
            wanted,
        )
    return found
