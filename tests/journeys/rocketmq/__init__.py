"""Stores that move between RocketMQ's own brokers and us."""
