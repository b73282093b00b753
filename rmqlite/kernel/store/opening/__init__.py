"""Opens a store before the first append: file sizes, the log's true end, the recovery walk."""
