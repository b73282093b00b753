"""How long and how many: the limits of everything that a client sends over this protocol.

They bound the work and the memory of one frame.  Where kernel/words/limits.py has a number for the
same thing, it is that number.
"""

from __future__ import annotations

from typing import Final

FRAME_BYTES_MAX: Final = 16 << 20
"""The protocol's own limit, for the bytes after the length."""
HEADER_BYTES_MAX: Final = 512 << 10
"""A property string of 32,767 control characters takes 196,602 bytes in JSON."""
EXT_FIELDS_MAX: Final = 256
TEXT_BYTES_MAX: Final = 4_096
"""The length of a text that has no limit of its own."""
VALUE_BYTES_MAX: Final = 64 << 10
"""The length of a value of the name server's key-value table."""
JSON_BYTES_MAX: Final = 2 << 20
"""The length of a JSON body."""
JSON_NESTED_MAX: Final = 10_000
"""Objects and lists in a JSON body: each one takes up to 300 bytes while it is read."""
JSON_COMMAS_MAX: Final = 40_000
"""There is one before each further value, which takes up to 200 bytes while it is read."""
ODD_TOKENS_MAX: Final = 160_000
"""Texts, numbers and signs in odd JSON: one queue and its offset are 16."""
GROUPS_MAX: Final = 1_024
"""Producer groups, and consumer groups, of one client."""
TAGS_MAX: Final = 2_048
"""Tags of one subscription."""
LOCK_QUEUES_MAX: Final = 8_192
"""Queues that a client locks, or whose offsets it sends, in one call."""
BATCH_ACKS_MAX: Final = 1_024
"""Entries of one batch of acks; each is about some messages of one queue."""
BATCH_ACK_BYTES_MAX: Final = 1_024
"""The length in base64 of the bits of an entry: 6,144 offsets."""
BATCH_ACK_MESSAGES_MAX: Final = 4_096
"""Messages of all entries of a batch of acks."""
ENTRIES_MAX: Final = 1_000_000
"""Items of a list that only servers send; a client of this protocol reads them."""
BATCH_MESSAGES_MAX: Final = 65_536
"""Messages in one batch body, which are one append.  Those of RocketMQ's Java client have ids: no
more of them fit into its own limit, 4 MiB."""
SETTINGS_MAX: Final = 1_024
"""Lines of key=value in one body."""
SETTINGS_BYTES_MAX: Final = 256 << 10
