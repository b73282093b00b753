"""The parts of a store's check: log, checksums, queues, deliveries, key index, tables."""
