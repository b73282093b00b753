"""The orders of orders.csv and their expected ends: names that the demo's programs share."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOPIC: Final = "orders"
GROUP: Final = "order-workers"
FILE: Final = Path(__file__).resolve().parents[1] / "orders.csv"

DELIVERIES_MAX: Final = 17
"""RocketMQ's limit: the first delivery and 16 retries."""

EXPECTED: Final = {
    "ok": ("done", 1),
    "fails-once": ("done", 2),
    "fails-twice": ("done", 3),
    "always-fails": ("dead", DELIVERIES_MAX),
    "dead-at-once": ("dead", 1),
}
"""Fate -> how the order ends, and after how many deliveries."""


@dataclass(frozen=True, slots=True)
class Order:
    """One order.

    delay: "" for now, the length of one of the broker's levels ("5s"), or any other, which ends in
    milliseconds ("12s345ms").
    """

    order_id: str
    customer: str
    item: str
    amount: str
    delay: str
    fate: str


def read_orders(path: Path = FILE) -> list[Order]:
    """The orders of a CSV file with a header."""
    with path.open(encoding="utf-8", newline="") as file:
        return [Order(**row) for row in csv.DictReader(file)]
