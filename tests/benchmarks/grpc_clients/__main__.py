"""python -m tests.benchmarks.grpc_clients"""

from __future__ import annotations

from tests.benchmarks.grpc_clients.run import main

main()
