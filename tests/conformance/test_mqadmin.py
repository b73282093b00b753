"""mqadmin 4.9.8 itself, against a broker process with topics, groups and a running consumer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmqlite.client import AdminClient
from rmqlite.kernel.config.config import load_config
from rmqlite.testing import BrokerProcess
from tests.conformance.conftest import LEVELS
from tests.support.programs import Program

TOPIC, GROUP = "administered", "administrators"
Mqadmin = Callable[[str], str]


@pytest.fixture(scope="module")
def java_program(programs: Callable[[str], Program], broker: BrokerProcess) -> Program:
    """Twelve messages and a consumer that has read them."""
    java = programs("java")
    with AdminClient(broker.endpoint, timeout_ms=60_000) as admin:
        admin.create_topic(TOPIC, 4)
    java.push(GROUP, TOPIC)
    java.send(TOPIC, *[f"key{number}" for number in range(12)])
    java.until(lambda: len(java.got(GROUP)) >= 12, "all of them arrive")
    return java


@pytest.fixture
def mqadmin(java_program: Program, broker: BrokerProcess) -> Mqadmin:
    """Runs a command line and gives what it has printed.

    {broker}: the broker's address.  {levels}: its delay levels.
    """

    def run(line: str) -> str:
        port = load_config(broker.folder / "broker.conf").listen_port
        known = {"broker": f"127.0.0.1:{port}", "levels": LEVELS}
        words = [word.format(**known) for word in line.split()]
        printed = java_program.mqadmin(*words, "-n", broker.name_server)
        assert "Exception" not in printed, printed
        return printed

    return run


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("clusterList", "DefaultCluster"),
        ("clusterList -m", "#InTotalToday"),
        ("brokerStatus -b {broker}", "brokerVersionDesc"),
        ("getBrokerConfig -b {broker}", "messageDelayLevel"),
        ("topicList", TOPIC),
        ("topicRoute -t administered", "brokerDatas"),
        ("topicStatus -t administered", "broker-a"),
        ("topicClusterList -t administered", "DefaultCluster"),
        ("statsAll -t administered", GROUP),
        ("consumerProgress -g administrators", "Consume TPS"),
        ("consumerProgress", GROUP),
        ("consumerConnection -g administrators", "CONSUME_PASSIVELY"),
        ("brokerConsumeStats -b {broker}", GROUP),
        ("queryMsgByKey -t administered -k key3", "#Message ID"),
        ("queryMsgByOffset -t administered -b broker-a -i 0 -o 0", "OffsetID"),
        ("printMsg -t administered", "key3"),
        ("getNamesrvConfig", "listenPort"),
        ("updateTopic -c DefaultCluster -t made-by-mqadmin -r 2 -w 2", "success"),
        ("updateSubGroup -c DefaultCluster -g group-by-mqadmin -r 3", "success"),
        ("sendMessage -t administered -p hello", "SEND_OK"),
        ("resetOffsetByTime -g administrators -t administered -s now", "brokerName"),
        ("updateBrokerConfig -b {broker} -k messageDelayLevel -v {levels}", "success"),
    ],
)
def test_a_command_prints_what_it_is_for(mqadmin: Mqadmin, line: str, expected: str) -> None:
    """Without any exception."""
    assert expected in mqadmin(line)
