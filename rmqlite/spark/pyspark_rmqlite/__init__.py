"""Installed as pyspark_rmqlite, so that Spark finds the format "rmqlite" without register().

For an unknown format Spark imports every top-level package named pyspark_*, and uses its
DefaultSource; so this package is tiny.
"""

from __future__ import annotations

from rmqlite.spark.source import RmqliteDataSource as DefaultSource

__all__ = ["DefaultSource"]
