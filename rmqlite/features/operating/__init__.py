"""What an operator does to whole topics and groups: deletes them, and moves their offsets."""
