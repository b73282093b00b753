"""The broker's small tables: topics, groups, members, committed offsets, purge markers."""
