"""One table of how each protocol sends a message with a unique id, and what it is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import product
from typing import Final, NamedTuple

import pytest

from rmqlite.features.bulk.requests import SCHEDULE_BULK, BulkRequest
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.words.message import Message, encode_properties
from rmqlite.protocols.grpc.calls import everybody
from rmqlite.protocols.grpc.in_flight import InFlight
from rmqlite.protocols.native.bytes import rpcs as native_rpcs
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.native.table import handlers_of, methods_of
from rmqlite.protocols.remoting.bytes.batch import BatchItem, write_batch
from rmqlite.protocols.remoting.bytes.requests.sends import (
    SEND_BATCH_MESSAGE,
    SEND_MESSAGE,
    SEND_MESSAGE_V2,
    SendMessage,
)
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import ask
from tests.support.remoting import LoopClient, ProtocolUnderTest, served_protocol
from tests.support.rocketmq_v2_client import TOPIC, V2, code_of, message, message_id
from tests.support.sends import encoded_of


class Sent(NamedTuple):
    """What a protocol answers: the message id, or else the offset message id.

    known_as: None for a duplicate of a bulk call, whose sender is told the id that it gave.
    """

    known_as: str | None
    is_duplicate: bool


class Clients:
    """One client of each protocol on one broker."""

    def __init__(self, v2: V2, remoting: LoopClient) -> None:
        self.v2, self.remoting = v2, remoting
        server = v2.server
        methods = methods_of(server.service)
        self._handlers = handlers_of(methods, InFlight(1 << 30, 1 << 20), server.config, everybody)

    async def native(self, text: str, unique_id: str, *, replace: bool = False) -> Sent:
        id_ = message_id(text)
        own = Message(TOPIC, b"x", message_id=id_, unique_id=unique_id, replace=replace)
        sent = encoded_of([own], 0)
        data = rpc_of(native_rpcs.SEND).encode_request(sent.request)
        context = await ask(self._handlers, native_rpcs.SEND.path, data)
        assert context.code.name == "OK", context.details
        (result,) = sent.results(rpc_of(native_rpcs.SEND).decode_response(context.answers[0]))
        return Sent(result.message_id, result.is_duplicate)

    async def single(self, text: str, unique_id: str) -> Sent:
        return await self._remoting(SEND_MESSAGE_V2, _properties(text, unique_id), b"x")

    async def long_names(self, text: str, unique_id: str) -> Sent:
        return await self._remoting(SEND_MESSAGE, _properties(text, unique_id), b"x")

    async def batch(self, text: str, unique_id: str) -> Sent:
        body = write_batch([BatchItem(0, b"x", _properties(text, unique_id).encode())])
        return await self._remoting(SEND_BATCH_MESSAGE, "", body)

    async def five(self, text: str, unique_id: str) -> Sent:
        own = message(text)
        own.user_properties["UNIQUE_ID"] = unique_id
        (entry,) = await self.v2.sent(own)
        return Sent(entry.message_id, entry.status.message.startswith("duplicate"))

    async def bulk(self, _: str, unique_id: str) -> Sent:
        data = rpc_of(SCHEDULE_BULK).encode_request(BulkRequest((b"x",), (unique_id,), (TOPIC,)))
        context = await ask(self._handlers, SCHEDULE_BULK.path, data)
        assert context.code.name == "OK", context.details
        answer = rpc_of(SCHEDULE_BULK).decode_response(context.answers[0])
        assert not answer.refused
        return Sent(None if answer.duplicates else unique_id, answer.duplicates == (0,))

    async def _remoting(self, row: object, properties: str, body: bytes) -> Sent:
        is_batch = row is SEND_BATCH_MESSAGE
        asked = SendMessage(TOPIC, "senders", queue_id=0, properties=properties, is_batch=is_batch)
        answer = await self.remoting.ask(row, asked, body)  # type: ignore[arg-type]
        assert answer.code == 0, answer.remark
        return Sent(answer.ext["msgId"], answer.ext.get("duplicates") == "0")


def _properties(text: str, unique_id: str) -> str:
    return encode_properties({"UNIQ_KEY": message_id(text), "UNIQUE_ID": unique_id}).decode()


Send = Callable[[Clients, str, str], Awaitable[Sent]]
PROTOCOLS: Final[dict[str, Send]] = {
    "rmqlite.v1": Clients.native,
    "10": Clients.long_names,
    "310": Clients.single,
    "320": Clients.batch,
    "5.x": Clients.five,
    "bulk": Clients.bulk,
}


def test_a_second_message_is_answered_with_the_first_one_by_every_protocol(
    under_test: BrokerUnderTest,
) -> None:
    """Whatever protocol the first one came by; remoting answers with offset message ids."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        v2 = V2(under_test, protocol.server)
        under_test.broker.topics.create(TopicInfo(TOPIC, 1, 1))
        async with protocol.client() as remoting:
            clients = Clients(v2, remoting)
            for number, (first, second) in enumerate(product(PROTOCOLS, PROTOCOLS)):
                name = f"{first}-{second}"
                begun = await PROTOCOLS[first](clients, f"a{number}", name)
                assert not begun.is_duplicate
                assert begun.known_as is not None
                stored = under_test.messages(TOPIC)[-1]
                ends = (stored.message_id[-16:], f"{stored.physical_offset:016X}")
                assert begun.known_as[-16:] in ends
                again = await PROTOCOLS[second](clients, f"b{number}", name)
                assert again.is_duplicate
                assert again.known_as is None or again.known_as[-16:] in ends, name
        await v2.end()

    served_protocol(under_test, scenario)
    assert len(under_test.messages(TOPIC)) == len(PROTOCOLS) ** 2


def test_a_message_of_a_transaction_has_no_unique_id(under_test: BrokerUnderTest) -> None:
    """Nobody knows yet whether it will be there, so it could not stand for another one."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as remoting:
            pairs = {"TRAN_MSG": "true", "PGROUP": "senders", "UNIQ_KEY": "a", "UNIQUE_ID": "i"}
            text = encode_properties(pairs).decode()
            asked = SendMessage(TOPIC, "senders", queue_id=0, properties=text)
            answer = await remoting.ask(SEND_MESSAGE_V2, asked, b"x")
            assert "UNIQUE_ID must be left out of a transaction" in (answer.remark or "")

    served_protocol(under_test, scenario)


@pytest.mark.parametrize("properties", [{"UNIQUE_ID": "a b"}, {"UNIQUE_ID": "x" * 256}])
def test_a_bad_unique_id_is_refused_by_name(
    under_test: BrokerUnderTest, properties: dict[str, str]
) -> None:
    """Clients of RocketMQ set the property themselves."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        v2 = V2(under_test, protocol.server)
        own = message("a")
        own.user_properties.update(properties)
        request = rpcs.service.SendMessageRequest(messages=[own])
        answer = await v2.ask(rpcs.SEND_MESSAGE, request)
        assert code_of(answer) is not Code.OK
        assert "unique_id" in answer.status.message
        await v2.end()

    served_protocol(under_test, scenario)
    assert under_test.broker.counts.sent == 0
