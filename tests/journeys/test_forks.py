"""Clients in processes that fork, as gunicorn --preload, Celery and multiprocessing do."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import OF_ANY_DISK
from tests.support.forking import CRASHED, FAILED, SCENES, without_support

ABORTED_BY_GRPC = "Check failed:"
"""gRPC starts threads of its own in every child; about 2 of 1,000 busy children die of it."""
TRIES = 4
NO_SUPPORT = {"GRPC_ENABLE_FORK_SUPPORT": "0"}


def failures(scenes: list[str], folder: Path, env: dict[str, str]) -> str:
    """What these programs print, each with a broker of its own."""
    with ExitStack() as stack:
        words = []
        for scene in scenes:
            broker = stack.enter_context(BrokerProcess(folder / scene, OF_ANY_DISK))
            words += [scene, broker.endpoint]
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.forking", *words],
            env=os.environ | env,
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_client_works_in_a_forked_child_or_says_why_not(tmp_path: Path) -> None:
    """Never an id that its parent gave, a message that its parent sends, or a call that hangs."""
    alone = without_support.__name__
    for scenes, env in (([each for each in SCENES if each != alone], {}), ([alone], NO_SUPPORT)):
        said, left = "", scenes
        for number in range(TRIES):
            said = failures(left, tmp_path / f"{number}", env)
            left = [each for each in left if f"{FAILED} {each}\n" in said]
            if not left or (ABORTED_BY_GRPC not in said and CRASHED not in said):
                break
        assert not left, said
