"""The user's side of the wire: producers, consumers, and an administrator's questions."""

from rmqlite.client.admin import AdminClient
from rmqlite.client.producer import Producer
from rmqlite.client.pull_consumer import PullConsumer
from rmqlite.message import Message, StoredMessage
from rmqlite.requests import PullResult, PullStatus, Queue, SendResult

__all__ = [
    "AdminClient",
    "Message",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "Queue",
    "SendResult",
    "StoredMessage",
]
