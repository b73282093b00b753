"""RocketMQ's own Java client against rmqlite and against RocketMQ's broker, in one run."""
