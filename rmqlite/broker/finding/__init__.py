"""Records found by key, id or filter, and what became of them."""
