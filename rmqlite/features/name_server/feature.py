"""What the feature adds to a broker."""

from __future__ import annotations

from typing import Final

from rmqlite.features.name_server.service import KeyValueCalls
from rmqlite.kernel.service.service import Feature

FEATURE: Final = Feature(calls=(KeyValueCalls,))
