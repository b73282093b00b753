"""How long the texts and lists of one request may be, on the wire, on the web page and in code.

A limit that belongs to one noun stands with it (names.py, kernel/requests/broker.py ...); a limit
that an operator may change stands in config.py.  The others stand here: without them a caller
could fill a whole call with one text, and the broker looks at each character of most of them.
"""

from __future__ import annotations

from typing import Final

from rmqlite.kernel.words.errors import InvalidValue

JOB_ID_CHARS_MAX: Final = 127
ACCESS_KEY_CHARS_MIN: Final = 7
ACCESS_KEY_CHARS_MAX: Final = 255
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
KEY_BYTES_MAX: Final = 1_024
"""The length of one key of a message."""
TAGS_BYTES_MAX: Final = 1_024
MESSAGE_ID_BYTES_MAX: Final = 255
"""The length of a producer's own message id; an id made by the client has 32 bytes."""
BATCHES_MAX: Final = 100
"""Batches in one call: each is one topic, with one delay."""
KEYS_MAX: Final = 1_000
"""The keys of all messages of one call: a key costs the broker a tenth of a message's work."""
KEYS_BYTES_MAX: Final = 64 << 10
"""The length of all keys of one call together: each byte goes into a hash."""
PROPERTIES_BYTES_MAX: Final = 32_767
"""The length of one property string: RocketMQ stores it as a signed 16-bit number."""
ORIGIN_BYTES: Final = 480
"""Room in a property string for what names the cluster, the origin of a failed message, and the
queue for which it waits.  Everything else that the broker adds is left out if it does not fit."""
SENT_PROPERTIES_BYTES_MAX: Final = PROPERTIES_BYTES_MAX - ORIGIN_BYTES
SEARCH_BYTES_MAX: Final = PROPERTIES_BYTES_MAX
"""The length of a key, tag or message id to search for: what fits into a property string."""
PROPERTIES_MAX: Final = 4_000
"""The properties of all messages of one call."""
TEXTS_BYTES_MAX: Final = 2 << 20
"""How much longer than its bodies a call may be: properties, keys, names and framing."""
NEW_QUEUES_MAX: Final = 32
"""How many still empty queues one call may send to: each one makes folders and a file."""
EXPRESSION_BYTES_MAX: Final = 4_096
SQL_BYTES_MAX: Final = 4_096
"""The length of an SQL92 expression; the longest takes 10 ms to compile."""
SUBSCRIPTIONS_SQL_BYTES_MAX: Final = 65_536
"""The length of all SQL92 expressions of one member: the broker compiles each of them."""
REASON_BYTES_MAX: Final = 65_536
"""The length of a failure's reason in a request; the broker stores only its beginning."""
REASON_PART_CHARS_MAX: Final = 1_024
"""The length of a search text for reasons; the broker stores no longer reason."""
RECEIVE_MESSAGES_MAX: Final = 32
PER_SECOND_MAX: Final = 1_000_000
INVISIBLE_MS_MAX: Final = 12 * 3_600_000
"""The longest that a leased message may be invisible without a word from its client."""
CURSOR_BYTES_MAX: Final = 65_536
"""The length of a cursor: one of a redrive names each queue that the redrive reads."""
CLIENT_ID_BYTES_MAX: Final = 255
SUBSCRIPTIONS_MAX: Final = 2_048
"""How many subscriptions one member of a group may have."""
CALL_SUBSCRIPTIONS_MAX: Final = 256
"""How many of them one call of rmqlite.v1 may name: each may have many tags."""
QUEUES_MAX: Final = 2_048
"""How many queues one call may ask about, or commit."""
LEVELS_TEXT_BYTES_MAX: Final = 1_024
"""The length of a messageDelayLevel; 64 levels take half of it."""
DELAY_BYTES_MAX: Final = 64
NOTE_CHARS_MAX: Final = 500
"""The length of a note, why somebody makes a change."""


def check_note(note: str) -> None:
    """Raises InvalidValue for a note that is too long, or would break a line of a log."""
    if len(note) > NOTE_CHARS_MAX or not note.isprintable():
        raise InvalidValue("note", note, f"one line of at most {NOTE_CHARS_MAX} characters")


def check_length(field: str, text: str, bytes_max: int) -> None:
    """Raises InvalidValue, with the length, if the text has more than bytes_max bytes."""
    if len(text) > bytes_max or (4 * len(text) > bytes_max and len(text.encode()) > bytes_max):
        length = len(text.encode("utf-8", "replace"))
        raise InvalidValue(field, f"{length} bytes", f"at most {bytes_max} bytes")
