"""Messages with a unique id, of which a topic gets one within a window."""
