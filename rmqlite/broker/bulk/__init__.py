"""Many messages in one call, each with an outcome of its own."""
