"""Where reminders end: a table of SQLite.  Put your mail, push or call of another service here.

A worker may get a message twice, for example after a kill, and an application may send it twice.
Both times it has the same message id, which is the key of this table: so it is delivered once.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from worker.reminder import Reminder

TABLE: Final = """
CREATE TABLE IF NOT EXISTS inbox (message_id TEXT PRIMARY KEY, receiver TEXT, text TEXT)
"""
LISTED_MAX: Final = 1_000


class Inbox:
    """Usable from any thread and by several processes.  Its methods raise sqlite3.Error."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def put(self, message_id: str, reminder: Reminder) -> bool:
        """Deliver it; False if that was done before."""
        with closing(self._connected()) as database, database:
            done = database.execute(
                "INSERT OR IGNORE INTO inbox VALUES (?, ?, ?)",
                (message_id, reminder.to, reminder.text),
            )
            return done.rowcount == 1

    def texts(self, receiver: str) -> list[str]:
        """What this receiver got, the oldest first."""
        with closing(self._connected()) as database:
            rows = database.execute(
                "SELECT text FROM inbox WHERE receiver = ? ORDER BY rowid LIMIT ?",
                (receiver, LISTED_MAX),
            )
            return [text for (text,) in rows]

    def _connected(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=30)
        database.execute(TABLE)
        return database
