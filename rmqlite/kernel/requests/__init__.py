"""Requests and answers as plain values."""
