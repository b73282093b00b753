"""The full screens of rmqlite top, and what stands in them."""
