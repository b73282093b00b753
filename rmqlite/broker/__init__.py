"""The decisions of the broker, in synchronous code: no gRPC, no sleeping, no waiting."""
