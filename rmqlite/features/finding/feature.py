"""What the feature adds to a broker."""

from __future__ import annotations

from functools import partial
from typing import Final

from rmqlite.features.finding.requests import (
    GET_MESSAGE,
    QUERY_MESSAGES,
    FoundMessages,
    MessageQuery,
)
from rmqlite.features.finding.service import FindingCalls
from rmqlite.features.native import NativeFeature
from rmqlite.features.rows import OFFSET_MESSAGE_ID, SEARCHED, TOPIC
from rmqlite.kernel.words.levels import check_not_long_ago

_LIMITS: Final = {
    "QueryMessagesRequest.topic": TOPIC,
    "QueryMessagesRequest.key": SEARCHED,
    "GetMessageRequest.offset_message_id": OFFSET_MESSAGE_ID,
}


async def _found(calls: FindingCalls, query: MessageQuery) -> FoundMessages:
    # RocketMQ's own clients may ask for any time, with the outcome that RocketMQ gives it.
    check_not_long_ago("begin_ms", query.begin_ms)
    check_not_long_ago("end_ms", query.end_ms)
    return await calls.find(query)


FEATURE: Final = NativeFeature(
    calls=(FindingCalls,),
    answers={
        QUERY_MESSAGES: lambda service: partial(_found, service[FindingCalls]),
        GET_MESSAGE: lambda service: service[FindingCalls].at,
    },
    limits=_LIMITS,
)
