"""What opening a store does before the first append: file sizes, the true end, the walk."""
