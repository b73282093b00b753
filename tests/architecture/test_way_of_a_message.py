"""How many modules a delayed message meets on its way, from a client to a consumer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rmqlite.kernel import compiled
from tests.architecture.sources import ROOT

MODULES_MAX = 58
"""A change may lower it."""


@pytest.mark.skipif(not compiled.is_on, reason="the plain form meets other modules")
def test_a_delayed_message_meets_few_modules(tmp_path: Path) -> None:
    """Whoever follows it through the code has to open each of them."""
    command = [sys.executable, "-m", "tests.support.way_of_a_message", str(tmp_path / "store")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    met = json.loads(run.stdout)
    print(*met, sep="\n")
    assert len(met) <= MODULES_MAX, f"{len(met)} modules:\n" + "\n".join(met)
