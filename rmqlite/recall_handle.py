"""Recall handles: the text by which a client of RocketMQ 5 recalls a timer that it has sent.

    v1 <topic> <broker name> <TIMER_OUT_MS + 1> <message id>

with single blanks, in URL-safe base64 with padding.  So a handle names one message of one instant,
and nothing has to be kept for it.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

from rmqlite.errors import InvalidValue

_VERSION: Final = "v1"
_BASE64: Final = re.compile(r"[A-Za-z0-9_-]+={0,2}").fullmatch
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}").fullmatch
_RULE: Final = "the handle that the answer to a send has, unchanged"


class RecallHandle(NamedTuple):
    """timer_out_ms: of the record.  message_id: the producer's (UNIQ_KEY)."""

    topic: str
    broker_name: str
    timer_out_ms: int
    message_id: str

    def text(self) -> str:
        """What the client gets; "" if the message has no id, or one that no handle can name."""
        parts = (_VERSION, self.topic, self.broker_name, f"{self.timer_out_ms + 1}")
        if not self.message_id or any(" " in part for part in (*parts, self.message_id)):
            return ""
        return urlsafe_b64encode(" ".join((*parts, self.message_id)).encode()).decode("ascii")


def read_handle(text: str) -> RecallHandle:
    """The inverse of text().  As for RocketMQ, padding may be missing, and whatever stands behind
    a further blank does not count.  Raises InvalidValue."""
    if not _BASE64(text) or ("=" in text and len(text) % 4):
        raise InvalidValue("recallHandle", text, _RULE)
    try:
        parts = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("utf-8", "replace")
    except ValueError:
        raise InvalidValue("recallHandle", text, _RULE) from None
    version, topic, broker_name, after_ms, message_id, *_ = [*parts.split(" "), *[""] * 4]
    if version != _VERSION or not message_id:
        raise InvalidValue("recallHandle", text, _RULE)
    if not _WHOLE(after_ms):
        raise InvalidValue("recallHandle", text, f"{_RULE}: {after_ms!r} in it is no time")
    return RecallHandle(topic, broker_name, int(after_ms) - 1, message_id)
