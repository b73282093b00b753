"""Repairs a damaged store: every change is planned before a byte is changed."""
