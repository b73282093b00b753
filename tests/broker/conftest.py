"""Brokers whose stores must be sound when a test is over."""

from __future__ import annotations

from tests.support.made_brokers import broker, make, under_test

__all__ = ["broker", "make", "under_test"]
