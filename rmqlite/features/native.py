"""What a feature adds to rmqlite.v1, beside what it adds to a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqlite.features.every import features
from rmqlite.features.rows import Limit, Row
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.service.service import Feature, Service
from rmqlite.kernel.words.errors import MessageTooLarge

Answers = Mapping[Row[Any, Any], Callable[[Service], Callable[..., Awaitable[Any]]]]
"""By call, where the service has the method that answers it.  A method takes the request, unless
it is None, and the host bytes of a caller whose row has_host."""
Talk = Callable[[Callable[[], Awaitable[bytes | None]], Callable[[bytes], Awaitable[object]]], Any]
"""A coroutine function that reads requests, None after the last one, and writes answers."""
Streams = Mapping[str, Callable[[Service], Talk]]
Limits = Mapping[str, Limit]
"""By "Message.field" of the proto, or by "field" for those of any message; for every field that is
repeated or has no fixed size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeFeature(Feature):
    """limits: of the fields of its requests; some are as broker.conf says.  streams: calls with
    many requests and answers, by path."""

    answers: Answers
    streams: Streams = field(default_factory=dict)
    limits: Callable[[BrokerConfig], Limits] = lambda _: {}


def native_features() -> tuple[NativeFeature, ...]:
    """All features that have calls of rmqlite.v1."""
    return tuple(each for each in features() if isinstance(each, NativeFeature))


def bodies_limit(config: BrokerConfig) -> Limit:
    """Of all bodies of a call."""
    return Limit(total=config.send_bytes_max, total_key="maxSendBytes", error=MessageTooLarge)
