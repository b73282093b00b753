"""What limits callers may set: a feature decides how many requests and connections each has."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol


class CountedRequest(NamedTuple):
    """What is counted of a request.  requests: 0 if it was counted before, without its bytes."""

    requests: int
    size: int
    keeps_member: bool = False


class Limits(Protocol):
    """The limits of one broker.  account "": none, so only limits of the connection count."""

    def of_connection(self, address: str, request: CountedRequest) -> None:
        """Count a request on a connection.  Raises Overloaded."""
        ...

    def of_account(self, account: str, request: CountedRequest) -> None:
        """Count a request of an account.  Raises Overloaded."""
        ...

    def own(self, connection: Hashable, account: str) -> None:
        """A connection has brought a request of an account, whose it is from now on.

        Raises Overloaded; the connection then belongs to whom it belonged before.
        """
        ...

    def ended(self, connection: Hashable) -> None:
        """A connection has ended."""
        ...

    def parked(self, account: str) -> AbstractContextManager[None]:
        """Inside it a pull of the account waits.  Raises Overloaded."""
        ...
