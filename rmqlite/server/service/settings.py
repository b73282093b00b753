"""The configuration in force, and changes of it that need no restart."""

from __future__ import annotations

from collections.abc import Mapping

from rmqlite.broker.settings import Settings
from rmqlite.server.service.access import admin, view
from rmqlite.server.service.part import Behind, Part


class SettingCalls(Part):
    """Calls about the broker's configuration."""

    def __init__(self, behind: Behind) -> None:
        super().__init__(behind)
        self._settings = Settings(behind.config, behind.broker.levels)

    @view
    async def all(self) -> dict[str, str]:
        """The value in force of each key of broker.conf."""
        return self._settings.all()

    @admin
    async def change(self, wanted: Mapping[str, str]) -> None:
        """Change keys at once, all or none; only messageDelayLevel needs no restart."""
        self._settings.change(wanted)
