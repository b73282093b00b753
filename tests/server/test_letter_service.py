"""Failed messages over the wire's values: long looks leave turns to others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rmqlite.names import dlq_topic, retry_topic
from rmqlite.requests.letters import LetterFilter, LettersQuery, LifeQuery, PurgeRequest
from rmqlite.server.letter_service import LetterService
from rmqlite.wire import rpcs
from tests.support.brokers import BrokerUnderTest
from tests.support.letters import dead
from tests.support.messages import GROUP, received, send_back
from tests.support.stores import new_record

CONTEXT: Any = None
HOSTILE = "\x1b]0;owned\x07<script>alert(1)</script>\u202e\x00\ufeff"


def test_long_looks_leave_turns_to_others(tmp_path: Path) -> None:
    """Thousands of letters are looked at between two sends, not before the next one."""
    under_test = BrokerUnderTest(tmp_path, mapped_file_size_commit_log=1 << 23)
    for topic in (dlq_topic(GROUP), retry_topic(GROUP), "orders"):
        record = new_record("letter", topic, properties={"UNIQ_KEY": "same", "TAGS": "a"})
        for _ in range(4):
            under_test.store.append([record] * 1_000)
    under_test.sync()
    wanted = LetterFilter(tag="none such")

    async def main() -> list[int]:
        service = LetterService(under_test.broker)
        turns = 0
        counted = []

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await asyncio.sleep(0)
        for call in (
            service.list_dead_letter_groups(None, CONTEXT),
            service.list_dead_letters(LettersQuery(GROUP, wanted), CONTEXT),
            service.list_retries(LettersQuery(GROUP, wanted), CONTEXT),
            service.get_life(LifeQuery("same"), CONTEXT),
        ):
            before = turns
            await call
            counted.append(turns - before)
        counting.cancel()
        return counted

    assert min(asyncio.run(main())) >= 200
    under_test.store.release()


def test_whatever_a_letter_holds_goes_over_the_wire(tmp_path: Path) -> None:
    """Escape codes, markup, and bytes that are no text: the wire takes only what is one."""
    under_test = BrokerUnderTest(tmp_path)
    dead(under_test, "m1", tags="<b>", properties={"x": "<script>"}, reason=HOSTILE)
    message = received(under_test, message_id="m2", tags="<b>")
    send_back(under_test, message, reason=HOSTILE)
    broken = new_record("x", dlq_topic(GROUP), properties={"UNIQ_KEY": "??", "TAGS": "!!"})
    properties = broken.properties.replace(b"??", b"\xff\xed\xa0\x80").replace(b"!!", b"\xfe")
    under_test.store.append([broken._replace(properties=properties)])
    under_test.sync()

    async def main() -> list[Any]:
        service = LetterService(under_test.broker)
        life = await service.get_life(LifeQuery("m2"), CONTEXT)
        return [
            (rpcs.LIST_DEAD_LETTER_GROUPS, await service.list_dead_letter_groups(None, CONTEXT)),
            (
                rpcs.LIST_DEAD_LETTERS,
                await service.list_dead_letters(LettersQuery(GROUP), CONTEXT),
            ),
            (rpcs.LIST_RETRIES, await service.list_retries(LettersQuery(GROUP), CONTEXT)),
            (rpcs.GET_LIFE, life),
            (
                rpcs.PURGE_DEAD_LETTERS,
                await service.purge_dead_letters(PurgeRequest(GROUP), CONTEXT),
            ),
        ]

    for rpc, answer in asyncio.run(main()):
        assert rpc.decode_response(rpc.encode_response(answer)) == answer
    under_test.store.release()


def test_every_call_is_in_the_table(tmp_path: Path) -> None:
    """One that is not would be answered as unknown."""
    under_test = BrokerUnderTest(tmp_path)
    answered = set(LetterService(under_test.broker).methods())
    assert answered == {
        rpcs.LIST_DEAD_LETTER_GROUPS,
        rpcs.LIST_DEAD_LETTERS,
        rpcs.PURGE_DEAD_LETTERS,
        rpcs.LIST_RETRIES,
        rpcs.GET_LIFE,
    }
    under_test.store.release()
