"""The values that programs keep at the name server."""

from __future__ import annotations

import pytest

from rmqlite.features.name_server import key_values
from rmqlite.features.name_server.key_values import KeyValues
from rmqlite.kernel.words.errors import Overloaded, StoreUnavailable
from tests.support.brokers import BrokerUnderTest
from tests.support.files import FaultyFiles
from tests.support.made_brokers import Make
from tests.support.messages import TOPIC


def test_the_name_servers_values_survive_a_crash(under_test: BrokerUnderTest) -> None:
    """In RocketMQ's shape; a value that is deleted does not come back."""
    values = KeyValues(under_test.store)
    values.put("MYNS", "k1", "v1")
    values.put("MYNS", "k2", "v2")
    values.delete("MYNS", "k1")
    values.delete("MYNS", "unknown")
    under_test.crash()
    under_test.open()
    values = KeyValues(under_test.store)
    assert values.of("MYNS") == {"k2": "v2"}
    assert values.of("OTHER") == {}
    values.delete("MYNS", "k2")
    assert KeyValues(under_test.store).of("MYNS") == {}


def test_the_order_of_a_topic_is_told_while_that_is_switched_on(
    under_test: BrokerUnderTest,
) -> None:
    """orderMessageEnable, which is off at first as in RocketMQ."""
    values = KeyValues(under_test.store)
    values.put("ORDER_TOPIC_CONFIG", TOPIC, "broker-a:4")
    assert values.order_of(TOPIC) is None
    values.set_order(True)
    values = KeyValues(under_test.store)
    assert values.order_of(TOPIC) == "broker-a:4"
    assert values.order_of("others") is None
    values.set_order(False)
    assert values.order_of(TOPIC) is None


def test_the_name_servers_values_have_limits(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may put values there."""
    values = KeyValues(under_test.store)
    monkeypatch.setattr(key_values, "PAIRS_MAX", 2)
    monkeypatch.setattr(key_values, "CHARS_MAX", 100)
    values.put("n", "a", "x" * 80)
    values.put("n", "b", "x")
    with pytest.raises(Overloaded, match="PAIRS_MAX"):
        values.put("n", "c", "x")
    with pytest.raises(Overloaded, match="CHARS_MAX"):
        values.put("n", "b", "x" * 20)
    assert KeyValues(under_test.store).of("n") == {"a": "x" * 80, "b": "x"}


def test_a_value_that_cannot_be_written_is_not_kept(make: Make) -> None:
    """Whoever put it there was told so."""
    files = FaultyFiles()
    broker = make(files=files)
    values = KeyValues(broker.store)
    files.fail("write")
    with pytest.raises(StoreUnavailable):
        values.put("n", "a", "x")
    assert values.of("n") == {}
