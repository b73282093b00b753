"""Bytes on disk, in RocketMQ 4.x's own files; knows no consumers, no retry, no gRPC."""
