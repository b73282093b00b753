"""What the broker process starts and ends beside its loops: ports, and what meets other brokers.

Of each protocol it calls bind, open, drain and close, in this order; after a failure, close.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.process.upkeep import ClockWatch
from rmqlite.kernel.requests.broker import NameServerStatus
from rmqlite.kernel.service.group_commit import GroupCommit
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.errors import InvalidValue

BACKLOG: Final = 1_024


class Endpoints(NamedTuple):
    """Where a broker answers, each as "address:port"."""

    grpc: str
    remoting: str
    name_server: str


@dataclass(frozen=True, slots=True)
class Running:
    """The parts of a running broker that its protocols use.

    service: everything that a caller can ask.  tasks: those of the broker; a protocol runs its loop
    as one of them, so that a loop that fails ends the broker.  config: with the
    ports that were taken.  The rest holds counts, for the metrics.
    """

    service: Service
    tasks: asyncio.TaskGroup
    broker: Broker
    commit: GroupCommit
    watch: ClockWatch
    config: BrokerConfig


@contextmanager
def taking(
    key: str, port: int, address: str, rule: str = "a port that is free", of: str = "bindAddress"
) -> Iterator[None]:
    """Inside it a port is taken; key, of: of the configuration.  Raises InvalidValue otherwise."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        code = getattr(error, "errno", None)
        if isinstance(error, socket.gaierror) or code == errno.EADDRNOTAVAIL:
            raise InvalidValue(of, address, "an address of this machine") from error
        reason = f" ({error.strerror})" if isinstance(error, OSError) else ""
        raise InvalidValue(key, port, f"{rule} on {of}={address}{reason}") from error


def bound_socket(address: str, port: int) -> socket.socket:
    """A socket that has taken a port, where nobody is answered yet.  Raises OSError."""
    bound = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
        # Otherwise another broker that starts now could bind it, too.
        bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound


class ProtocolServer(Protocol):
    """One port and its protocol."""

    async def bind(self) -> None:
        """Take the port, but answer no call yet.  Raises InvalidValue if that fails.

        The server calls it before it opens the store.
        """
        ...

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports that bind() took, by the configuration's attribute."""
        ...

    async def open(self, running: Running) -> None:
        """Answer calls from now on."""
        ...

    @property
    def is_listening(self) -> bool:
        """Between open() and drain(): are connections accepted, or will they be in a moment?"""
        ...

    async def drain(self) -> None:
        """Accept no more calls; return when the running ones are answered, or out of time.

        The service is closed: no call waits.  A protocol that only shows may answer until close().
        """
        ...

    async def close(self) -> None:
        """End all calls and give the port back.  Works also before bind() and open()."""
        ...


class Neighbours:
    """The brokers beside this one: none, unless a feature finds them.

    The server calls check(), meet(), begin() and close(), in this order.
    """

    async def check(self, config: BrokerConfig) -> None:
        """May this broker start beside the others?  Raises InvalidValue."""

    def meet(self, config: BrokerConfig, broker: Broker, clock: Clock) -> None:
        """The broker that the others shall know; its store is open."""

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Let clients come from now on."""

    def changed(self) -> None:
        """What the others know of this broker is another one now."""

    async def close(self) -> None:
        """Let clients go to the others."""

    def statuses(self) -> Sequence[NameServerStatus]:
        """The state of each name server at which the broker registers."""
        return ()

    async def queues_of(self, topic: str) -> Mapping[str, int] | None:  # noqa: ARG002
        """How many queues of a topic the others have, by their names; None: not known now."""
        return {}
