"""Sends the orders of orders.csv, each with its own delay: python -m orders.producer HOST:PORT

It prints one line of JSON per order, once the broker has the order on disk.
"""

from __future__ import annotations

import json
import sys
import time

from orders.order import TOPIC, Order, read_orders
from rmqlite.client import Message, Producer


def message_of(order: Order) -> Message:
    """delay="5s" picks the broker's level that is exactly that long; deliver_after needs none."""
    is_timer = order.delay.endswith("ms")
    body = {"customer": order.customer, "item": order.item, "amount": order.amount}
    return Message(
        TOPIC,
        json.dumps(body).encode(),
        tags="web",
        keys=order.order_id,
        properties={"fate": order.fate},
        delay=None if is_timer else order.delay or None,
        deliver_after=order.delay if is_timer else None,
    )


def main(endpoint: str, per_second: float) -> None:
    began = time.monotonic()
    with Producer(endpoint, "order-shop") as producer:
        for number, order in enumerate(read_orders()):
            time.sleep(max(0.0, began + number / per_second - time.monotonic()))
            result = producer.send(message_of(order))
            print(json.dumps({"event": "sent", "order": order.order_id, "id": result.message_id}))
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 40.0)
