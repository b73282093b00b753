"""The broker's decisions, on real files with a clock moved by hand."""
