"""python -m tests.benchmarks"""

from __future__ import annotations

from tests.benchmarks.broker import main

if __name__ == "__main__":
    main()
