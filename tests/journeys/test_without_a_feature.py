"""Each feature can be deleted: the kernel moves messages without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.build_wheels import ROOT
from tests.support.eventually import WAIT_S

FEATURES = sorted(each.parent.name for each in (ROOT / "rmqlite/features").glob("*/__init__.py"))
GROUPS = 6


def test_a_kernel_without_a_feature_keeps_its_promises(tmp_path: Path, is_long: bool) -> None:
    """Sent, delayed, delivered, pulled, given up, and all of it still there after SIGKILL.

    Without --long four are gone at a time: of two features, that one needs the other shows in
    tests/architecture, too.
    """
    gone = FEATURES if is_long else [",".join(FEATURES[first::GROUPS]) for first in range(GROUPS)]
    command = [sys.executable, "-m", "tests.support.without_a_feature", str(tmp_path), *gone]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * WAIT_S)
    assert (done.stdout, done.returncode) == ("", 0), done.stdout + done.stderr
