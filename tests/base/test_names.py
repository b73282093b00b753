"""Topic and group names: RocketMQ's rules, and the names that retry makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.kernel.words import names
from rmqlite.kernel.words.errors import InvalidName, PermissionMissing


@pytest.mark.parametrize("name", ["orders", "a", "A-b_c%d|e9", "%RETRY%g", "x" * 127])
def test_rocketmqs_characters_and_length_are_allowed(name: str) -> None:
    """Reference §8.1: also % and |."""
    names.check_topic(name)


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a.b", "../etc", "a/b", "a\n", "a\x00", "größe", "\uff41", "x" * 128]
)
def test_a_name_outside_the_rules_is_refused_with_the_rule(name: str) -> None:
    """A topic is a folder's name: a path or a blank must never reach the disk."""
    for check, field in ((names.check_topic, "topic"), (names.check_group, "group")):
        with pytest.raises(InvalidName) as raised:
            check(name)
        assert raised.value.field == field
        assert raised.value.rule


@given(st.text())
def test_a_name_that_passes_is_one_plain_path_component(name: str) -> None:
    """Whatever is typed: nothing that passes can leave the store's folder."""
    try:
        names.check_topic(name)
    except InvalidName:
        return
    assert name.isascii()
    assert not set(name) & set("/.\\ \t\n\x00")


def test_a_group_leaves_room_for_its_retry_topic() -> None:
    """Else its first failure could not be stored."""
    longest = "g" * names.GROUP_BYTES_MAX
    names.check_group(longest)
    names.check_topic(names.retry_topic(longest))
    names.check_topic(names.dlq_topic(longest))
    with pytest.raises(InvalidName, match=r"at most 120 bytes, not .*: this is 121"):
        names.check_group(longest + "g")


@pytest.mark.parametrize(
    "topic", ["SCHEDULE_TOPIC_XXXX", "TBW102", "RMQ_SYS_TRANS_HALF_TOPIC", "OFFSET_MOVED_EVENT"]
)
def test_nobody_sends_to_the_brokers_own_topics(topic: str) -> None:
    """A message put straight into the schedule would have no destination."""
    with pytest.raises(PermissionMissing) as raised:
        names.check_sendable(topic)
    assert raised.value.response_code == 16


@pytest.mark.parametrize("topic", ["orders", "BenchmarkTest", "%RETRY%g", "%DLQ%g"])
def test_retry_and_dead_letter_topics_may_be_sent_to(topic: str) -> None:
    """Reference §8.1: they are ordinary names."""
    names.check_sendable(topic)


def test_sending_to_an_invalid_name_is_a_name_error_first() -> None:
    """Reference §8.4: names are checked before permissions."""
    with pytest.raises(InvalidName):
        names.check_sendable("SCHEDULE TOPIC")


@given(st.text(min_size=1))
def test_the_group_of_a_retry_topic_is_the_group(group: str) -> None:
    """Pairs match, also for a group whose own name looks like a retry topic."""
    assert names.group_of(names.retry_topic(group)) == group
    assert names.group_of(names.dlq_topic(group)) == group
    assert names.is_retry(names.retry_topic(group))
    assert not names.is_retry(names.dlq_topic(group))
    assert names.is_dlq(names.dlq_topic(group))


def test_an_ordinary_topic_belongs_to_no_group() -> None:
    """The prefix counts only at the start."""
    assert names.group_of("orders") is None
    assert names.group_of("x%RETRY%g") is None


def test_system_topics_are_known_by_name_and_by_prefix() -> None:
    """Reference §8.1: these are created by no user."""
    assert names.is_system("SCHEDULE_TOPIC_XXXX")
    assert names.is_system("rmq_sys_anything")
    assert not names.is_system("%RETRY%g")
    assert not names.is_system("orders")
