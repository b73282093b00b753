"""What can be asked about the two copies."""

from __future__ import annotations

from rmqlite.features.standby.following import Following
from rmqlite.features.standby.leading import Leading
from rmqlite.features.standby.requests import PromoteRequest
from rmqlite.kernel.service.access import admin, needs, of_admins
from rmqlite.kernel.service.part import Part
from rmqlite.kernel.words.errors import NotMaster, Refused
from rmqlite.protocols.native.replication import Read, Write


class StandbyCalls(Part):
    """Of an administrator, and of the standby."""

    @needs(lambda *_: of_admins())
    async def follow(self, read: Read, write: Write) -> None:
        """The master's log, until the standby is gone.  Raises NotMaster, Refused."""
        leading = self._broker.get(Leading)
        if leading is None:
            raise NotMaster(self._config.master_address)
        await leading.follow(read, write)

    @admin
    async def promote(self, request: PromoteRequest) -> int:
        """Make this standby the master; the bytes that it lacks.  Raises Refused."""
        following = self._broker.get(Following)
        if following is None:
            raise Refused("this broker is the master", rule="ask the standby")
        return await following.promote(force=request.force)

    @admin
    async def switch(self) -> str:
        """Hand over to the standby; its address.  Raises NotMaster, Refused, Unavailable."""
        leading = self._broker.get(Leading)
        if leading is None:
            raise NotMaster(self._config.master_address)
        return await leading.switch()
