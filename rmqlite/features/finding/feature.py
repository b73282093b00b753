"""What the feature adds to a broker."""

from __future__ import annotations

from functools import partial
from typing import Final

from rmqlite.features.finding.requests import (
    DEAD_LETTER_IDS_MAX,
    GET_MESSAGE,
    QUERY_MESSAGES,
    FoundMessages,
    MessageQuery,
)
from rmqlite.features.finding.service import FindingCalls
from rmqlite.features.native import NativeFeature
from rmqlite.features.rows import Limit
from rmqlite.kernel.words.levels import check_not_long_ago
from rmqlite.kernel.words.limits import SEARCH_BYTES_MAX


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
    limits=lambda _: {"ids": Limit(count=DEAD_LETTER_IDS_MAX, total=SEARCH_BYTES_MAX)},
)
