"""Values that tools keep at the name server: RocketMQ's kvConfig.json, here under config/.

Two namespaces have a meaning.  ORDER_TOPIC_CONFIG holds, by topic, which brokers have how many
queues, and routes tell it to clients while orderMessageEnable is on.  NAMESRV_CONFIG holds that
switch.  A change is a record of the log (kernel/store/tables/logged_tables.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rmqlite.features.name_server.table_shapes import TABLE, KeyValuesTable
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.errors import Overloaded

_ORDERS: Final = "ORDER_TOPIC_CONFIG"
_SETTINGS: Final = "NAMESRV_CONFIG"
_HAS_ORDER: Final = "orderMessageEnable"
CHARS_MAX: Final = 1 << 20
"""The length of all namespaces, keys and values together."""
PAIRS_MAX: Final = 10_000


class KeyValues:
    """Values by namespace and key."""

    def __init__(self, store: MessageStore) -> None:
        """Raises StoreDamaged for a table that cannot be read."""
        self._store = store
        table = store.tables.load(TABLE, KeyValuesTable) or KeyValuesTable()
        self._values: dict[str, dict[str, str]] = {}
        self._pairs = self._chars = 0
        for namespace, of in table.config_table.items():
            if namespace == _ORDERS:
                self._values[namespace] = {}
            for key, value in of.items():
                self._put(namespace, key, value)

    def of(self, namespace: str) -> Mapping[str, str]:
        """The values of a namespace; the caller must not change them."""
        return self._values.get(namespace, {})

    def put(self, namespace: str, key: str, value: str) -> None:
        """Raises Overloaded: then nothing has changed."""
        before = self.of(namespace).get(key)
        if before is None and self._pairs >= PAIRS_MAX:
            raise Overloaded("PAIRS_MAX of the name server's table", PAIRS_MAX)
        added = _chars(namespace, key, value) - _chars(namespace, key, before)
        if self._chars + added > CHARS_MAX:
            raise Overloaded("CHARS_MAX of the name server's table", CHARS_MAX)
        self._change(namespace, key, value)

    def delete(self, namespace: str, key: str) -> None:
        """Forget a value; an unknown one is no error."""
        if key in self.of(namespace):
            self._change(namespace, key, None)

    @property
    def has_order(self) -> bool:
        """Do routes tell the order configuration of topics?"""
        return self.of(_SETTINGS).get(_HAS_ORDER) == "true"

    def set_order(self, has_order: bool) -> None:
        """Switch that on or off.  Raises Overloaded."""
        if has_order != self.has_order:
            self.put(_SETTINGS, _HAS_ORDER, "true" if has_order else "false")

    def order_of(self, topic: str) -> str | None:
        """The order configuration that a topic's route tells; None: there is none."""
        return self.of(_ORDERS).get(topic) if self.has_order else None

    @property
    def orders(self) -> Mapping[str, str] | None:
        """The order configurations of all topics; None: there has never been one."""
        return self._values.get(_ORDERS)

    def _change(self, namespace: str, key: str, value: str | None) -> None:
        """Put a value, or remove it if it is None.  Raises StoreUnavailable."""
        self._store.change_table(TABLE, [(("configTable", namespace, key), value)])
        self._put(namespace, key, value)

    def _put(self, namespace: str, key: str, value: str | None) -> None:
        values = self._values.setdefault(namespace, {})
        before = values.get(key)
        if value is not None:
            values[key] = value
        elif before is not None:
            del values[key]
        if not values and namespace != _ORDERS:
            del self._values[namespace]
        self._pairs += (value is not None) - (before is not None)
        self._chars += _chars(namespace, key, value) - _chars(namespace, key, before)


def _chars(namespace: str, key: str, value: str | None) -> int:
    """What a value counts for CHARS_MAX; None counts nothing."""
    return 0 if value is None else len(namespace) + len(key) + len(value)
