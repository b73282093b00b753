"""gRPC without its own lines on standard error: a client's errors say everything that they say.

gRPC reads the variable when it is imported, and only then; whoever sets it wants the lines.  Where
gevent has patched the threads, gRPC has to know before its first channel: else its waits hold every
greenlet of the process.
"""

from __future__ import annotations

import os
import sys
from typing import Final

VERBOSITY_VARIABLE: Final = "GRPC_VERBOSITY"

_is_ours = VERBOSITY_VARIABLE not in os.environ
if _is_ours:
    os.environ[VERBOSITY_VARIABLE] = "NONE"
import grpc as grpc  # noqa: E402 - not before the variable is set

if _is_ours:
    del os.environ[VERBOSITY_VARIABLE]

_has_gevent: list[bool] = []


def know_gevent() -> None:
    """Before a channel is made."""
    monkey = sys.modules.get("gevent.monkey")
    if not _has_gevent and monkey is not None and monkey.is_module_patched("threading"):
        from grpc.experimental.gevent import init_gevent

        _has_gevent.append(True)
        init_gevent()
