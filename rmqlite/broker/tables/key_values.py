"""Values that tools keep at the name server: RocketMQ's kvConfig.json, here under config/.

Two namespaces have a meaning.  ORDER_TOPIC_CONFIG holds, by topic, which brokers have how many
queues, and routes tell it to clients while orderMessageEnable is on.  NAMESRV_CONFIG holds that
switch.  Every change is on disk before it is answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rmqlite.errors import Overloaded
from rmqlite.store.message_store import MessageStore
from rmqlite.table_shapes import KeyValuesTable

TABLE: Final = "kvConfig.json"
_ORDERS: Final = "ORDER_TOPIC_CONFIG"
_SETTINGS: Final = "NAMESRV_CONFIG"
_HAS_ORDER: Final = "orderMessageEnable"
CHARS_MAX: Final = 1 << 20
"""The length of all namespaces, keys and values together: a change writes all of them."""
PAIRS_MAX: Final = 10_000


class KeyValues:
    """Values by namespace and key."""

    def __init__(self, store: MessageStore) -> None:
        """Raises StoreDamaged for a table that cannot be read."""
        self._store = store
        table = store.load_table(TABLE, KeyValuesTable) or KeyValuesTable()
        self._values = {namespace: dict(of) for namespace, of in table.config_table.items()}

    def of(self, namespace: str) -> Mapping[str, str]:
        """The values of a namespace; the caller must not change them."""
        return self._values.get(namespace, {})

    def put(self, namespace: str, key: str, value: str) -> None:
        """Raises Overloaded, StoreUnavailable: then nothing has changed."""
        changed = {**self._values, namespace: {**self.of(namespace), key: value}}
        pairs = [(space, *pair) for space, of in changed.items() for pair in of.items()]
        if len(pairs) > PAIRS_MAX:
            raise Overloaded("PAIRS_MAX of the name server's table", PAIRS_MAX)
        if sum([sum(map(len, each)) for each in pairs]) > CHARS_MAX:
            raise Overloaded("CHARS_MAX of the name server's table", CHARS_MAX)
        self._save(changed)

    def delete(self, namespace: str, key: str) -> None:
        """Forget a value; an unknown one is no error.  Raises StoreUnavailable."""
        if key not in self.of(namespace):
            return
        rest = {name: value for name, value in self.of(namespace).items() if name != key}
        changed = {**self._values, namespace: rest}
        if not rest:
            del changed[namespace]
        self._save(changed)

    @property
    def has_order(self) -> bool:
        """Do routes tell the order configuration of topics?"""
        return self.of(_SETTINGS).get(_HAS_ORDER) == "true"

    def set_order(self, has_order: bool) -> None:
        """Switch that on or off.  Raises Overloaded, StoreUnavailable."""
        if has_order != self.has_order:
            self.put(_SETTINGS, _HAS_ORDER, "true" if has_order else "false")

    def order_of(self, topic: str) -> str | None:
        """The order configuration that a topic's route tells; None: there is none."""
        return self.of(_ORDERS).get(topic) if self.has_order else None

    def _save(self, values: dict[str, dict[str, str]]) -> None:
        self._store.save_table(TABLE, {"configTable": values})
        self._values = values
