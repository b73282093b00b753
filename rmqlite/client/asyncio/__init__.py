"""The clients for programs that run on an asyncio event loop.

They are the clients of rmqlite.client, with the same threads underneath.  What would wait does so
on such a thread, and its outcome comes back to the event loop; nothing here speaks to a broker.
"""

from rmqlite.client.asyncio.producer import (
    AsyncAdmin,
    AsyncDeadLetterAdmin,
    AsyncProducer,
    AsyncRedriveAdmin,
    AsyncScheduleAdmin,
)
from rmqlite.client.asyncio.push_consumer import AsyncPushConsumer
from rmqlite.client.asyncio.simple_consumer import AsyncSimpleConsumer
from rmqlite.client.consuming.listener import AsyncListener

__all__ = [
    "AsyncAdmin",
    "AsyncDeadLetterAdmin",
    "AsyncListener",
    "AsyncProducer",
    "AsyncPushConsumer",
    "AsyncRedriveAdmin",
    "AsyncScheduleAdmin",
    "AsyncSimpleConsumer",
]
