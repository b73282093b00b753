"""rmqlite.v1 over gRPC: bytes to values, a call of the front, values to bytes."""
