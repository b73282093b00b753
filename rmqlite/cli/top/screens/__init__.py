"""The full screens of rmqlite top, and their parts."""
