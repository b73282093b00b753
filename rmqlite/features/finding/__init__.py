"""Messages found by their key or id, and how they ended."""
