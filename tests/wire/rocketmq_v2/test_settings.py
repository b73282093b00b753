"""The settings that go back to a client make it work, and none of them makes it crash."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from rmqlite.kernel.words.levels import parse_levels
from rmqlite.kernel.words.retry_policy import RetryPolicy
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.limits import WAITS_MAX
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import definition
from rmqlite.protocols.rocketmq_v2.bytes.rules import duration_ms
from rmqlite.protocols.rocketmq_v2.telemetry import (
    GroupRules,
    consumer_settings,
    is_consumer,
    producer_settings,
    version_of,
    waits_of,
)
from tests.support.rocketmq_v2 import refused

Language = definition.Language
LEVELS = parse_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
GROUP = GroupRules(waits_ms=(10_500, 30_000, 60_000), attempts_max=17, is_fifo=False)


def asked(language: definition.Language, version: str, **more: Any) -> definition.Settings:
    """What a client says about itself."""
    return definition.Settings(
        client_type=definition.PUSH_CONSUMER,
        access_point=definition.Endpoints(addresses=[definition.Address(host="h", port=1)]),
        request_timeout=Duration(seconds=3),
        user_agent=definition.UA(language=language, version=version),
        metric=definition.Metric(on=True),
        **more,
    )


def producer() -> definition.Settings:
    topics = [definition.Resource(name="orders")]
    sent = definition.Publishing(topics=topics, max_body_size=134_217_728)
    return asked(definition.PYTHON, "5.1.2", publishing=sent)


def consumer(
    language: definition.Language = definition.JAVA,
    version: str = "5.0.7",
    polling_s: int | None = None,
) -> definition.Settings:
    entry = definition.SubscriptionEntry(topic=definition.Resource(name="orders"))
    wants = definition.Subscription(
        group=definition.Resource(name="payers"), subscriptions=[entry], fifo=True
    )
    if polling_s is not None:
        wants.long_polling_timeout.seconds = polling_s
    return asked(language, version, subscription=wants)


def waits(settings: definition.Settings) -> list[int | None]:
    return [duration_ms(each) for each in settings.backoff_policy.customized_backoff.next]


def test_a_producer_has_an_exponential_back_off() -> None:
    """Node dies without one; with a largest body of 0 nobody can send."""
    merged = producer_settings(producer(), body_bytes_max=4_194_304)
    policy = merged.backoff_policy
    assert policy.max_attempts == 3
    assert policy.WhichOneof("strategy") == "exponential_backoff"
    backoff = policy.exponential_backoff
    assert (duration_ms(backoff.initial), duration_ms(backoff.max)) == (10, 1_000)
    assert backoff.multiplier == 2
    assert merged.publishing.max_body_size == 4_194_304
    assert merged.publishing.validate_message_type
    assert [topic.name for topic in merged.publishing.topics] == ["orders"]


def test_what_a_client_said_comes_back() -> None:
    """But no metrics: they would start an exporter in it."""
    sent = producer()
    merged = producer_settings(sent, body_bytes_max=1)
    assert merged.access_point == sent.access_point
    assert merged.user_agent == sent.user_agent
    assert merged.client_type == sent.client_type
    assert merged.request_timeout == sent.request_timeout
    assert merged.HasField("metric")
    assert not merged.metric.on
    assert sent == producer()


def test_a_consumer_has_what_its_group_says() -> None:
    """Its own word on order does not count."""
    merged = consumer_settings(consumer(), GROUP)
    assert merged.backoff_policy.max_attempts == 17
    assert waits(merged) == [10_500, 30_000, 60_000]
    own = merged.subscription
    assert (own.group.name, own.subscriptions[0].topic.name) == ("payers", "orders")
    assert own.HasField("fifo")
    assert not own.fifo
    assert own.receive_batch_size == 32
    assert own.HasField("lite_subscription_quota")
    assert own.lite_subscription_quota == 0
    fifo = GroupRules(GROUP.waits_ms, 17, is_fifo=True)
    assert consumer_settings(consumer(), fifo).subscription.fifo


@pytest.mark.parametrize(("polling_s", "found"), [(None, 20), (1, 5), (5, 5), (12, 12), (30, 20)])
def test_a_poll_takes_5_to_20_seconds(polling_s: int | None, found: int) -> None:
    """Without one a push consumer of Python polls in a tight loop."""
    merged = consumer_settings(consumer(polling_s=polling_s), GROUP)
    assert merged.subscription.long_polling_timeout == Duration(seconds=found)


def test_python_gets_whole_seconds() -> None:
    """It drops the rest, so that a wait of half a second would be none."""
    merged = consumer_settings(consumer(definition.PYTHON, "5.1.2"), GROUP)
    assert waits(merged) == [11_000, 30_000, 60_000]


@pytest.mark.parametrize("version", ["1.0.8", "1.0.0", "0.9", "1.0", "", "1.0.8-beta"])
def test_old_node_gets_its_milliseconds_as_seconds(version: str) -> None:
    """It takes seconds of an exponential back-off for milliseconds, and knows no list."""
    merged = consumer_settings(consumer(definition.NODE_JS, version), GROUP)
    backoff = merged.backoff_policy.exponential_backoff
    assert (backoff.initial.seconds, backoff.max.seconds) == (10_500, 60_000)
    assert backoff.multiplier == 2
    assert merged.backoff_policy.max_attempts == 17


@pytest.mark.parametrize(
    ("language", "version"),
    [
        (definition.NODE_JS, "1.0.9"),
        (definition.NODE_JS, "1.1"),
        (definition.NODE_JS, "2.0.0"),
        (definition.GOLANG, "1.0.8"),
    ],
)
def test_nobody_else_does(language: definition.Language, version: str) -> None:
    """A fixed client would wait a thousand times too long."""
    assert waits(consumer_settings(consumer(language, version), GROUP)) == [10_500, 30_000, 60_000]


def test_settings_of_neither_producer_nor_consumer_are_refused() -> None:
    """There is nothing to answer to them."""
    assert is_consumer(consumer())
    assert not is_consumer(producer())
    with refused(Code.UNRECOGNIZED_CLIENT_TYPE, "settings must be those of a producer"):
        is_consumer(definition.Settings())


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1.0.8", (1, 0, 8)), ("1.0.8-x", (1, 0, 8)), ("v1", ()), ("", ()), ("9" * 30, (999_999,))],
)
def test_a_version_is_its_numbers(text: str, numbers: tuple[int, ...]) -> None:
    """A client may call itself anything."""
    assert version_of(text) == numbers


def test_the_waits_are_those_of_the_groups_policy() -> None:
    """As often as the policy changes them; the last one is repeated."""
    seconds = [wait_ms // 1_000 for wait_ms in waits_of(RetryPolicy(), LEVELS, 16)]
    assert seconds[:4] == [10, 30, 60, 120]
    assert len(seconds) == 16
    assert waits_of(RetryPolicy.parse("5s 1m"), LEVELS, 16) == (5_000, 60_000)
    assert waits_of(RetryPolicy.parse("5s 1m"), LEVELS, 1) == (5_000,)
    assert waits_of(RetryPolicy.parse("5s"), LEVELS, 0) == (5_000,)
    growing = RetryPolicy.parse("exponential(1s, 1.01, 2h)")
    assert len(waits_of(growing, LEVELS, 2**31 - 1)) == WAITS_MAX
