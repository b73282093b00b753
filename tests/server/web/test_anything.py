"""Any request gets an answer, in any order; the answer is never that the broker failed."""

from __future__ import annotations

import random
from typing import Final
from urllib.parse import urlencode

import pytest

from rmqlite.kernel.words.message import Message
from rmqlite.web.app import _CHANGES, _LOOKS
from tests.server.web.browser import Browser, browse
from tests.support.brokers import BrokerUnderTest
from tests.support.web_letters import GROUP, dead_letters, hostile_letter

LOOKS: Final = 300
CHANGES: Final = 150
NAMES: Final = (
    *("group", "name", "id", "topic", "tag", "key", "reason", "since", "until", "from", "origin"),
    *("level", "span", "cursor", "view", "order", "action", "to", "chosen", "ids", "what", "only"),
    *("as", "begin", "before", "rate", "again", "to_topic", "job_id", "policy", "max", "burst"),
    "per_second",
)
VALUES: Final = (
    *("", "0", "1", "5", "-1", "64", "65", "99999999999", "9" * 15, "1.2.3", "1.1.1.1.1", "0:0"),
    *(GROUP, "orders", "%RETRY%shop", "nobody", "é" * 50, "<b>", "\x00", "x" * 4_096, "AAAA", "{}"),
    *("+10m", "-1h", "2026-11-20", "newest", "open", "all", "until", "restore", "sent", "1h"),
    *("cancel", "fire", "reschedule", "pause", "text", "json", "hex", "3 5 7"),
)


@pytest.mark.seeds(1, 3)
def test_no_request_makes_a_page_fail(seed: int, under_test: BrokerUnderTest) -> None:
    """A stack in the log means a bug; random requests find such bugs."""
    dice = random.Random(seed)
    ids = [dead_letters(under_test, 5)[0], hostile_letter(under_test)]
    under_test.send(*[Message("orders", b"x", delay_level=5 + n) for n in range(5)])
    known = [VALUES, [each.message_id for each in ids], [each.offset_message_id for each in ids]]

    def fields() -> list[tuple[str, str]]:
        chosen = [
            (dice.choice(NAMES), dice.choice(dice.choice(known))) for _ in range(dice.randrange(6))
        ]
        return [("group", GROUP), ("action", "cancel"), *chosen]

    async def scenario(browser: Browser) -> None:
        for _ in range(LOOKS):
            path = f"{dice.choice(list(_LOOKS))}?{urlencode(fields())}"
            assert (await browser.get(path)).status in (200, 400, 404), path
        token = ("token", (await browser.get(f"/redrive/preview?group={GROUP}")).field("token"))
        for _ in range(CHANGES):
            path, sent = dice.choice(list(_CHANGES)), [*fields(), token]
            page = await browser.send(path, sent)
            assert page.status in (200, 400, 404, 409), (path, sent)

    browse(under_test, scenario)
