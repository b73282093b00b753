"""The wait queues of one broker: what waits, in due order; the schedule delivers it."""
