"""Work in steps: other calls may run between two steps."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""A generator of steps; the work is done when it returns."""
