"""What a send may ask for, before anything is stored (reference §8.4, §1.7)."""

from __future__ import annotations

from collections.abc import Sequence

from rmqlite.config import BrokerConfig
from rmqlite.errors import InvalidValue, MessageTooLarge
from rmqlite.message import Message
from rmqlite.names import check_sendable


def check_batch(messages: Sequence[Message], config: BrokerConfig) -> None:
    """Raises InvalidName, InvalidValue, MessageTooLarge, PermissionMissing."""
    if not 1 <= len(messages) <= config.send_messages_max:
        rule = f"1 to {config.send_messages_max} in one call (maxSendMessages)"
        raise InvalidValue("messages", len(messages), rule)
    total = 0
    for message in messages:
        size = len(message.body)
        total += size
        if size > config.max_message_bytes:
            rule = f"at most {config.max_message_bytes} bytes (maxMessageSize)"
            raise MessageTooLarge("body", size, rule)
    if total > config.send_bytes_max:
        rule = f"bodies of at most {config.send_bytes_max} bytes in one call (maxSendBytes)"
        raise MessageTooLarge("messages", total, rule)
    for topic in {message.topic for message in messages}:
        check_sendable(topic)
