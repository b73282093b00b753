"""Writes rows as messages to a broker, each once."""
