"""Failed messages of a broker under test: made, listed, purged, and the lives of them."""

from __future__ import annotations

from typing import Any

from rmqlite.features.dead_letters.history import Histories
from rmqlite.features.dead_letters.listing import DeadLetters
from rmqlite.features.dead_letters.purge_markers import PurgeMarkers
from rmqlite.features.dead_letters.purging import Purging
from rmqlite.features.dead_letters.requests import (
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    DeadLetterPage,
    DeadLettersQuery,
    History,
    HistoryQuery,
    Purged,
    PurgeRequest,
)
from rmqlite.features.dead_letters.retries import Retries
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.words.message import StoredMessage
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import GROUP, received, send_back
from tests.support.steps import done


def dead(
    broker: BrokerUnderTest,
    message_id: str = "m",
    *,
    reason: str = "",
    group: str = GROUP,
    **more: Any,
) -> StoredMessage:
    """A message that a group has given up at once; as it was received."""
    message = received(broker, message_id=message_id, **{"body": message_id.encode(), **more})
    send_back(broker, message, group=group, delay_level=-1, reason=reason)
    return message


def groups(broker: BrokerUnderTest) -> dict[str, DeadLetterGroup]:
    found = done(broker.broker[DeadLetters].groups())
    assert [each.group for each in found] == sorted(each.group for each in found)
    return {each.group: each for each in found}


def reasons(broker: BrokerUnderTest, group: str = GROUP) -> dict[str, int]:
    return {each.reason: each.count for each in groups(broker)[group].reasons}


def dead_pages(
    broker: BrokerUnderTest, wanted: DeadLetterFilter | None = None, group: str = GROUP, **more: Any
) -> list[DeadLetterPage]:
    """All pages, one after the other."""
    found: list[DeadLetterPage] = []
    cursor = ""
    while not found or cursor:
        query = DeadLettersQuery(group, wanted or DeadLetterFilter(), cursor=cursor, **more)
        found.append(done(broker.broker[DeadLetters].pages(query)))
        cursor = found[-1].cursor
    return found


def dead_letters(
    broker: BrokerUnderTest, wanted: DeadLetterFilter | None = None, group: str = GROUP, **more: Any
) -> list[DeadLetter]:
    return [each for page in dead_pages(broker, wanted, group, **more) for each in page.letters]


def dead_ids(
    broker: BrokerUnderTest, wanted: DeadLetterFilter | None = None, group: str = GROUP, **more: Any
) -> list[str]:
    return [each.message_id for each in dead_letters(broker, wanted, group, **more)]


def retry_pages(
    broker: BrokerUnderTest, wanted: DeadLetterFilter | None = None, group: str = GROUP, **more: Any
) -> list[DeadLetterPage]:
    found: list[DeadLetterPage] = []
    cursor = ""
    while not found or cursor:
        query = DeadLettersQuery(group, wanted or DeadLetterFilter(), cursor=cursor, **more)
        found.append(done(broker.broker[Retries].pages(query)))
        cursor = found[-1].cursor
    return found


def retries(
    broker: BrokerUnderTest, wanted: DeadLetterFilter | None = None, group: str = GROUP, **more: Any
) -> list[DeadLetter]:
    return [each for page in retry_pages(broker, wanted, group, **more) for each in page.letters]


def purge(broker: BrokerUnderTest, group: str = GROUP, **how: Any) -> Purged:
    return done(broker.broker[Purging].purge(PurgeRequest(group, **how)))


def set_marker(broker: BrokerUnderTest, queue_offset: int) -> None:
    """Hide the letters of the first queue before this one, and no others."""
    broker.broker[PurgeMarkers].set(GROUP, {0: CompletedOffsets([(0, queue_offset)])})


def life(broker: BrokerUnderTest, message_id: str) -> History:
    return done(broker.broker[Histories].history(HistoryQuery(message_id)))


def kinds(broker: BrokerUnderTest, message_id: str) -> list[str]:
    """Of one life; every id of it tells the same."""
    told = life(broker, message_id)
    for hop in told.events:
        for other in (hop.message_id, hop.offset_message_id):
            assert life(broker, other) == told
    return [hop.kind.name.lower() for hop in told.events]
