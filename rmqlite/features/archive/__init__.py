"""A second copy of the store in an object store."""
