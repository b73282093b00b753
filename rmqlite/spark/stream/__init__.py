"""The log of a store or of brokers as a stream: offsets, plans, micro-batches."""
