"""The broker's main job in one command, with nothing but Python 3.11: python3 examples/run.py

Sets up a virtual environment on the first run, then starts the demo in it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import environment

if __name__ == "__main__":
    python = str(environment.ensure(""))
    # The demo's own processes find its modules the same way.
    surroundings = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent)}
    os.execve(python, [python, "-m", "orders.demo", *sys.argv[1:]], surroundings)
