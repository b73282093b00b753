"""The broker of rmqlite alone: every scenario, the growth, comparisons and plots.

python -m tests.benchmarks SCENARIO...
"""

from tests.benchmarks.broker.run import main

__all__ = ["main"]
