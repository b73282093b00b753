"""Messages that come as drafts, of many callers at once."""
