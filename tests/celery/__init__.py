"""Celery with rmqlite as its broker: real workers, and kombu's transport by itself."""
