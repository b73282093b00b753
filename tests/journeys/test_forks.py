"""Clients in processes that fork, as gunicorn --preload, Celery and multiprocessing do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.broker_processes import StartBroker
from tests.support.forking import CRASHED, SCENES

ABORTED_BY_GRPC = "Check failed:"
"""gRPC starts threads of its own in every child; about 2 of 1,000 busy children die of it."""
TRIES = 4


@pytest.mark.parametrize("scene", SCENES)
def test_a_client_works_in_a_forked_child_or_says_why_not(
    start_broker: StartBroker, scene: str
) -> None:
    """Never an id that its parent gave, a message that its parent sends, or a call that hangs."""
    endpoint = start_broker().endpoint
    support = {"GRPC_ENABLE_FORK_SUPPORT": "0"} if scene == "without_support" else {}
    for _ in range(TRIES):
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.forking", scene, endpoint],
            env=os.environ | support,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if ABORTED_BY_GRPC not in done.stderr and CRASHED not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
