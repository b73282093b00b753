"""Reminders: a web application sends them ahead, a worker delivers them when they are due."""
