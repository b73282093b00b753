"""gRPC in processes of its own: they share the port, and relay each call to the broker."""
