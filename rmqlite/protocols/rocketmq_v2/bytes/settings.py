"""What a client is to do: its own settings, with what the broker decides written over them.

Each client takes settings in its own way.  Node before 1.0.9 takes the seconds of a back-off for
milliseconds, and knows no list of waits; Python cuts waits to whole seconds.  A producer of Node
dies without an exponential back-off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from rmqlite.features.leases.requests import RECEIVE_MESSAGES_MAX
from rmqlite.kernel.words.levels import LevelTable
from rmqlite.kernel.words.limits import INT32_MAX
from rmqlite.kernel.words.retry_policy import RetryPolicy
from rmqlite.protocols.pb.rocketmq_v2 import definition_pb2 as definition
from rmqlite.protocols.rocketmq_v2.bytes import rules
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code, broken

SEND_ATTEMPTS_MAX: Final = 3
SEND_BACKOFF_MS: Final = 10
SEND_BACKOFF_MS_MAX: Final = 1_000
BACKOFF_FACTOR: Final = 2.0
WAITS_MAX: Final = 64
"""So many waits are listed; a client repeats the last one."""
LITE_TOPIC_CHARS_MAX: Final = 64
_NODE_FIXED: Final = (1, 0, 9)
"""The first version of the client for Node that may take seconds for seconds."""
_NUMBERS: Final = re.compile(r"\d{1,6}(?:\.\d{1,6})*")


@dataclass(frozen=True, slots=True)
class GroupRules:
    """What a group of consumers is to do.

    waits_ms: how long a message waits after its first failure, its second ...; the last one is
    repeated.  attempts_max: the first delivery counts.
    """

    waits_ms: Sequence[int]
    attempts_max: int
    is_fifo: bool


def waits_of(policy: RetryPolicy, table: LevelTable, retries: int) -> tuple[int, ...]:
    """How long a group's messages wait after their failures; see GroupRules."""
    steps = max(1, min(retries, policy.steps(table), WAITS_MAX))
    return tuple([table.delay_ms(policy.level(step, table)) for step in range(steps)])


def producer_settings(asked: definition.Settings, *, body_bytes_max: int) -> definition.Settings:
    """The settings that go back to a producer."""
    merged = _copied(asked)
    merged.backoff_policy.max_attempts = SEND_ATTEMPTS_MAX
    backoff = merged.backoff_policy.exponential_backoff
    backoff.initial.CopyFrom(rules.to_duration(SEND_BACKOFF_MS))
    backoff.max.CopyFrom(rules.to_duration(SEND_BACKOFF_MS_MAX))
    backoff.multiplier = BACKOFF_FACTOR
    merged.publishing.max_body_size = body_bytes_max
    merged.publishing.validate_message_type = True
    return merged


def consumer_settings(asked: definition.Settings, group: GroupRules) -> definition.Settings:
    """The settings that go back to a consumer.  Raises Refusal."""
    merged = _copied(asked)
    policy = merged.backoff_policy
    policy.max_attempts = min(group.attempts_max, INT32_MAX)
    client = asked.user_agent
    waits_ms = list(islice(group.waits_ms, WAITS_MAX))
    if client.language == definition.NODE_JS and version_of(client.version) < _NODE_FIXED:
        # Its seconds of waits are our milliseconds.
        backoff = policy.exponential_backoff
        backoff.initial.seconds = waits_ms[0]
        backoff.max.seconds = max(waits_ms)
        backoff.multiplier = BACKOFF_FACTOR
    else:
        if client.language == definition.PYTHON:
            waits_ms = [-(-wait_ms // 1_000) * 1_000 for wait_ms in waits_ms]
        policy.customized_backoff.next.extend(map(rules.to_duration, waits_ms))
    subscription = merged.subscription
    subscription.fifo = group.is_fifo
    subscription.receive_batch_size = RECEIVE_MESSAGES_MAX
    poll_ms = rules.POLLING_MS_MAX
    if asked.subscription.HasField("long_polling_timeout"):
        poll_ms = rules.duration_ms(asked.subscription.long_polling_timeout) or 0
        poll_ms = min(max(poll_ms, rules.POLLING_MS_MIN), rules.POLLING_MS_MAX)
    subscription.long_polling_timeout.CopyFrom(rules.to_duration(poll_ms))
    # Python takes a quota that is left out for 0, Node for 100.
    subscription.lite_subscription_quota = 0
    subscription.max_lite_topic_size = LITE_TOPIC_CHARS_MAX
    return merged


def decided(merged: definition.Settings) -> definition.Settings:
    """What the broker decides, without what the client has said itself: 2 kB at most."""
    own = definition.Settings()
    own.CopyFrom(merged)
    for field in ("access_point", "user_agent", "client_properties"):
        own.ClearField(field)
    if is_consumer(own):
        own.subscription.ClearField("subscriptions")
    else:
        own.publishing.ClearField("topics")
    return own


def is_consumer(asked: definition.Settings) -> bool:
    """False: a producer.  Raises Refusal for settings of neither."""
    kind = asked.WhichOneof("pub_sub")
    if kind is None:
        rule = "those of a producer (publishing) or a consumer (subscription)"
        raise broken(Code.UNRECOGNIZED_CLIENT_TYPE, "settings", "neither", rule)
    return bool(kind == "subscription")


def version_of(text: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version; none if it begins with no number."""
    found = _NUMBERS.match(text)
    return tuple([int(part) for part in found[0].split(".")]) if found else ()


def _copied(asked: definition.Settings) -> definition.Settings:
    merged = definition.Settings()
    merged.CopyFrom(asked)
    merged.ClearField("backoff_policy")
    merged.metric.Clear()
    merged.metric.on = False
    return merged
