"""Failed messages at the service: long reads give other calls their turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmqlite.features.dead_letters.requests import (
    GET_HISTORY,
    LIST_DEAD_LETTER_GROUPS,
    LIST_DEAD_LETTERS,
    LIST_RETRIES,
    PURGE_DEAD_LETTERS,
    DeadLetterFilter,
    DeadLettersQuery,
    HistoryQuery,
    PurgeRequest,
)
from rmqlite.features.dead_letters.service import DeadLetterCalls
from rmqlite.features.rows import Row
from rmqlite.kernel.words.names import dlq_topic, retry_topic
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from tests.support.brokers import BrokerUnderTest
from tests.support.letters import dead
from tests.support.loops import turns_beside
from tests.support.messages import GROUP, received, send_back
from tests.support.services import Served, served
from tests.support.stores import new_record

HOSTILE = "\x1b]0;owned\x07<script>alert(1)</script>\u202e\x00\ufeff"


def test_long_looks_leave_turns_to_others(tmp_path: Path) -> None:
    """A send does not wait until thousands of letters are read."""
    under_test = BrokerUnderTest(tmp_path, mapped_file_size_commit_log=1 << 23)
    for topic in (dlq_topic(GROUP), retry_topic(GROUP), "orders"):
        record = new_record("letter", topic, properties={"UNIQ_KEY": "same", "TAGS": "a"})
        for _ in range(4):
            under_test.store.append([record] * 1_000)
    under_test.sync()
    wanted = DeadLetterFilter(tag="none such")

    counted: list[int] = []

    async def scenario(server: Served, _: object) -> None:
        letters = server.service[DeadLetterCalls]
        for call in (
            letters.dead_groups(),
            letters.dead(DeadLettersQuery(GROUP, wanted)),
            letters.retries(DeadLettersQuery(GROUP, wanted)),
            letters.history(HistoryQuery("same")),
        ):
            _, turns = await turns_beside(call)
            counted.append(turns)

    served(under_test, scenario)
    assert min(counted) >= 200
    under_test.store.release()


def test_whatever_a_letter_holds_goes_over_the_wire(tmp_path: Path) -> None:
    """Escape codes, markup, and bytes that are no text: the wire takes only what is one."""
    under_test = BrokerUnderTest(tmp_path)
    dead(under_test, "m1", tags="<b>", properties={"x": "<script>"}, reason=HOSTILE)
    message = received(under_test, message_id="m2", tags="<b>")
    send_back(under_test, message, reason=HOSTILE)
    properties = b"UNIQ_KEY\x01\xff\xed\xa0\x80\x02TAGS\x01\xfe"
    broken = new_record("x", dlq_topic(GROUP), properties=properties)
    under_test.store.append([broken])
    under_test.sync()

    async def scenario(server: Served, _: object) -> None:
        letters = server.service[DeadLetterCalls]
        life = await letters.history(HistoryQuery("m2"))
        answers: list[tuple[Row[Any, Any], Any]] = [
            (LIST_DEAD_LETTER_GROUPS, await letters.dead_groups()),
            (
                LIST_DEAD_LETTERS,
                await letters.dead(DeadLettersQuery(GROUP)),
            ),
            (LIST_RETRIES, await letters.retries(DeadLettersQuery(GROUP))),
            (GET_HISTORY, life),
            (
                PURGE_DEAD_LETTERS,
                await letters.purge(PurgeRequest(GROUP)),
            ),
        ]
        for rpc, answer in answers:
            assert rpc_of(rpc).decode_response(rpc_of(rpc).encode_response(answer)) == answer

    served(under_test, scenario)
    under_test.store.release()
