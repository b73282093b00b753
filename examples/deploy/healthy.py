"""Is the broker of this container healthy?  Exit code 0 if it serves, 1 if not.

It asks gRPC's own health service, which needs no account.  RMQLITE_ENDPOINT and RMQLITE_TLS_CA mean
what they mean to rmqlite's commands; a broker that wants certificates of its clients
(tlsNeedClientAuth=require) needs another probe, such as GET /healthz.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

TIMEOUT_S = 4.0
# A proxy of the container (http_proxy) does not concern the broker in it.
OPTIONS = (("grpc.enable_http_proxy", 0),)


def channel_to(endpoint: str) -> grpc.Channel:
    if not endpoint.startswith("tls://"):
        return grpc.insecure_channel(endpoint, OPTIONS)
    ca = os.environ.get("RMQLITE_TLS_CA")
    keys = grpc.ssl_channel_credentials(Path(ca).read_bytes() if ca else None)
    return grpc.secure_channel(endpoint.removeprefix("tls://"), keys, OPTIONS)


def main() -> int:
    with channel_to(os.environ.get("RMQLITE_ENDPOINT", "127.0.0.1:8081")) as channel:
        ask = health_pb2_grpc.HealthStub(channel)
        try:
            answer = ask.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            print(f"not healthy: {error.code().name}: {error.details()}")
            return 1
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    print(status)
    return 0 if answer.status == health_pb2.HealthCheckResponse.SERVING else 1


if __name__ == "__main__":
    sys.exit(main())
