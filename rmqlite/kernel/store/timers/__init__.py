"""The index of the timers: a table in due order that can be made again from their queue."""
