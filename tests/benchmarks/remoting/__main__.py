"""python -m tests.benchmarks.remoting"""

from __future__ import annotations

from tests.benchmarks.remoting.run import main

main()
