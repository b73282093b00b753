"""rmqlite.v1 over gRPC: turns bytes into values, calls the front, turns values into bytes."""
