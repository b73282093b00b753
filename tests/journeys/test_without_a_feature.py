"""Each feature can be deleted: the kernel moves messages without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.build_wheels import ROOT

FEATURES = sorted(each.parent.name for each in (ROOT / "rmqlite/features").glob("*/__init__.py"))


def test_a_kernel_without_a_feature_keeps_its_promises(tmp_path: Path) -> None:
    """Sent, delayed, delivered, pulled, given up, and all of it still there after SIGKILL."""
    command = [sys.executable, "-m", "tests.support.without_a_feature", str(tmp_path), *FEATURES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("", 0), done.stdout + done.stderr
