"""Brokers whose stores must be sound when a test is over, as in tests/broker."""

from __future__ import annotations

from tests.support.made_brokers import broker, make, under_test

__all__ = ["broker", "make", "under_test"]
