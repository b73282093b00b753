"""Dead letters and retries: listed, purged, their history."""
