"""The audit log as JSON, for whoever collects it."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict

from rmqlite.kernel.service import audit


class JsonLines(logging.Formatter):
    """Each record as one JSON object: time, level, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        event = record.args[0] if isinstance(record.args, tuple) and record.args else None
        about = asdict(event) if isinstance(event, audit.Event) else {"event": record.getMessage()}
        time = self.formatTime(record, "%Y-%m-%dT%H:%M:%S")
        zone = self.formatTime(record, "%z")
        return json.dumps(
            {"time": f"{time}.{int(record.msecs):03}{zone}", "level": record.levelname, **about}
        )


def log_as_json() -> None:
    """From now on the audit log goes to standard error as JSON, and nowhere else."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    audit.log.handlers = [handler]
    audit.log.propagate = False
