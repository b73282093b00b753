"""How every command shows what it has: text, tables, bars, progress, files."""
