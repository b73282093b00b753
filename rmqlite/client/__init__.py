"""The user's side of the wire: producers, consumers, and an administrator's questions."""

from rmqlite.client.admin import AdminClient
from rmqlite.client.producer import Producer
from rmqlite.message import Message, StoredMessage
from rmqlite.requests import SendResult

__all__ = ["AdminClient", "Message", "Producer", "SendResult", "StoredMessage"]
