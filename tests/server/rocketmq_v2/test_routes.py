"""QueryRoute and QueryAssignment: where a client sends to and receives from."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqlite.features.accounts.accounts import DENY, PERMS
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import (
    QUERY_ASSIGNMENT,
    QUERY_ROUTE,
    SEND_MESSAGE,
    definition,
    service,
)
from tests.server.rocketmq_v2.signing import signed
from tests.support.accounts import account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.rocketmq_v2_client import (
    ENDPOINTS,
    GROUP,
    TOPIC,
    V2,
    code_of,
    message,
    named,
    served_v2,
)


def route(
    topic: str = TOPIC, endpoints: definition.Endpoints = ENDPOINTS
) -> service.QueryRouteRequest:
    return service.QueryRouteRequest(topic=named(topic), endpoints=endpoints)


def assignment(topic: str = TOPIC) -> service.QueryAssignmentRequest:
    return service.QueryAssignmentRequest(
        topic=named(topic), group=named(GROUP), endpoints=ENDPOINTS
    )


def test_queues_begin_at_0_and_accept_every_type(under_test: BrokerUnderTest) -> None:
    """Node knows no other queue than 0; both clients refuse a message whose type is not listed."""

    async def scenario(v2: V2) -> None:
        answer = await v2.ask(QUERY_ROUTE, route())
        assert code_of(answer) is Code.OK
        queues = answer.message_queues
        assert [queue.id for queue in queues] == list(range(len(queues)))
        for queue in queues:
            assert queue.permission == definition.READ_WRITE
            assert queue.topic.name == TOPIC
            assert queue.broker.id == 0
            assert queue.broker.name == under_test.config.broker_name
            assert queue.broker.endpoints == ENDPOINTS
            assert list(queue.accept_message_types) == [1, 2, 3, 4]

    served_v2(under_test, scenario)


def test_delay_is_left_out_where_there_are_no_timers(tmp_path: Path) -> None:
    """A client then says so itself, before it sends."""
    under_test = BrokerUnderTest(tmp_path / "store", timer_wheel_enable=False)

    async def scenario(v2: V2) -> None:
        answer = await v2.ask(QUERY_ROUTE, route())
        assert list(answer.message_queues[0].accept_message_types) == [1, 2, 4]

    served_v2(under_test, scenario)
    under_test.store.release()


def test_a_topic_is_made_on_demand_only_if_the_broker_does_that(tmp_path: Path) -> None:
    """As a send would make it."""
    under_test = BrokerUnderTest(tmp_path / "store", auto_create_topic=False)

    async def scenario(v2: V2) -> None:
        assert await v2.code(QUERY_ROUTE, route()) is Code.TOPIC_NOT_FOUND
        assert await v2.code(QUERY_ASSIGNMENT, assignment()) is Code.TOPIC_NOT_FOUND
        sending = service.SendMessageRequest(messages=[message()])
        assert await v2.code(SEND_MESSAGE, sending) is Code.TOPIC_NOT_FOUND

    served_v2(under_test, scenario)
    assert under_test.broker.topics.get(TOPIC) is None
    under_test.store.release()


@pytest.mark.parametrize(
    ("host", "scheme"),
    [
        ("10.0.0.9", definition.IPv4),
        ("::1", definition.IPv6),
        ("broker.example", definition.DOMAIN_NAME),
    ],
)
def test_endpoints_without_a_scheme_get_one(
    under_test: BrokerUnderTest, host: str, scheme: definition.AddressScheme
) -> None:
    """Python cannot open a channel without it."""
    asked = definition.Endpoints(addresses=[definition.Address(host=host, port=7)])

    async def scenario(v2: V2) -> None:
        answer = await v2.ask(QUERY_ROUTE, route(endpoints=asked))
        found = answer.message_queues[0].broker.endpoints
        assert found.scheme == scheme
        assert found.addresses == asked.addresses

    served_v2(under_test, scenario)


def test_who_names_no_endpoints_gets_the_brokers_own(under_test: BrokerUnderTest) -> None:
    """Better than none: a client fails without."""

    async def scenario(v2: V2) -> None:
        answer = await v2.ask(QUERY_ROUTE, route(endpoints=definition.Endpoints()))
        (address,) = answer.message_queues[0].broker.endpoints.addresses
        assert (address.host, address.port) == (under_test.config.broker_ip, 8_081)

    served_v2(under_test, scenario)


def test_endpoints_are_bounded(under_test: BrokerUnderTest) -> None:
    """The answer repeats them for each queue."""
    hosts = [definition.Address(host="h" * 100, port=7) for _ in range(11)]

    async def scenario(v2: V2) -> None:
        asked = definition.Endpoints(scheme=definition.DOMAIN_NAME, addresses=hosts)
        assert await v2.code(QUERY_ROUTE, route(endpoints=asked)) is Code.ILLEGAL_ACCESS_POINT

    served_v2(under_test, scenario)


def test_a_queue_has_the_permissions_of_its_topic(under_test: BrokerUnderTest) -> None:
    """Of a topic with more read queues than write queues some can only be read."""

    async def scenario(v2: V2) -> None:
        under_test.broker.topics.create(TopicInfo(TOPIC, 2, 1))
        under_test.broker.topics.create(TopicInfo("read-only", 1, 1, 4))
        under_test.broker.topics.create(TopicInfo("write-only", 1, 1, 2))
        answer = await v2.ask(QUERY_ROUTE, route())
        permissions = [queue.permission for queue in answer.message_queues]
        assert permissions == [definition.READ_WRITE, definition.READ]
        for topic, permission in (
            ("read-only", definition.READ),
            ("write-only", definition.WRITE),
        ):
            answer = await v2.ask(QUERY_ROUTE, route(topic))
            assert answer.message_queues[0].permission == permission
        assert await v2.code(QUERY_ASSIGNMENT, assignment("write-only")) is Code.FORBIDDEN

    served_v2(under_test, scenario)


def test_an_assignment_is_of_all_queues(under_test: BrokerUnderTest) -> None:
    """Every consumer of a group gets the same one: leases keep them apart."""

    async def scenario(v2: V2) -> None:
        answer = await v2.ask(QUERY_ASSIGNMENT, assignment())
        assert code_of(answer) is Code.OK
        (found,) = answer.assignments
        assert found.message_queue.id == -1
        assert found.message_queue.broker.endpoints == ENDPOINTS

    served_v2(under_test, scenario)


def test_only_who_may_send_makes_a_topic(under_test: BrokerUnderTest) -> None:
    """Everybody else gets the route of a topic that is there: a client asks for it first."""
    reader = account("the-reader", topic_perms={TOPIC: PERMS["SUB"]}, default_topic_perm=DENY)
    writer = account("the-writer", topic_perms={TOPIC: PERMS["PUB"]}, default_topic_perm=DENY)

    async def scenario(v2: V2) -> None:
        v2.server.access.accounts = accounts(reader, writer)
        reading = v2.other("reading", signed("the-reader"))
        assert await reading.code(QUERY_ROUTE, route()) is Code.TOPIC_NOT_FOUND
        writing = v2.other("writing", signed("the-writer"))
        assert await writing.code(QUERY_ROUTE, route()) is Code.OK
        assert await reading.code(QUERY_ROUTE, route()) is Code.OK

    served_v2(under_test, scenario)
