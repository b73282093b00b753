"""rmqlite.v1 over gRPC: turns bytes into values, calls the service, turns values into bytes."""
