"""Figures for operators: traffic of the last minute, hour and day, and how far groups are."""
