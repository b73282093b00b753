"""Calls of rmqlite.v1 as data, and limits of their fields: what a feature declares of its calls.

Whoever serves the protocol walks the rows of all features, and the client asks by the same rows;
so a call stands in the proto, in its feature, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from rmqlite.features.failure_kinds import REASON_CHARS_MAX
from rmqlite.kernel.words import limits
from rmqlite.kernel.words.errors import InvalidName, InvalidValue
from rmqlite.kernel.words.names import GROUP_BYTES_MAX, TOPIC_BYTES_MAX

Q = TypeVar("Q")
A = TypeVar("A")
SMALL_REQUEST_BYTES_MAX: Final = 128 << 10
LIST_REQUEST_BYTES_MAX: Final = 1 << 20
"""Of a call whose request has a long list."""


@dataclass(frozen=True, slots=True, eq=False)
class Row(Generic[Q, A]):
    """A call: what is asked and what is answered; the proto says in which messages.

    service, name: of the proto.  bytes_max: of a request; None: it has bodies, and may be as large
    as a send.  is_short: it waits for the disk, many at a time, and its answer is no longer than
    its request or only some bytes; each other call makes its answer alone among those of its
    connection.  may_park: it waits if there is no message, or no other assignment.  looks: its
    answer is messages, and its method is given what bounds those that are looked at.  has_host:
    its answer depends on the caller's address.
    """

    service: str
    name: str
    request: type[Q]
    answer: type[A]
    bytes_max: int | None = SMALL_REQUEST_BYTES_MAX
    is_short: bool = False
    may_park: bool = False
    looks: bool = False
    has_host: bool = False
    path: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", f"/rmqlite.v1.{self.service}/{self.name}")


@dataclass(frozen=True, slots=True)
class Limit:
    """The limits of one field; None means no limit.

    size: bytes of a text, of each one if the field is repeated.  count: how many items of a
    repeated field the whole request may have.  total: bytes of all these items.  error: the
    class to raise.  size_key, count_key, total_key: the keys of these limits in broker.conf.
    """

    size: int | None = None
    count: int | None = None
    total: int | None = None
    error: type[InvalidValue] = InvalidValue
    size_key: str = ""
    count_key: str = ""
    total_key: str = ""


TOPIC: Final = Limit(size=TOPIC_BYTES_MAX, error=InvalidName)
GROUP: Final = Limit(size=GROUP_BYTES_MAX, error=InvalidName)
SEARCHED: Final = Limit(size=limits.SEARCH_BYTES_MAX)
BY_NAME: Final[Mapping[str, Limit]] = {
    "topic": TOPIC,
    "origin_topic": TOPIC,
    "to_topic": TOPIC,
    "group": GROUP,
    "key": SEARCHED,
    "tag": SEARCHED,
    "reason": Limit(size=4 * limits.REASON_PART_CHARS_MAX),
    "failure_kind": Limit(size=4 * REASON_CHARS_MAX),
    "offset_message_id": Limit(size=limits.MESSAGE_ID_BYTES_MAX),
    "client_id": Limit(size=limits.CLIENT_ID_BYTES_MAX),
    "expression": Limit(size=limits.EXPRESSION_BYTES_MAX),
    "cursor": Limit(size=limits.CURSOR_BYTES_MAX),
    "job_id": Limit(size=limits.JOB_ID_CHARS_MAX),
}
"""Of fields with these names in any request, unless "Message.field" has a limit of its own."""


def check_job_id(job_id: str) -> None:
    """Raises InvalidValue unless a job may have this id."""
    is_plain = job_id.isascii() and job_id.isprintable() and " " not in job_id
    if not is_plain or not 1 <= len(job_id) <= limits.JOB_ID_CHARS_MAX:
        rule = f"1 to {limits.JOB_ID_CHARS_MAX} printable ASCII characters without blanks"
        raise InvalidValue("job_id", job_id, rule)
