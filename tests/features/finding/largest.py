"""The largest requests of calls about messages that are looked for."""

from __future__ import annotations

from typing import Final

from rmqlite.features.finding.requests import GET_MESSAGE, QUERY_MESSAGES, MessageQuery
from rmqlite.kernel.words.message import offset_message_id
from tests.support.largest_calls import KEY, TOPIC, Requests

LARGEST: Final[Requests] = {
    QUERY_MESSAGES: lambda at: MessageQuery(TOPIC, KEY if at.is_first else "k", history=True),
    GET_MESSAGE: lambda _: offset_message_id("127.0.0.1:10911", 0),
}
