"""Dead letters for the web page: ordinary ones, and ones whose fields attack the page."""

from __future__ import annotations

from typing import Final

from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.native.bytes.messages import SendResult
from tests.support.brokers import BrokerUnderTest

GROUP: Final = "shop"
HOSTILE: Final = (
    '<script>alert("harm")</script><img src=x onerror=alert(1)><svg onload=alert(2)>'
    "</td></table></textarea></title>{{ 7 * 7 }}{% raw %}\x1b[2J\x1b]0;harm\x07"
    "\u202egnp.exe\u2066\u200b\x00 javascript:alert(3) ' \" ` &lt;b&gt; \U000e0041"
)
INVALID_UTF8: Final = b"<script>alert(4)</script>\xff\xfe\x80" + HOSTILE.encode()


def dead_letters(
    under_test: BrokerUnderTest, count: int = 3, *, reason: str = "KeyError: 'address'"
) -> list[SendResult]:
    """So many messages to orders, each a dead letter of GROUP."""
    messages = [
        Message("orders", b'{"n": %d}' % n, keys=f"order-{n}", tags="new") for n in range(count)
    ]
    sent = list(under_test.send(*messages))
    for each in sent:
        request = SendBackRequest(GROUP, each.physical_offset, delay_level=-1, reason=reason)
        under_test.broker.send_back(request)
    under_test.sync()
    return sent


def hostile_letter(under_test: BrokerUnderTest, body: bytes = HOSTILE.encode()) -> SendResult:
    """A dead letter whose every field that a user may choose means harm."""
    message = Message(
        "orders",
        body,
        tags=HOSTILE.replace("\x01", ""),
        keys=[HOSTILE.replace(" ", "").replace("\x00", "")],
        properties={f"<i>{HOSTILE}": HOSTILE},
        message_id="<b>" + HOSTILE.replace(" ", ""),
    )
    (sent,) = under_test.send(message)
    request = SendBackRequest(GROUP, sent.physical_offset, delay_level=-1, reason=HOSTILE)
    under_test.broker.send_back(request)
    under_test.sync()
    return sent
