"""What the feature adds to a broker."""

from __future__ import annotations

from typing import Final

from rmqlite.features.finding.service import FindingCalls
from rmqlite.kernel.service.service import Feature

FEATURE: Final = Feature(calls=(FindingCalls,))
