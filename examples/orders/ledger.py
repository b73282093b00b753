"""The history of every order, from the events of the processes and from the dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orders.order import EXPECTED, Order
from rmqlite.client import StoredMessage

DeadLetters = Sequence[StoredMessage]


@dataclass(slots=True)
class Ledger:
    """Counts by order id."""

    orders: Sequence[Order]
    sent: Counter[str] = field(default_factory=Counter)
    deliveries: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    recent: list[str] = field(default_factory=list)

    def add(self, event: Mapping[str, Any]) -> None:
        """Count an event of a producer or consumer process."""
        order = str(event["order"])
        if event["event"] == "sent":
            self.sent[order] += 1
            return
        self.deliveries[order] += 1
        if event["event"] == "done":
            self.done[order] += 1
        self.recent.append(f"{order}  delivery {event['attempt']:>2}  {event['event']}")
        del self.recent[:-5]

    def problems(self, dead_letters: DeadLetters) -> list[str]:
        """The mistakes: an order is lost, ended twice, or did not end according to its fate."""
        dead = Counter([message.keys[0] for message in dead_letters])
        found = []
        for order in self.orders:
            name = order.order_id
            outcome, deliveries = EXPECTED[order.fate]
            ended = ["done"] * self.done[name] + ["dead"] * dead[name]
            if self.sent[name] != 1:
                found.append(f"{name}: sent {self.sent[name]} times")
            if ended != [outcome]:
                found.append(f"{name} ({order.fate}): ended as {ended}, not once as {outcome}")
            if self.deliveries[name] != deliveries:
                found.append(
                    f"{name} ({order.fate}): {self.deliveries[name]} deliveries, not {deliveries}"
                )
        known = {order.order_id for order in self.orders}
        found += [f"{name}: nobody ordered this" for name in (dead + self.done).keys() - known]
        return found
