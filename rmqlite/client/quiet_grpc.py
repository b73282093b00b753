"""gRPC without its own lines on standard error: a client's errors say everything that they say.

gRPC reads the variable when it is imported, and only then; whoever sets it wants the lines.
"""

from __future__ import annotations

import os
from typing import Final

VERBOSITY_VARIABLE: Final = "GRPC_VERBOSITY"

_is_ours = VERBOSITY_VARIABLE not in os.environ
if _is_ours:
    os.environ[VERBOSITY_VARIABLE] = "NONE"
import grpc as grpc  # noqa: E402 - not before the variable is set

if _is_ours:
    del os.environ[VERBOSITY_VARIABLE]
