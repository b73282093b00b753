"""Tells the service manager when the broker is ready, reads its file again, and stops.

systemd's protocol (Type=notify) is one datagram for each state, to the socket that NOTIFY_SOCKET
names.  Without that variable nobody listens and nothing is sent.  The broker does not depend on it:
a state that cannot be sent is a warning.
"""

from __future__ import annotations

import logging
import socket
from typing import Final

from rmqlite.kernel.config.files import from_environment
from rmqlite.kernel.words.clock import elapsed_s

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
log = logging.getLogger(__name__)


def reloading() -> str:
    """The state while the file is read again; with the time, as Type=notify-reload wants it."""
    return f"RELOADING=1\nMONOTONIC_USEC={int(elapsed_s() * 1_000_000)}"


def notify(state: str) -> None:
    """Send a state, if somebody listens."""
    address = from_environment("NOTIFY_SOCKET")
    if not address:
        return
    # Linux' abstract addresses begin with a zero byte, which no variable can have.
    address = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.setblocking(False)
            manager.sendto(state.encode("ascii"), address)
    except OSError as error:
        log.warning("the service manager cannot be notified state=%r error=%s", state, error)
