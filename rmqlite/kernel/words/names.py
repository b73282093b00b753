"""Topic and group names: allowed names, reserved names, and the names of retry topics.

The rules are RocketMQ 4.9's (reference §8.1), with one difference: a group whose retry
topic would have too long a name is refused at once, not at its first failure.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from rmqlite.kernel.words.errors import InvalidName, PermissionMissing, must_be_type

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
AUTO_CREATE_TOPIC: Final = "TBW102"
CANCELLED_TOPIC: Final = "rmq_sys_SCHEDULE_CANCELLED"
"""Ours: a record here completes a scheduled one that was cancelled."""
BULK_JOBS_TOPIC: Final = "rmq_sys_BULK_JOBS"
"""Ours: a record here holds the result of one call of a bulk job."""
REDRIVE_JOBS_TOPIC: Final = "rmq_sys_REDRIVE_JOBS"
"""Ours: a record here holds the result of one step of a redrive job."""
LEASES_TOPIC: Final = "rmq_sys_LEASES"
"""Ours: a record here says which messages a client has received, or acknowledged."""
TABLES_TOPIC: Final = "rmq_sys_TABLES"
"""Ours: a record here is a change of topics, groups, levels or another table under config/."""
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""Messages that wait for an instant of their own are here, as in RocketMQ 5."""
WAIT_TOPICS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC)
"""The topics whose messages wait; kernel/records/wait_queues.py says which of their queues do."""
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
"""A message here is half of a transaction: nobody gets it before its producer commits it."""
HALF_ENDS_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""A record here names a half message that is committed, rolled back, copied or given up."""
UNDECIDED_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Half messages that are given up, because no producer has said how they end."""
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group whose offsets say up to where all half messages have ended."""
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""Clients with message traces send here what they have sent and consumed."""
SCHEDULE_GROUP: Final = "SCHEDULE_CONSUMER"
"""The group of the dead letters that are scheduled messages which could not be delivered; in
RocketMQ the name of the group that delivers scheduled messages."""
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""Tools pull with it to look at messages: that needs no more than looking does."""
RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
TOPIC_BYTES_MAX: Final = 127
GROUP_BYTES_MAX: Final = TOPIC_BYTES_MAX - len(RETRY_PREFIX)
STORED_NAME_BYTES_MAX: Final = 255
"""The longest name of a folder."""
STORED_NAME_RULE: Final = f"a name in UTF-8 of 1 to {STORED_NAME_BYTES_MAX} bytes, without '/'"

SYSTEM_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        AUTO_CREATE_TOPIC,
        "BenchmarkTest",
        HALF_TOPIC,
        TRACE_TOPIC,
        HALF_ENDS_TOPIC,
        UNDECIDED_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
_NOT_SENDABLE: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        AUTO_CREATE_TOPIC,
        HALF_TOPIC,
        HALF_ENDS_TOPIC,
        UNDECIDED_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        CANCELLED_TOPIC,
        BULK_JOBS_TOPIC,
        REDRIVE_JOBS_TOPIC,
        LEASES_TOPIC,
        TABLES_TOPIC,
        TIMER_TOPIC,
    }
)
_NAME_RULE: Final = "letters, digits, '_', '-', '%' and '|'"
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """The topic that keeps the replies of a cluster's consumers to clients that wait for them."""
    return f"{cluster}_REPLY_TOPIC"


def is_retry(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_dlq(topic: str) -> bool:
    return topic.startswith(DLQ_PREFIX)


def is_system(topic: str) -> bool:
    """Is this one of RocketMQ's own topics, which users do not create?"""
    return topic in SYSTEM_TOPICS or topic.startswith("rmq_sys_")


def is_system_group(group: str) -> bool:
    """Is this one of the broker's own groups, which no client consumes with?"""
    return group == SCHEDULE_GROUP or group.startswith("CID_RMQ_SYS_")


def group_of(topic: str) -> str | None:
    """The group that a retry or dead-letter topic belongs to; None for any other topic."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return None


def is_stored_name(name: str) -> bool:
    """May a topic or a group in a table or folder of a store have this name?

    The rules for new names are stricter: RocketMQ also has a topic with the name of its
    machine, and such a name may have dots.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    try:
        return len(name.encode()) <= STORED_NAME_BYTES_MAX
    except UnicodeEncodeError:
        return False


def check_topic(topic: str) -> None:
    """Raises InvalidName unless a topic may have this name."""
    _check_name("topic", topic, TOPIC_BYTES_MAX)


@lru_cache(maxsize=4096)
def check_sendable(topic: str) -> None:
    """Raises InvalidName or PermissionMissing unless a producer may send to this topic.

    Cached, because it is asked for each message; a refusal is not kept.
    """
    check_topic(topic)
    if topic in _NOT_SENDABLE:
        raise PermissionMissing(topic, "sending to", "the topic is the broker's own")


def check_group(group: str) -> None:
    """Raises InvalidName unless a consumer group may have this name."""
    _check_name("group", group, GROUP_BYTES_MAX)


def _check_name(field: str, name: str, bytes_max: int) -> None:
    if not isinstance(name, str):
        raise must_be_type(field, "str", name)
    if not name:
        raise InvalidName(field, name, f"1 to {bytes_max} {_NAME_RULE}")
    if len(name) > bytes_max:
        raise InvalidName(field, name, f"at most {bytes_max} bytes: this is {len(name.encode())}")
    if not _NAME.fullmatch(name):
        raise InvalidName(field, name, f"made of only {_NAME_RULE}")
