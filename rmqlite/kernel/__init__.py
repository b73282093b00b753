"""What moves a message: it stores, delays, delivers, hands out, retries, gives up.

No turn of the loop may be long.  So work that may be is done in Steps: a generator of steps,
between which other calls run; the work is done when it returns.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
