"""RocketMQ's own replication: its slaves copy this broker's log."""
