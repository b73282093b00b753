"""Shows the broker's main job in one command; it needs only Python 3.11: python3 examples/run.py

The first run sets up a virtual environment; then it starts the demo in it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import environment

if __name__ == "__main__":
    python = str(environment.ensure(""))
    # The processes that the demo starts find its modules by PYTHONPATH, too.
    surroundings = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent)}
    os.execve(python, [python, "-m", "orders.demo", *sys.argv[1:]], surroundings)
