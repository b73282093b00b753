"""Who sent a request: RocketMQ 4.x's ACL (remoting reference §6.1), and which codes need what.

Unlike in RocketMQ, a batch and a reply need the right to publish, as a single send does, a failed
message needs the right to read it, and what only tools ask for needs a right, too.  Everybody
gets a route: clients ask for it first, and not all of them sign it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rmqlite.kernel.service.access import BROKER, Access, Caller, Need, Right
from rmqlite.kernel.words.errors import AccessDenied
from rmqlite.protocols.remoting.bytes.command import ACCESS_KEY, Command, is_signed
from rmqlite.protocols.remoting.connection import ClientConnection

PROTOCOL: Final = "remoting"
"""This protocol's name in the audit log."""
_OPEN: Final = frozenset({105})
_OF_CLIENTS: Final = frozenset(
    {10, 11, 12, 14, 15, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 41, 42, 46}
    | {310, 320, 324, 325, 361, 370, 400}
    | {200050, 200051, 200052, 200053, 200054, 200055, 200151}
)
"""What producers and consumers ask for: the service knows the topic and the group."""
_OF_BROKERS: Final = frozenset({103, 104, 106, 322})
"""What other brokers ask for: brokersAllowed says which account may register; who else has the name
and which addresses there are, every account may know."""
_LATER: Final = _OF_CLIENTS | _OF_BROKERS
_LOOKING: Final = frozenset(
    {21, 26, 28, 43, 45, 60, 61, 101, 201, 202, 203, 204, 206, 208, 219, 223, 224}
    | {300, 303, 304, 305, 307, 315, 317, 319, 321, 328, 351, 352}
)
"""What tools ask for and changes nothing.  Every other code needs an admin."""


class RemotingGuard:
    """Lets requests in that an account has signed."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def caller_of(self, connection: ClientConnection, command: Command) -> Caller | None:
        """Whose request this is; None without accounts.

        Raises AccessDenied.  Only a wrong signature makes the connection wait: a right one may
        also lack a right.
        """
        if self._access.accounts is None:
            connection.trust.right()
            return None
        if command.code in _OPEN:
            return BROKER
        key = command.ext.get(ACCESS_KEY, "")
        try:
            caller = self._access.caller(
                connection.address,
                key,
                partial(is_signed, command),
                protocol=PROTOCOL,
                call=command.code,
            )
        except AccessDenied:
            connection.trust.wrong(connection.go_on)
            raise
        connection.trust.right()
        if command.code not in _LATER:
            right = Right.VIEW if command.code in _LOOKING else Right.ADMIN
            need = Need(right, "", f"request code={command.code}")
            self._access.check(caller, (need,), command.code)
        return caller
