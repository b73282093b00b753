"""Which role a broker starts in, asked before its store is opened.

A master begins a term of its log when it starts.  A former one that does so and then hears that
another broker leads has to cut that off again, and one whose disk is new would not be taken as a
standby.  What is not found out here is found out later, before the first call is answered.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from rmqlite.features.authority.record import RecordEntry
from rmqlite.features.authority.settings import call_s, own_address, register_of
from rmqlite.features.standby.authority import other_leads
from rmqlite.features.standby.role import SLAVE, BrokerRole, role_of, save_role
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.service.access import Access
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.opening.file_sizes import has_log, sizes_of
from rmqlite.kernel.words.errors import RmqliteError

ASK_S: Final = 1.0
"""How long a start waits for the other broker's answer."""
log = logging.getLogger(__name__)


def starts_as_standby(config: BrokerConfig, access: Access) -> bool:
    """Is another broker the master, or shall be?  Then the role of a standby is noted.

    config: with the role in force.  Raises ConfigInvalid, ExtraMissing, StoreUnavailable,
    StoreDamaged.
    """
    if config.broker_role == SLAVE:
        return False
    address = _by_authority(config) if config.authority else _by_the_other(config, access)
    if not address:
        return False
    log.warning("another broker is the master, or will be, this one follows address=%s", address)
    SystemFiles().make_folder(config.store_path / "config")
    save_role(config, BrokerRole(SLAVE, address))
    return True


def _by_authority(config: BrokerConfig) -> str:
    """Whom to follow; "" for nobody."""
    found = asyncio.run(_found(config))
    if found is None:
        return ""
    is_others = found.is_held and found.record.master != own_address(config)
    if not is_others and has_log(SystemFiles(), config.store_path):
        return ""
    return config.master_address or found.record.master


def _by_the_other(config: BrokerConfig, access: Access) -> str:
    """The same, where only the other broker can say that it was promoted.

    Who was promoted itself, or went on alone, does not ask: it is the one to follow.
    """
    is_asked = config.in_sync_replicas == 2 and config.master_address
    if not is_asked or role_of(config).alone_since_ms:
        return ""
    files, root = SystemFiles(), config.store_path
    size, has_led = sizes_of(files, root, config).log_file_bytes, has_log(files, root)
    asking = other_leads(config, access, size, has_led=has_led, seconds=ASK_S)
    return config.master_address if asyncio.run(asking) else ""


async def _found(config: BrokerConfig) -> RecordEntry | None:
    register = register_of(config)
    try:
        async with asyncio.timeout(2 * call_s(config)):
            return await register.read_record()
    except (RmqliteError, TimeoutError) as error:
        log.warning("the authority has not said who is the master error=%s", error)
        return None
    finally:
        await register.close_register()
