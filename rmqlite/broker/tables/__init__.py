"""What the broker keeps in small tables: topics, groups, members, committed offsets, markers."""
