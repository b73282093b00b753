"""Every captured exchange of real clients with a real RocketMQ 4.9.8 or 5.3.2, answered here."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from rmqlite.access.accounts import PERMS, Role
from tests.conformance.captures import before, steps_of
from tests.conformance.replay import Replay
from tests.support.accounts import account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.clock import FakeClock
from tests.support.exchanges import ROCKETMQ_5, Row, scenarios
from tests.support.remoting import FaceUnderTest, served_face

CAPTURED_MS: Final = 1_795_300_000_000
"""A little before the captures were taken: messages are looked for by time."""
ELSEWHERE: Final = {
    "broker-start": "no other broker registers here",
}
NOT_YET: Final[dict[int, str]] = {}
"""Codes that are still refused with 3, and why."""


ONLY_5: Final = frozenset(
    {
        *("IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE", "transactionId"),
        *("groupSysFlag", "topicSysFlag", "MSG_REGION", "TRACE_ON"),
    }
)
"""Ext fields and properties that RocketMQ 5 adds; its client needs none of them."""


ACCOUNTS: Final = accounts(
    account("rocketmqadm", secret="12345678", role=Role.ADMIN),
    account(
        "RocketMQ",
        secret="12345678",
        default_group_perm=PERMS["SUB"],
        topic_perms={"topicB": PERMS["PUB|SUB"], "topicC": PERMS["SUB"]},
    ),
)
"""Those of the captured broker."""
SCENARIOS_NOT_YET: Final[dict[str, str]] = {}
"""Scenarios that still differ, and why."""


@pytest.mark.parametrize("scenario", sorted(scenarios().keys() - ELSEWHERE.keys()))
def test_a_captured_scenario_gets_the_same_answers(scenario: str, tmp_path: Path) -> None:
    """Codes, ext fields, body shapes, records; what may differ stands in replay.py."""
    replayed(scenario, scenarios()[scenario], tmp_path, frozenset())


@pytest.mark.parametrize("scenario", sorted(scenarios(ROCKETMQ_5)))
def test_the_client_of_rocketmq_5_gets_the_same_answers_or_a_reason(
    scenario: str, tmp_path: Path
) -> None:
    """Timers, recall and POP are refused in words; all else is as in RocketMQ."""
    replayed(scenario, scenarios(ROCKETMQ_5)[scenario], tmp_path, ONLY_5)


def replayed(scenario: str, rows: list[Row], tmp_path: Path, only_there: frozenset[str]) -> None:
    """Replay a scenario; what differs fails."""
    steps = steps_of(rows)
    needed = before(steps)
    under_test = BrokerUnderTest(
        tmp_path / "store",
        clock=FakeClock(CAPTURED_MS),
        auto_create_topic=needed.creates_topics,
        flush_disk_type="ASYNC_FLUSH",
    )
    replays: list[Replay] = []

    async def run(face: FaceUnderTest) -> None:
        replay = Replay(face, under_test, frozenset(NOT_YET), only_there)
        replays.append(replay)
        replay.prepare(needed)
        if scenario == "acl":
            face.server.access.accounts = ACCOUNTS
        await replay.run(steps, needed)

    served_face(under_test, run)
    under_test.store.release()
    (replay,) = replays
    if scenario in SCENARIOS_NOT_YET:
        assert replay.wrong, "take it out of SCENARIOS_NOT_YET"
        return
    assert not replay.wrong, "\n".join(replay.wrong)
    assert not replay.answered_after_all, "take it out of NOT_YET"
