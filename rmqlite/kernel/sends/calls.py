"""A call that stores messages, its outcome, and how much work it may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.words.compression import COMPRESSED
from rmqlite.kernel.words.errors import InvalidValue, MessageTooLarge, RmqliteError
from rmqlite.kernel.words.limits import KEYS_MAX
from rmqlite.kernel.words.message import KEYS
from rmqlite.kernel.words.property_string import PropertyString

STEP_MESSAGES: Final = 256
"""After so many messages, 4 ms, or as much work, other calls may run."""
BATCH_WORK_MAX: Final = 6_000
"""The work of one call, whose records are made in steps but stored by one append."""
BODY_BYTES: Final = 16 << 10
"""So many bytes of bodies are as much work as one more message."""
_STRING_BYTES: Final = 1 << 10
"""So many bytes of a property string are, too: it may have hundreds of pairs."""
NEW_QUEUE_WORK: Final = 25
"""The first message of a queue makes folders and a file: so many times the work of another."""
INFLATE_WORK: Final = 16
"""The first bytes of a compressed body are inflated: 16 hostile ones take 8 ms."""
KEYS_WORK: Final = 4
"""So many further keys are as much work as one more message."""
_KEYS_PAIR: Final = f"{KEYS}\x01".encode()


class DraftCall(NamedTuple):
    """One call, of which all messages are stored or none.

    max_reconsume_times: of a consumer that sends a failed message to its retry topic itself; None
    means the group's.
    """

    drafts: Sequence[Draft]
    max_reconsume_times: int | None = None

    @property
    def topics(self) -> set[str]:
        return {draft.topic for draft in self.drafts}

    @property
    def is_batch(self) -> bool:
        return any(draft.spans for draft in self.drafts)

    @property
    def is_alone(self) -> bool:
        """Is it one message by itself?  RocketMQ gives some properties a meaning only there."""
        return len(self.drafts) == 1 and not self.drafts[0].spans


class Stored(NamedTuple):
    """Where the messages of a call are.

    queue_ids: of each draft, the queue that it goes to, also if it waits for now.  The others are
    of each message.  timer_out_ms: for when the message waits, if it is alone, and a timer; else 0.
    duplicates: by position, queue and message id of messages that stand for others, not stored.
    """

    queue_ids: Sequence[int]
    queue_offsets: Sequence[int]
    physical_offsets: Sequence[int]
    due_ms: Sequence[int]
    timer_out_ms: int = 0
    duplicates: Mapping[int, tuple[int, str]] = {}

    @property
    def queue_id(self) -> int:
        """Of the first message."""
        return self.queue_ids[0]

    @property
    def queue_offset(self) -> int:
        """Of the first message."""
        return self.queue_offsets[0]


Outcome = Stored | RmqliteError


def check_messages(field: str, count: int, most: int, key: str) -> None:
    """Raises InvalidValue for none, and MessageTooLarge for more than a call may have."""
    if not 1 <= count <= most:
        error = MessageTooLarge if count else InvalidValue
        raise error(field, count, f"1 to {most} in one call ({key})")


def check_work(work: int, most: int) -> None:
    """Raises MessageTooLarge for a call that one append cannot store in one turn of the loop."""
    if work > most:
        rule = f"at most {most} ordinary messages, or as much work, in one batch"
        raise MessageTooLarge("messages", f"{work} or more", rule)


def work_of(draft: Draft) -> int:
    """How many ordinary messages a single one takes as long as, or at most those of a batch.

    Raises MessageTooLarge for too many keys of a single one.
    """
    if draft.spans:
        # Between two of its keys there is a blank.
        body = draft.body
        return draft.messages + len(body) // _STRING_BYTES + body.count(b" ") // KEYS_WORK
    work = 1 + len(draft.body) // BODY_BYTES + len(draft.properties) // _STRING_BYTES
    if draft.sys_flag & COMPRESSED:
        work += INFLATE_WORK
    if _KEYS_PAIR not in draft.properties:
        return work
    count = (PropertyString(draft.properties).get(KEYS) or b"").count(b" ")
    if count >= KEYS_MAX:
        raise MessageTooLarge("keys", f"{count + 1} of them", f"at most {KEYS_MAX} in a message")
    return work + count // KEYS_WORK
