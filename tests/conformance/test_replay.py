"""Every captured exchange of real clients with a real RocketMQ 4.9.8 or 5.3.2, answered here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from rmqlite.features.accounts.accounts import PERMS, Role
from rmqlite.kernel.requests.topics import TopicInfo
from tests.conformance.captures import Step, before, steps_of
from tests.conformance.replay import Replay
from tests.support.accounts import account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.clock import FakeClock
from tests.support.exchanges import ROCKETMQ_5, Row, command_of, probes, scenarios
from tests.support.remoting import ProtocolUnderTest, served_protocol

CAPTURED_MS: Final = 1_795_300_000_000
"""A little before the captures were taken: messages are looked for by time."""
ELSEWHERE: Final = {
    "broker-start": "it has the name of the broker here; test_registering.py has others",
}
NOT_YET: Final[dict[int, str]] = {}
"""Codes that are still refused with 3, and why."""


ONLY_5: Final = frozenset(
    {
        *("IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE", "transactionId"),
        *("groupSysFlag", "topicSysFlag", "MSG_REGION", "TRACE_ON"),
        *("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"),
    }
)
"""Ext fields and properties that RocketMQ 5 adds; its client needs none of them."""
ONLY_THERE: Final = {
    # A half message is no timer yet; in RocketMQ its handle names the topic of all halves.
    "transaction-timer": frozenset({"recallHandle"}),
}
"""More of them, by scenario."""
MEANT: Final = {
    "recall": {
        998: 604,  # the second recall: it is cancelled already
        1_011: 604,  # an id that was never sent
    },
    "recall-disabled": {538: 0},  # recalls are always on
    "congested": dict.fromkeys((1_858, 2_687, 3_099, 3_509), 0),  # an instant has no limit
}
"""Our own codes, by scenario and the time of the answer."""
SETTINGS: Final = {"wheel-off": {"timer_wheel_enable": False}}
MAX_DELAY_S: Final = 3 * 86_400
"""As in the broker of RocketMQ 5; the captures ask for more."""


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
    """All is as in RocketMQ, but for what is meant."""
    only_there = ONLY_5 | ONLY_THERE.get(scenario, frozenset())
    settings = {"timer_max_delay_s": MAX_DELAY_S, **SETTINGS.get(scenario, {})}
    rows = scenarios(ROCKETMQ_5)[scenario]
    replayed(scenario, rows, tmp_path, only_there, MEANT.get(scenario), **settings)


@pytest.mark.parametrize("probe", probes(ROCKETMQ_5), ids=lambda probe: str(probe["probe"]))
def test_a_request_of_timers_made_by_hand_gets_the_same_answer(
    probe: Row, under_test: BrokerUnderTest
) -> None:
    """A message that was never sent is not recalled: RocketMQ says that it is."""
    there = command_of(bytes.fromhex(probe["answer"]["frame_hex"]))
    under_test.broker.topics.create(TopicInfo("T_recall", 4, 4))

    async def run(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            client.write(bytes.fromhex(probe["sent_hex"]))
            found = await client.answer(there.opaque)
            is_recall = "msgId" in there.ext
            assert found.code == (604 if is_recall else there.code)
            assert found.ext.keys() == there.ext.keys() - {"msgId"}
            assert len(found.body) == len(there.body) or b"timingCount" in found.body

    served_protocol(under_test, run)


def began_ms(steps: list[Step]) -> int:
    """The time at which a scenario began; that of its first send, or about that."""
    return next(
        (
            int(step.command.ext["g"]) - int(step.row["t_ms"])
            for step in steps
            if step.command.code == 310
        ),
        CAPTURED_MS,
    )


def replayed(
    scenario: str,
    rows: list[Row],
    tmp_path: Path,
    only_there: frozenset[str],
    meant: Mapping[int, int] | None = None,
    **settings: Any,
) -> None:
    """Replay a scenario; what differs fails."""
    steps = steps_of(rows)
    needed = before(steps)
    under_test = BrokerUnderTest(
        tmp_path / "store",
        clock=FakeClock(began_ms(steps) if settings else CAPTURED_MS),
        auto_create_topic=needed.creates_topics,
        flush_disk_type="ASYNC_FLUSH",
        **settings,
    )
    replays: list[Replay] = []

    async def run(protocol: ProtocolUnderTest) -> None:
        replay = Replay(protocol, under_test, frozenset(NOT_YET), only_there, meant or {})
        replays.append(replay)
        replay.prepare(needed)
        if scenario == "acl":
            protocol.server.access.accounts = ACCOUNTS
        await replay.run(steps, needed)

    served_protocol(under_test, run)
    under_test.store.release()
    (replay,) = replays
    if scenario in SCENARIOS_NOT_YET:
        assert replay.wrong, "take it out of SCENARIOS_NOT_YET"
        return
    assert not replay.wrong, "\n".join(replay.wrong)
    assert not replay.answered_after_all, "take it out of NOT_YET"
