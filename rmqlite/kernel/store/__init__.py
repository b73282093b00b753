"""Bytes on disk: commit log, consume queues, key index, timers, recovery."""
