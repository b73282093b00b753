"""RocketMQ's own replication: its slaves copy this broker, and this one follows its masters."""
