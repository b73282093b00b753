"""The gRPC port, and what its protocols share: calls, callers and limits, the room for requests."""
