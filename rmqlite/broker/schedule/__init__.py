"""Waiting messages: the broker delivers, lists, counts and changes them."""
