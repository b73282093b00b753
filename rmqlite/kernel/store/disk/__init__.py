"""The file layer: the only place that opens, reads, writes, syncs and renames files."""
