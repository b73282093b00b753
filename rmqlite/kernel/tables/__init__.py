"""Topics, groups, their members and offsets."""
