"""A slave of this broker at its own name server: shown beside it, and told where the log is."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqlite.protocols.remoting.bytes.fields import FieldError, Nothing
from rmqlite.protocols.remoting.bytes.registration import (
    RegisteredTopic,
    Registration,
    crc_of,
    encode_plain,
)
from rmqlite.protocols.remoting.bytes.requests import name_server as codes
from rmqlite.protocols.remoting.bytes.requests.groups import TableVersionBody
from rmqlite.protocols.remoting.bytes.requests.name_server import (
    ClusterInfo,
    RegistrationFields,
    RouteBody,
    RouteQuery,
)
from rmqlite.protocols.remoting.bytes.shapes import read_body
from rmqlite.protocols.remoting.registry import Registrant, Registry
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import free_port
from tests.support.fake_name_server import all_steps
from tests.support.remoting import RawClient
from tests.support.standbys import SMALL

SLAVE = "127.0.0.1:10933"


def test_a_slave_registers_with_id_1_and_learns_where_the_log_is(tmp_path: Path) -> None:
    """RocketMQ's slave takes both addresses from this answer, and from nowhere else."""
    ha, port = free_port(), free_port()
    keys = {"haListenPort": str(ha), "listenPort": str(port), "brokersAllowed": "127.0.0.1"}
    with (
        BrokerProcess(tmp_path, {**SMALL, **keys}) as broker,
        RawClient(broker.name_server) as slave,
    ):
        table = Registration(TableVersionBody(5, 5), {"T": RegisteredTopic(4, 4, 6)})
        body = all_steps(encode_plain(table))
        fields = RegistrationFields(
            "broker-a", SLAVE, "DefaultCluster", "127.0.0.1:10934", 1, False, crc_of(body)
        )
        answer = slave.ask(codes.REGISTER_BROKER, fields, body)
        assert answer.ext == {
            "haServerAddr": f"127.0.0.1:{ha}",
            "masterAddr": f"127.0.0.1:{port}",
        }
        info = read_body(ClusterInfo, slave.ask(codes.GET_BROKER_CLUSTER_INFO, Nothing()).body)
        own = {0: f"127.0.0.1:{port}", 1: SLAVE}
        assert info.broker_addr_table["broker-a"].broker_addrs == own
        asked = slave.ask(codes.GET_ROUTEINFO_BY_TOPIC, RouteQuery("TBW102"))
        route = read_body(RouteBody, asked.body)
        assert [each.broker_addrs for each in route.broker_datas] == [own]
        assert [each.broker_name for each in route.queue_datas] == ["broker-a"]


def test_a_slave_does_not_take_the_place_of_a_standby() -> None:
    """Clients would no longer find the standby; the other way round the slave is told."""
    own = Registrant("broker-a", "DefaultCluster", 0, "10.0.0.1:10911", "10.0.0.1:10912")
    registry = Registry(own, lambda: 0)
    standby = own._replace(broker_id=1, address="10.0.0.2:10911", ha_address="10.0.0.2:10911")
    slave = own._replace(broker_id=1, address=SLAVE, ha_address="10.0.0.9:10912")
    registry.check(slave, "a")
    registry.register(slave, (), Registration(TableVersionBody(1, 1), {}), "a")
    registry.check(standby, "b")
    registry.register(standby, (), Registration(TableVersionBody(1, 1), {}), "b")
    with pytest.raises(FieldError, match="one that nobody has, such as 2"):
        registry.check(slave, "a")
    registry.check(slave._replace(broker_id=2), "a")


def test_a_standbys_name_server_takes_the_masters_slaves() -> None:
    """It is the master's port that they need."""
    own = Registrant("broker-a", "DefaultCluster", 1, "10.0.0.2:10911")
    registry = Registry(own, lambda: 0)
    master = own._replace(broker_id=0, address="10.0.0.1:10911", ha_address="10.0.0.1:10912")
    registry.register(master, (), Registration(TableVersionBody(1, 1), {}), "a")
    registry.check(own._replace(broker_id=2, address=SLAVE, ha_address="10.0.0.9:10912"), "b")


def test_without_the_port_no_slave_may_register() -> None:
    """It would wait for a log that nobody sends."""
    own = Registrant("broker-a", "DefaultCluster", 0, "10.0.0.1:10911")
    registry = Registry(own, lambda: 0)
    slave = own._replace(broker_id=1, address=SLAVE, ha_address="10.0.0.9:10912")
    with pytest.raises(FieldError, match="takes no slaves without haListenPort"):
        registry.check(slave, "a connection")
