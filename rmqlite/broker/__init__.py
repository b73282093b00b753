"""Decisions: synchronous; no gRPC, no sleeping, no waiting."""
