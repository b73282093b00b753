"""The small JSON files under config/."""
