"""The administrator's client forwards; each method is one call."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmqlite.client import AdminClient, Credentials
from rmqlite.client.asyncio import AsyncAdmin
from rmqlite.features.finding.requests import (
    FoundMessage,
    FoundMessages,
    MessageQuery,
    MessageState,
)
from rmqlite.features.operating.requests import GroupStatus, QueueProgress
from rmqlite.kernel.requests.broker import BrokerStatus, LevelStatus
from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.kernel.requests.topics import Queue, TopicInfo
from rmqlite.kernel.words.errors import BrokerUnreachable, InvalidValue
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.native.bytes.notes import read_note
from rmqlite.protocols.shared.signing import ACCESS_KEY
from tests.support.fake_broker import FakeBroker


def test_every_question_gets_the_brokers_answer(broker: FakeBroker) -> None:
    """Nothing is lost or renamed between the broker's values and the caller's."""
    group = GroupStatus(GroupInfo("g"), (), (QueueProgress(Queue("t", 0), 0, 9, 4, "me"),))
    level = LevelStatus(1, "1s", 2, 3, 4, 5, 6, 7)
    status = BrokerStatus("1", "b", 1, 2, 3, 4, 5, 6, 7, 8, 9, (level,))
    broker.answers = {
        "ListTopics": lambda _: (TopicInfo("t", 4, 4),),
        "CreateTopic": lambda topic: topic,
        "ListGroups": lambda _: (GroupInfo("g"),),
        "DescribeGroup": lambda _: group,
        "GetBrokerStatus": lambda _: status,
    }
    broker.add_queues("t", 2)
    with AdminClient(broker.endpoint) as admin:
        assert admin.list_topics() == (TopicInfo("t", 4, 4),)
        assert admin.create_topic("n", queues=2, perm=4) == TopicInfo("n", 2, 2, 4)
        assert admin.list_groups() == (GroupInfo("g"),)
        assert admin.group("g") == group
        assert admin.broker_status() == status
        assert [r.queue for r in admin.ranges("t")] == [Queue("t", 0), Queue("t", 1)]
        assert admin.route("t").message_delay_level == broker.levels


def test_messages_are_asked_for_and_given_as_they_are(broker: FakeBroker) -> None:
    """The query arrives whole, none included; so do state, due time and the message itself."""
    stored = broker.add(Message("t", b"\xff\x00", keys="k"))
    found = FoundMessage(stored, MessageState.SCHEDULED, 1_700_000_000_000, True)
    queries = (MessageQuery("t", "k"), MessageQuery("t", "ID", True, 1, 0, 7, True))
    broker.answers = {
        "QueryMessages": lambda query: FoundMessages((found,), query == queries[1]),
        "GetMessage": lambda _: found,
    }
    with AdminClient(broker.endpoint) as admin:
        assert admin.find_messages(queries[0]) == FoundMessages((found,))
        assert admin.find_messages(queries[1]) == FoundMessages((found,), True)
        assert admin.message_at("00FF") == found
    assert broker.asked["QueryMessages"] == list(queries)
    assert broker.asked["GetMessage"] == ["00FF"]


def test_a_broker_that_is_down_is_reported_at_once(tmp_path: Path) -> None:
    """A person waits at the other end."""
    with (
        AdminClient(f"unix:{tmp_path / 'nobody.sock'}", timeout_ms=60_000) as admin,
        pytest.raises(BrokerUnreachable),
    ):
        admin.list_topics()


def test_a_note_goes_with_every_call(broker: FakeBroker) -> None:
    """Beside a signature, too; without one there is no metadata at all."""
    note = "INC-12: für Ämter"
    broker.answers = {"ListTopics": lambda _: ()}

    async def program() -> None:
        async with AsyncAdmin(broker.endpoint, note=note) as admin:
            await admin.list_topics()

    with AdminClient(broker.endpoint, note=note) as admin:
        admin.list_topics()
    with AdminClient(broker.endpoint, note=note, credentials=Credentials("me", "secret")) as admin:
        admin.list_topics()
    asyncio.run(program())
    with AdminClient(broker.endpoint) as admin:
        admin.list_topics()
    assert [read_note(metadata) for _, metadata in broker.metadata] == [note] * 3 + [""]
    signed = [ACCESS_KEY in dict(metadata) for _, metadata in broker.metadata]
    assert signed == [False, True, False, False]


@pytest.mark.parametrize("note", ["two\nlines", "x" * 501, "\ud800"])
def test_a_note_is_one_line(tmp_path: Path, note: str) -> None:
    """Before anything is asked."""
    with pytest.raises(InvalidValue, match="note must be one line of at most 500 characters"):
        AdminClient(f"unix:{tmp_path / 'nobody'}", note=note)
