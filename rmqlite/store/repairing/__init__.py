"""How a damaged store is mended: what to change, planned before a byte is changed."""
