"""Installed as pyspark_rmqlite, so that Spark finds the format "rmqlite" without register().

Spark imports every top-level package named pyspark_* when it meets an unknown format, and
takes its DefaultSource; so this one is tiny.
"""

from __future__ import annotations

from rmqlite.spark.source import RmqliteDataSource as DefaultSource

__all__ = ["DefaultSource"]
