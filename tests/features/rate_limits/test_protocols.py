"""One limit for the members of a group, whichever protocol each of them speaks."""

from __future__ import annotations

import json

from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.kernel.requests.topics import Queue
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.requests.groups import UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
from rmqlite.protocols.remoting.bytes.requests.messages import PULL_MESSAGE, PullMessage
from rmqlite.protocols.remoting.bytes.requests.pop import POP_MESSAGE, PopMessage
from rmqlite.protocols.remoting.requests.messages import COMMITS, HAS_SUBSCRIPTION, MAY_WAIT
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import turns_until
from tests.support.messages import GROUP, TOPIC, create_topic, plain
from tests.support.rate_limits import HandTime, begin_limits, limit
from tests.support.remoting import LoopClient, ProtocolUnderTest, records_of, served_protocol
from tests.support.rocketmq_v2_client import GROUP as V2_GROUP
from tests.support.rocketmq_v2_client import V2, message, served_v2

FOUND, NO_NEW_MESSAGE, NO_MESSAGE = 0, 19, 210
WAIT_MS = 30_000


def pull_of(client: LoopClient, offset: int = 0, wait_ms: int = WAIT_MS) -> Command:
    flags = HAS_SUBSCRIPTION | COMMITS | (MAY_WAIT if wait_ms else 0)
    asked = PullMessage(GROUP, TOPIC, 0, offset, 32, flags, offset, wait_ms, 0, "*")
    return client.request(PULL_MESSAGE, asked)


def pop_of(client: LoopClient, wait_ms: int = WAIT_MS) -> Command:
    asked = PopMessage(GROUP, TOPIC, -1, 32, 60_000, wait_ms, exp_type="TAG", exp="*")
    return client.request(POP_MESSAGE, asked)


def texts(answer: Command) -> str:
    return b"".join([each.body for each in records_of(answer.body)]).decode()


def begin(protocol: ProtocolUnderTest, under_test: BrokerUnderTest, per_second: float) -> HandTime:
    time = begin_limits(under_test.broker, protocol.server.service._pulls)
    limit(under_test.broker, per_second)
    return time


async def until_parked(protocol: ProtocolUnderTest, count: int) -> None:
    await turns_until(lambda: protocol.server.service.parked == count)


def test_a_suspended_pull_of_rocketmq_is_answered_when_there_is_a_token(
    under_test: BrokerUnderTest,
) -> None:
    """It waits at the broker, so that its client does not ask again and again."""
    under_test.send(*[plain(each) for each in "abc"])

    async def scenario(protocol: ProtocolUnderTest) -> None:
        time = begin(protocol, under_test, 2)
        async with protocol.client() as client:
            client.send(asked := pull_of(client))
            await until_parked(protocol, 1)
            time.forward(0.5)
            answer = await client.answer(asked.opaque)
            assert (answer.code, texts(answer)) == (FOUND, "a")
            assert answer.ext["nextBeginOffset"] == "1"

    served_protocol(under_test, scenario)


def test_a_pull_that_got_no_token_does_not_move_its_consumer(under_test: BrokerUnderTest) -> None:
    """Java's consumer goes on at nextBeginOffset of an empty answer, too, and commits it."""
    under_test.send(*[plain(each) for each in "abc"])

    async def scenario(protocol: ProtocolUnderTest) -> None:
        begin(protocol, under_test, 2)
        async with protocol.client() as client:
            for wait_ms in (0, 10):
                client.send(asked := pull_of(client, 1, wait_ms))
                answer = await client.answer(asked.opaque)
                assert (answer.code, answer.body) == (NO_NEW_MESSAGE, b"")
                places = [answer.ext[f"{name}Offset"] for name in ("nextBegin", "min", "max")]
                assert places == ["1", "0", "3"]
            assert under_test.broker.offsets.of(GROUP) == {Queue(TOPIC, 0): 1}

    served_protocol(under_test, scenario)


def test_pulls_and_pops_of_rocketmq_wait_in_one_line(under_test: BrokerUnderTest) -> None:
    """Those that come first are served first, and one that has to wait no longer says so."""
    create_topic(under_test, TOPIC, 1)
    under_test.send(*[plain(each) for each in "abc"])

    async def scenario(protocol: ProtocolUnderTest) -> None:
        time = begin(protocol, under_test, 1)
        async with protocol.client() as popper, protocol.client() as puller:
            popper.send(popped := pop_of(popper))
            await until_parked(protocol, 1)
            puller.send(pulled := pull_of(puller))
            await until_parked(protocol, 2)
            time.forward(1)
            assert texts(await popper.answer(popped.opaque)) == "a"
            assert protocol.server.service.parked == 1
            time.forward(1)
            assert texts(await puller.answer(pulled.opaque)) == "a"
            popper.send(late := pop_of(popper, 10))
            assert (await popper.answer(late.opaque)).code == NO_MESSAGE

    served_protocol(under_test, scenario)


def test_receives_of_rocketmq_5_take_tokens(under_test: BrokerUnderTest) -> None:
    """A push consumer, whose leases are renewed, and a simple one."""

    async def scenario(v2: V2) -> None:
        time = begin_limits(under_test.broker, v2.server.service._pulls)
        limit(under_test.broker, 3, group=V2_GROUP)
        await v2.sent(*[message(each) for each in "abc"])
        assert await v2.received() == []
        time.forward(0.67)
        assert [each.body for each in await v2.received()] == [b"a", b"b"]
        assert await v2.received(auto_renew=True, invisible_s=None) == []
        time.forward(0.34)
        (found,) = await v2.received(auto_renew=True, invisible_s=None)
        assert found.body == b"c"

    served_v2(under_test, scenario)


def test_mqadmin_keeps_the_limit_of_a_group(under_test: BrokerUnderTest) -> None:
    """updateSubGroup sends all settings that RocketMQ knows; this one is not among them."""
    limit(under_test.broker, 0.5)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            body = json.dumps({"groupName": GROUP, "retryMaxTimes": 3}).encode()
            answer = await client.ask(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
            assert answer.code == 0

    served_protocol(under_test, scenario)
    assert under_test.broker.groups.existing(GROUP) == GroupInfo(GROUP, 3, max_per_second=0.5)
