"""A store as it is, read without changing it: views of log and queues, and what they hold."""
