"""A record as bytes: its header, its property string, the two makers, its completion."""
