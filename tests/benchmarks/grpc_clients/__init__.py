"""The official gRPC clients of RocketMQ 5 against rmqlite, and against RocketMQ with its proxy."""
