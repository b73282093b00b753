"""The output of every command: text, tables, bars, progress, files."""
