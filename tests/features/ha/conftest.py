"""Brokers with files as long as those of the captured masters and slaves."""

from __future__ import annotations

from functools import partial

import pytest

from tests.support.brokers import LONG_BODIES
from tests.support.made_brokers import Make


@pytest.fixture
def make(make: Make) -> Make:
    """Makes a broker with files of a megabyte."""
    return partial(make, **LONG_BODIES)
