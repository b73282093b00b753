"""What is wrong with a store: log, checksums, queues, deliveries, key index, tables."""
