"""A second broker that has every acknowledged message, and can take over."""
