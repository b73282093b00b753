"""A broker for Celery: importing this makes broker_url = "rmqlite://host:8081" known to kombu.

Kombu has no entry points for transports, so whoever makes the Celery app imports this.
"""

from __future__ import annotations

from typing import Any, Final

from rmqlite.extras import check_extra

check_extra("celery")

from celery.signals import celeryd_init  # noqa: E402 - only with the extra
from kombu.transport import TRANSPORT_ALIASES  # noqa: E402 - the same

REQUEST: Final = "rmqlite.celery.request:Request"
_OF_CELERY: Final = "celery.worker.request:Request"

TRANSPORT_ALIASES["rmqlite"] = "rmqlite.celery.transport:Transport"
TRANSPORT_ALIASES["rmqlites"] = "rmqlite.celery.transport:TlsTransport"


def _know_failures(instance: Any, **_: object) -> None:
    """Before a worker reads its tasks: their requests say why a message is rejected."""
    task = instance.app.Task
    if task.Request == _OF_CELERY:
        task.Request = REQUEST


celeryd_init.connect(_know_failures, weak=False)
