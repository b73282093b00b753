"""The name of a single record, and how many of them one request may have."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rmqlite.kernel.words.names import WAIT_TOPICS, dlq_topic, is_dlq, is_retry

DEAD_LETTER_IDS_MAX: Final = 100
"""The most ids of a filter; each dead letter's id is looked up among them."""
_PLACE: Final = re.compile("([^:]+):([0-9]{1,10}):([0-9]{1,18})")


class Place(NamedTuple):
    """A record's topic, queue and queue offset."""

    topic: str
    queue_id: int
    queue_offset: int

    @classmethod
    def read(cls, text: str) -> Place | None:
        """The place of a dead letter; None for another text.

        It is written topic:queue id:queue offset; a dead letter's also with its group instead.
        """
        found = _PLACE.fullmatch(text)
        if found is None:
            return None
        name, queue_id, queue_offset = found.groups()
        is_topic = is_dlq(name) or is_retry(name) or name in WAIT_TOPICS
        return cls(name if is_topic else dlq_topic(name), int(queue_id), int(queue_offset))
