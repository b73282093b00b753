"""Dead letters sent again by jobs of the broker, each once."""
