"""Which role a broker starts in, asked before its store is opened.

A master begins a term of its log when it starts.  A former one that does so and then hears that
another broker leads has to cut that off again, and one whose disk is new would not be taken as a
standby.  What is not found out here is found out later, before the first call is answered.
"""

from __future__ import annotations

import asyncio
import logging

from rmqlite.features.authority.record import RecordEntry
from rmqlite.features.authority.settings import call_s, own_address, register_of
from rmqlite.features.standby.role import SLAVE, BrokerRole, save_role
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.opening.file_sizes import has_log
from rmqlite.kernel.words.errors import RmqliteError

log = logging.getLogger(__name__)


def starts_as_standby(config: BrokerConfig) -> bool:
    """Is another broker the master, or shall be?  Then the role of a standby is noted.

    config: with the role in force.  Raises ConfigInvalid, ExtraMissing, StoreUnavailable,
    StoreDamaged.
    """
    if not config.authority or config.broker_role == SLAVE:
        return False
    found, files = asyncio.run(_found(config)), SystemFiles()
    if found is None:
        return False
    is_others = found.is_held and found.record.master != own_address(config)
    if not is_others and has_log(files, config.store_path):
        return False
    address = config.master_address or found.record.master
    log.warning("another broker is the master, or will be, this one follows address=%s", address)
    files.make_folder(config.store_path / "config")
    save_role(config, BrokerRole(SLAVE, address))
    return True


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
