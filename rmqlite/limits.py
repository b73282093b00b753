"""How long the texts and lists of one request may be, whichever face it comes by.

Numbers that belong to one noun stand with it (names.py, schedule_requests.py ...), and what an
operator may change stands in config.py.  These are the rest: every caller could make them as
large as a call may be, and the broker looks at each character of most of them.
"""

from __future__ import annotations

from typing import Final

from rmqlite.errors import InvalidValue

KEY_BYTES_MAX: Final = 1_024
"""Of one key of a message."""
TAGS_BYTES_MAX: Final = 1_024
MESSAGE_ID_BYTES_MAX: Final = 255
"""Of a producer's own id; one that the client makes has 32."""
KEYS_MAX: Final = 1_000
"""Of all messages of one call: each costs the broker as much as a tenth of a message."""
KEYS_BYTES_MAX: Final = 64 << 10
"""Of the keys of all messages of one call: each byte goes into a hash."""
PROPERTIES_BYTES_MAX: Final = 32_767
"""Of one message's property string: RocketMQ keeps its length in 16 bits, with a sign."""
PROPERTIES_MAX: Final = 4_000
"""Of all messages of one call."""
TEXTS_BYTES_MAX: Final = 2 << 20
"""How much longer than its bodies a call may be: properties, keys, names, framing."""
NEW_QUEUES_MAX: Final = 32
"""Of queues that hold nothing yet one call may send to so many: each makes folders and a file."""
EXPRESSION_BYTES_MAX: Final = 4_096
"""Of the tags that a consumer wants."""
REASON_BYTES_MAX: Final = 65_536
"""Of a failure's reason as it is sent; the broker keeps the beginning."""
REASON_PART_CHARS_MAX: Final = 1_024
"""Of the part of a reason that is looked for; no reason that the broker keeps is longer."""
CURSOR_BYTES_MAX: Final = 65_536
"""A cursor of a redrive names each queue that it looks at."""
CLIENT_ID_BYTES_MAX: Final = 255
SUBSCRIPTIONS_MAX: Final = 256
"""Of one member of a group."""
QUEUES_MAX: Final = 2_048
"""How many queues one call may ask about, or commit."""
LEVELS_TEXT_BYTES_MAX: Final = 1_024
"""Of a messageDelayLevel; 64 levels take half of it."""
DELAY_BYTES_MAX: Final = 64
"""Of a delay such as 10m."""


def check_length(field: str, text: str, bytes_max: int) -> None:
    """Raises InvalidValue, with the length, for a text of more bytes than that."""
    if len(text) > bytes_max or (4 * len(text) > bytes_max and len(text.encode()) > bytes_max):
        length = len(text.encode("utf-8", "replace"))
        raise InvalidValue(field, f"{length} bytes", f"at most {bytes_max} bytes")
