"""The longest bodies, properties and records that fit into the store's log files.

A new store has log files with room for the largest message and everything that its way adds.
A store that RocketMQ began may have shorter ones.  Then a send is refused if its message would
leave no room for that.  If a copy of a message in the log does not fit, its properties are
shortened, or at last its body is left behind.
"""

from __future__ import annotations

from typing import Final

from rmqlite.config import KEYS, RECORD_ROOM_BYTES
from rmqlite.errors import MessageTooLarge
from rmqlite.limits import PROPERTIES_BYTES_MAX
from rmqlite.records.record import OVERHEAD_BYTES, Head
from rmqlite.records.wait_queues import WAIT_TOPICS
from rmqlite.requests.dead_letters import LEFT_BEHIND
from rmqlite.store.log.checksums import record_bytes_max

_PLAIN_HOSTS_BYTES: Final = 16
_MORE_BYTES_MAX: Final = 127 + 24
"""The most bytes that another topic and IPv6 hosts add to a record."""


class Room:
    """The limits of bodies, properties and records in the log of one store."""

    def __init__(self, log_file_bytes: int, max_message_bytes: int) -> None:
        self.log_file_bytes = log_file_bytes
        self.record_bytes_max = record_bytes_max(log_file_bytes)
        # Half of a tiny file: there a record may still be too long, and is refused then.
        in_file = max(log_file_bytes - RECORD_ROOM_BYTES, log_file_bytes // 2)
        self.body_bytes_max = min(max_message_bytes, in_file)
        self._rule = f"at most {self.body_bytes_max} bytes "
        if self.body_bytes_max == max_message_bytes:
            self._rule += f"({KEYS['max_message_bytes']})"
        else:
            self._rule += f"in a store whose log files have {log_file_bytes} bytes"

    def check_body(self, size: int) -> None:
        """Raises MessageTooLarge for a body that is too long."""
        if size > self.body_bytes_max:
            raise MessageTooLarge("body", size, self._rule)

    def surely_holds(self, record_bytes: int) -> bool:
        """Does a record of this size fit, whatever its topic and hosts?"""
        return record_bytes + _MORE_BYTES_MAX <= self.record_bytes_max

    def why_not_in(self, head: Head, topic: str, properties_bytes: int = 0) -> str:
        """Why a copy of a record in another topic would not fit; empty if it fits."""
        other = max(0, properties_bytes - len(head.properties)) + _MORE_BYTES_MAX
        # Nearly all copies fit easily.
        if head.size + other <= self.record_bytes_max:
            return ""
        size = self._rest(head, topic) + (properties_bytes or len(head.properties))
        if size <= self.record_bytes_max:
            return ""
        return (
            f"its record would have {size} bytes, a log file of {self.log_file_bytes} has room"
            f" for {self.record_bytes_max}"
        )

    def for_properties(self, head: Head, topic: str, *, has_body: bool = True) -> int:
        """The longest property string for a copy of a record in another topic."""
        rest = self._rest(head, topic)
        if not has_body:
            rest -= head.body_end - head.body_position - len(LEFT_BEHIND)
        return min(PROPERTIES_BYTES_MAX, self.record_bytes_max - rest)

    def _rest(self, head: Head, topic: str) -> int:
        """The length of a copy in that topic, without its properties.

        The copy may first wait in the schedule, whose name may be longer than the topic's.
        """
        own = OVERHEAD_BYTES + len(head.born_host) + len(head.store_host) - _PLAIN_HOSTS_BYTES
        names = max(len(topic.encode()), *map(len, WAIT_TOPICS))
        return own + names + head.body_end - head.body_position
