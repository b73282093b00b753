"""What mqadmin asks the broker: topics, groups, clients, offsets, figures, settings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqlite.features.figures.traffic import Traffic
from rmqlite.kernel.requests.groups import HeartbeatRequest, Subscription
from rmqlite.kernel.words.levels import DEFAULT_LEVELS
from rmqlite.protocols.remoting import calls
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.requests.broker import (
    GET_ALL_DELAY_OFFSET,
    GET_BROKER_CONFIG,
    GET_BROKER_RUNTIME_INFO,
    UPDATE_BROKER_CONFIG,
    VIEW_BROKER_STATS_DATA,
    BrokerStats,
    DelayOffsets,
    KvTable,
    StatsQuery,
    read_settings,
    write_settings,
)
from rmqlite.protocols.remoting.bytes.requests.clients import (
    GET_ALL_PRODUCER_INFO,
    GET_CONSUMER_CONNECTION_LIST,
    GET_PRODUCER_CONNECTION_LIST,
    HEART_BEAT,
    ConsumerConnections,
    ConsumerData,
    Heartbeat,
    OfProducerGroup,
    ProducerConnections,
    ProducerData,
    ProducersBody,
)
from rmqlite.protocols.remoting.bytes.requests.clients import SubscriptionBody as Wanted
from rmqlite.protocols.remoting.bytes.requests.groups import (
    CLONE_GROUP_OFFSET,
    DELETE_SUBSCRIPTIONGROUP,
    GET_ALL_CONSUMER_OFFSET,
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    GET_BROKER_CONSUME_STATS,
    GET_CONSUME_STATS,
    GET_MAX_OFFSET,
    QUERY_CONSUME_TIME_SPAN,
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    UPDATE_CONSUMER_OFFSET,
    BrokerConsumeStats,
    BrokerConsumeStatsQuery,
    ConsumeOffset,
    ConsumeStats,
    ConsumeStatsQuery,
    GroupAndTopic,
    GroupDelete,
    GroupOffsets,
    MessageQueue,
    OffsetCommit,
    OffsetsCopy,
    OfGroup,
    QueueOfTopic,
    SubscriptionGroup,
    SubscriptionGroups,
    TimeSpans,
)
from rmqlite.protocols.remoting.bytes.requests.messages import PULL_MESSAGE, PullMessage
from rmqlite.protocols.remoting.bytes.requests.topics import (
    CLEAN_EXPIRED_CONSUMEQUEUE,
    CLEAN_UNUSED_TOPIC,
    DELETE_EXPIRED_COMMITLOG,
    DELETE_TOPIC_IN_BROKER,
    GET_ALL_TOPIC_CONFIG,
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    GET_TOPIC_STATS_INFO,
    QUERY_CONSUME_QUEUE,
    QUERY_TOPIC_CONSUME_BY_WHO,
    UPDATE_AND_CREATE_TOPIC,
    GroupList,
    OfTopic,
    QueueQuery,
    QueueRangeBody,
    QueueViewBody,
    TopicChange,
    TopicConfig,
    TopicConfigs,
    TopicList,
    TopicStats,
)
from rmqlite.protocols.remoting.bytes.shapes import read_body, write_body
from tests.support.brokers import BrokerUnderTest
from tests.support.exchanges import scenarios
from tests.support.messages import GROUP, TOPIC, bodies, create_topic, delayed, plain
from tests.support.remoting import LoopClient, ProtocolUnderTest, served_protocol


async def join(client: LoopClient, group: str = GROUP, client_id: str = "me") -> None:
    data = ConsumerData(group, subscription_data_set=(Wanted(TOPIC, "TagA"),))
    beat = Heartbeat(client_id, (ProducerData("senders"),), (data,))
    assert (await client.ask(HEART_BEAT, None, beat)).code == 0


def fine(answer: Command) -> bytes:
    assert answer.code == 0, answer
    return answer.body


def test_a_topic_is_made_changed_and_deleted(under_test: BrokerUnderTest) -> None:
    """updateTopic and deleteTopic; a second deletion is no error."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            for queues, order in ((4, False), (2, True)):
                change = TopicChange(TOPIC, queues, queues, 6, order=order, topic_sys_flag=1)
                fine(await client.ask(UPDATE_AND_CREATE_TOPIC, change))
                body = fine(await client.ask(GET_ALL_TOPIC_CONFIG))
                config = read_body(TopicConfigs, body).topic_config_table[TOPIC]
                assert config == TopicConfig(TOPIC, queues, queues, 6, "SINGLE_TAG", 1, order)
            for _ in range(2):
                fine(await client.ask(DELETE_TOPIC_IN_BROKER, OfTopic(TOPIC)))
            body = fine(await client.ask(GET_ALL_TOPIC_CONFIG))
            assert TOPIC not in read_body(TopicConfigs, body).topic_config_table

    served_protocol(under_test, scenario)


@pytest.mark.parametrize(
    ("row", "asked", "named"),
    [
        (UPDATE_AND_CREATE_TOPIC, TopicChange("TBW102", 1, 1, 6), "topic must be"),
        (UPDATE_AND_CREATE_TOPIC, TopicChange(TOPIC, 0, 1, 6), "read_queues must be"),
        (UPDATE_AND_CREATE_TOPIC, TopicChange(TOPIC, 1, 1, 9), "perm must be"),
        (DELETE_TOPIC_IN_BROKER, OfTopic("SCHEDULE_TOPIC_XXXX"), "topic must be"),
        (GET_PRODUCER_CONNECTION_LIST, OfProducerGroup("nobody"), "nobody"),
        (VIEW_BROKER_STATS_DATA, StatsQuery("NOTHING", TOPIC), "NOTHING"),
        (UPDATE_AND_CREATE_TOPIC, {}, "topic"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_name(
    under_test: BrokerUnderTest, row: Any, asked: Any, named: str
) -> None:
    """Code 1, which mqadmin shows with the remark."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            answer = await client.ask(row, asked)
            assert answer.code == 1
            assert named in answer.remark

    served_protocol(under_test, scenario)


def test_queues_and_their_entries_are_listed(under_test: BrokerUnderTest) -> None:
    """topicStatus has one entry for each queue that is written to; queryCq shows raw entries."""
    create_topic(under_test, TOPIC, 2)
    under_test.send(plain("a", tags="TagA"), plain("b"))
    stored_ms = under_test.clock.now_ms()

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            body = fine(await client.ask(GET_TOPIC_STATS_INFO, OfTopic(TOPIC)))
            assert read_body(TopicStats, body).offset_table == {
                MessageQueue(TOPIC, 0, "broker-a"): QueueRangeBody(0, 2, stored_ms),
                MessageQueue(TOPIC, 1, "broker-a"): QueueRangeBody(0, 0, 0),
            }
            assert (await client.ask(GET_TOPIC_STATS_INFO, OfTopic("none"))).code == 17
            await join(client)
            asked = QueueQuery(TOPIC, 0, 0, 10, GROUP)
            view = read_body(QueueViewBody, fine(await client.ask(QUERY_CONSUME_QUEUE, asked)))
            assert (view.min_queue_index, view.max_queue_index) == (0, 2)
            assert [each.tags_code for each in view.queue_data] == [2598919, 0]
            assert view.subscription_data is not None
            assert view.subscription_data.sub_string == "TagA"
            asked = QueueQuery(TOPIC, 0, 1, 10)
            view = read_body(QueueViewBody, fine(await client.ask(QUERY_CONSUME_QUEUE, asked)))
            assert (len(view.queue_data), view.filter_data) == (1, None)
            answer = await client.ask(QUERY_CONSUME_QUEUE, QueueQuery(TOPIC, 7, 0, 1))
            assert answer.code == 1

    served_protocol(under_test, scenario)


def test_a_group_is_made_changed_and_deleted(under_test: BrokerUnderTest) -> None:
    """updateSubGroup and deleteSubGroup; every field that was given comes back."""
    given = SubscriptionGroup(
        GROUP,
        consume_enable=False,
        consume_from_min_enable=False,
        consume_broadcast_enable=False,
        retry_queue_nums=3,
        retry_max_times=5,
        broker_id=1,
        which_broker_when_consume_slowly=2,
        notify_consumer_ids_changed_enable=False,
    )

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            fine(await client.ask(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, given))
            row = GET_ALL_SUBSCRIPTIONGROUP_CONFIG
            table = read_body(SubscriptionGroups, fine(await client.ask(row)))
            assert table.subscription_group_table == {GROUP: given}
            assert table.data_version.counter == 1
            for _ in range(2):
                fine(await client.ask(DELETE_SUBSCRIPTIONGROUP, GroupDelete(GROUP, True)))
            table = read_body(SubscriptionGroups, fine(await client.ask(row)))
            assert table.subscription_group_table == {}

    served_protocol(under_test, scenario)


def test_clients_are_listed_those_of_other_faces_too(under_test: BrokerUnderTest) -> None:
    """mqadmin fails without the three words and the versions."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client, protocol.client() as tool:
            row = GET_CONSUMER_CONNECTION_LIST
            assert (await tool.ask(row, OfGroup(GROUP))).code == 206
            await join(client)
            python = HeartbeatRequest(GROUP, "python", (Subscription("others"),))
            await protocol.server.service.groups.heartbeat(python)
            body = fine(await tool.ask(row, OfGroup(GROUP)))
            found = read_body(ConsumerConnections, body)
            here = "{}:{}".format(*client.address)
            assert {(each.client_id, each.client_addr) for each in found.connection_set} == {
                ("me", here),
                ("python", ""),
            }
            assert set(found.subscription_table) == {TOPIC, "others", f"%RETRY%{GROUP}"}
            assert found.subscription_table[TOPIC].sub_string == "TagA"
            body = fine(await tool.ask(GET_PRODUCER_CONNECTION_LIST, OfProducerGroup("senders")))
            assert read_body(ProducerConnections, body).connection_set[0].client_addr == here
            body = fine(await tool.ask(GET_ALL_PRODUCER_INFO))
            assert read_body(ProducersBody, body).data["senders"][0].remote_ip == f"/{here}"

    served_protocol(under_test, scenario)


def test_progress_of_groups_is_listed(under_test: BrokerUnderTest) -> None:
    """consumerProgress, brokerConsumeStats and the rest, in the shapes of RocketMQ."""
    create_topic(under_test, TOPIC, 1)
    under_test.send(plain("a"), plain("b"), delayed("late", 1))
    stored_ms = under_test.clock.now_ms()
    queue = MessageQueue(TOPIC, 0, "broker-a")

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            empty = await client.ask(GET_CONSUME_STATS, ConsumeStatsQuery(GROUP))
            assert fine(empty) == b'{"consumeTps":0.0,"offsetTable":{}}'
            commit = OffsetCommit(GROUP, TOPIC, 0, 1)
            fine(await client.ask(UPDATE_CONSUMER_OFFSET, commit))
            fine(await client.ask(CLONE_GROUP_OFFSET, OffsetsCopy(GROUP, "copy", TOPIC)))
            for group in (GROUP, "copy"):
                body = fine(await client.ask(GET_CONSUME_STATS, ConsumeStatsQuery(group)))
                table = read_body(ConsumeStats, body).offset_table
                assert table == {queue: ConsumeOffset(2, 1, stored_ms)}
            asked = BrokerConsumeStatsQuery()
            body = fine(await client.ask(GET_BROKER_CONSUME_STATS, asked))
            stats = read_body(BrokerConsumeStats, body)
            assert (stats.total_diff, stats.broker_addr) == (
                2,
                f"127.0.0.1:{protocol.protocol.port}",
            )
            assert [list(each) for each in stats.consume_stats_list] == [["copy"], [GROUP]]
            asked = BrokerConsumeStatsQuery(is_order=True)
            body = fine(await client.ask(GET_BROKER_CONSUME_STATS, asked))
            assert read_body(BrokerConsumeStats, body).total_diff == 0
            body = fine(await client.ask(GET_ALL_CONSUMER_OFFSET))
            expected = {f"{TOPIC}@{GROUP}": {0: 1}, f"{TOPIC}@copy": {0: 1}}
            assert read_body(GroupOffsets, body).offset_table == expected
            body = fine(await client.ask(GET_ALL_DELAY_OFFSET))
            assert read_body(DelayOffsets, body).offset_table == {}
            body = fine(await client.ask(QUERY_CONSUME_TIME_SPAN, GroupAndTopic(TOPIC, GROUP)))
            (span,) = read_body(TimeSpans, body).consume_time_span_set
            assert (span.message_queue, span.consume_time_stamp) == (queue, stored_ms)
            body = fine(await client.ask(QUERY_TOPIC_CONSUME_BY_WHO, OfTopic(TOPIC)))
            assert read_body(GroupList, body).group_list == ("copy", GROUP)

    served_protocol(under_test, scenario)


def test_the_brokers_figures_have_every_key_of_rocketmqs(under_test: BrokerUnderTest) -> None:
    """mqadmin clusterList reads some of them as numbers; others are shown as they are."""
    rows = scenarios()["mqadmin-brokerStatus"]
    captured = next(row["body_json"] for row in rows if row.get("answers_request_code") == 28)
    levels = {f"scheduleMessageOffset_{level}" for level in range(1, 19)}
    disk = {key for key in captured["table"] if key.startswith("commitLogDiskRatio_")}
    under_test.send(plain("a"), delayed("late", 2))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            body = fine(await client.ask(GET_BROKER_RUNTIME_INFO))
            table = read_body(KvTable, body).table
            assert set(captured["table"]) - set(table) - levels - disk == set()
            assert table["scheduleMessageOffset_2"] == "0,1"
            assert table["msgPutTotalTodayNow"] == "2"
            assert table["commitLogMaxOffset"] == str(under_test.store.end)
            assert f"commitLogDiskRatio_{under_test.config.store_path}/commitlog" in table
            for key in ("putTps", "getTransferedTps", "msgPutTotalTodayMorning"):
                float(table[key].split()[0])

    served_protocol(under_test, scenario)


def test_rates_are_measured(under_test: BrokerUnderTest) -> None:
    """statsAll: by topic, and by topic and group; 1 for what does not exist."""
    under_test.send(*[plain(f"{number}") for number in range(20)])
    under_test.pull(TOPIC, group=GROUP)
    under_test.clock.forward(10_000)
    for _ in under_test.broker[Traffic].sample():
        pass

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            row = VIEW_BROKER_STATS_DATA
            for name, key in (("TOPIC_PUT_NUMS", TOPIC), ("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}")):
                found = read_body(BrokerStats, fine(await client.ask(row, StatsQuery(name, key))))
                assert (found.stats_minute.sum, found.stats_minute.tps) == (20, 2.0)
                assert found.stats_day.tps == 0.0
            for name, key in (("TOPIC_PUT_NUMS", "none"), ("GROUP_GET_NUMS", f"{TOPIC}@none")):
                assert (await client.ask(row, StatsQuery(name, key))).code != 0

    served_protocol(under_test, scenario)


def test_the_configuration_has_what_mqadmin_exports(under_test: BrokerUnderTest) -> None:
    """exportConfigs fails if one of these keys is missing."""
    exported = {
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "brokerClusterName",
        "brokerId",
        "brokerName",
        "brokerRole",
        "fileReservedTime",
        "filterServerNums",
        "flushDiskType",
        "maxMessageSize",
        "messageDelayLevel",
        "msgTraceTopicName",
        "slaveReadEnable",
        "traceOn",
        "traceTopicEnable",
        "useTLS",
    }

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            answer = await client.ask(GET_BROKER_CONFIG)
            known = read_settings(fine(answer))
            assert exported <= set(known)
            assert set(json.loads(answer.ext["version"])) == {"counter", "timestamp"}

    served_protocol(under_test, scenario)


@pytest.mark.parametrize(
    ("wanted", "code", "named"),
    [
        ({"messageDelayLevel": DEFAULT_LEVELS + " 3h"}, 0, ""),
        ({"messageDelayLevel": "1s"}, 1, "rmqlite levels set 1s"),
        ({"flushDiskType": "SYNC_FLUSH", "useTLS": "false"}, 0, ""),
        ({"flushDiskType": "ASYNC_FLUSH"}, 16, "flushDiskType"),
        ({"useTLS": "true"}, 16, "useTLS"),
        ({"nonsense": "1"}, 1, "nonsense"),
        ({"messageDelayLevel": "soon"}, 1, "soon"),
        ({"messageDelayLevel": DEFAULT_LEVELS + " 3h", "nonsense": "1"}, 1, "nonsense"),
    ],
)
def test_settings_change_at_once_or_are_refused_by_name(
    under_test: BrokerUnderTest, wanted: dict[str, str], code: int, named: str
) -> None:
    """RocketMQ says that all of them are done."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            row = UPDATE_BROKER_CONFIG
            answer = await client.ask(row, None, write_settings(wanted))
            assert answer.code == code
            assert named in answer.remark
            levels = under_test.store.levels.current.text
            changed = code == 0 and "messageDelayLevel" in wanted
            assert levels == (wanted["messageDelayLevel"] if changed else DEFAULT_LEVELS)
            assert (await client.ask(row)).code == 1

    served_protocol(under_test, scenario)


def test_upkeep_is_asked_for(under_test: BrokerUnderTest) -> None:
    """cleanExpiredCQ and deleteExpiredCommitLog with the next round, cleanUnusedTopic at once."""
    under_test.send(plain("a"))
    under_test.broker.topics.delete(TOPIC)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            fine(await client.ask(DELETE_EXPIRED_COMMITLOG))
            assert under_test.broker.retention.is_asked
            fine(await client.ask(CLEAN_EXPIRED_CONSUMEQUEUE))
            fine(await client.ask(CLEAN_UNUSED_TOPIC))
            body = fine(await client.ask(GET_SYSTEM_TOPIC_LIST_FROM_BROKER))
            assert "TBW102" in read_body(TopicList, body).topic_list

    served_protocol(under_test, scenario)
    create_topic(under_test, TOPIC, 1)
    assert bodies(under_test) == []


def test_a_pull_that_waits_ends_when_its_topic_is_deleted(under_test: BrokerUnderTest) -> None:
    """With code 17, not after its whole time."""
    create_topic(under_test, TOPIC, 1)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as consumer, protocol.client() as tool:
            await join(consumer)
            asked = PullMessage(GROUP, TOPIC, 0, 0, 32, 2, 0, 30_000, 0)
            pull = consumer.request(PULL_MESSAGE, asked)
            consumer.send(pull)
            # Answered after the pull has parked.
            fine(await consumer.ask(GET_MAX_OFFSET, QueueOfTopic(TOPIC, 0)))
            fine(await tool.ask(DELETE_TOPIC_IN_BROKER, OfTopic(TOPIC)))
            assert (await consumer.answer(pull.opaque)).code == 17

    served_protocol(under_test, scenario)


@pytest.mark.parametrize("count", [0, 1, 3, 7])
def test_a_long_table_is_written_in_parts_and_looks_the_same(
    count: int, monkeypatch: pytest.MonkeyPatch, under_test: BrokerUnderTest
) -> None:
    """Other calls get their turns between two parts."""
    monkeypatch.setattr(calls, "ENTRIES_A_STEP", 3)
    table = {f"topic-{number}@g": {0: number} for number in range(count)}

    async def scenario(_: ProtocolUnderTest) -> None:
        body = await calls.large_body(GroupOffsets({}), "offset_table", table.items())
        assert body == write_body(GroupOffsets(table))
        names = tuple(table)
        body = await calls.large_body(TopicList((), "a:1"), "topic_list", names)
        assert body == write_body(TopicList(names, "a:1"))

    served_protocol(under_test, scenario)


def test_an_answer_that_no_frame_can_hold_is_refused(
    monkeypatch: pytest.MonkeyPatch, under_test: BrokerUnderTest
) -> None:
    """Clients close a connection with a longer frame, without a word."""
    create_topic(under_test, TOPIC, 1)
    monkeypatch.setattr(calls, "BYTES_MAX", 10)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            answer = await client.ask(GET_ALL_TOPIC_CONFIG)
            assert (answer.code, "10 bytes" in answer.remark) == (1, True)

    served_protocol(under_test, scenario)
