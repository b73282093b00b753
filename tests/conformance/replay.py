"""Replays a captured scenario, frame by frame, against a protocol in the test's own loop.

Requests go out in the captured order, on connections split as they were; an answer is awaited
where the capture has it.  Time is that of the capture: the broker's clock is moved along.  What
cannot be the same is translated (physical offsets) or not compared (times, ids, hosts, counts).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rmqlite.features.name_server.service import KeyValueCalls
from rmqlite.features.transactions.checking_back import CheckingBack
from rmqlite.features.transactions.service import TransactionCalls
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.requests.groups import HeartbeatRequest, OffsetsCommit
from rmqlite.kernel.requests.topics import Queue, TopicInfo
from rmqlite.kernel.sends.calls import DraftCall
from rmqlite.kernel.words.message import WAIT, StoredMessage, encode_properties, pack_host
from rmqlite.kernel.words.names import group_of
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.frame import encode
from rmqlite.protocols.remoting.bytes.requests import ANSWERED, REFUSED
from rmqlite.protocols.remoting.bytes.requests.clients import (
    HEART_BEAT,
    ConsumerData,
    Heartbeat,
    ProducerData,
    SubscriptionBody,
)
from rmqlite.protocols.remoting.bytes.requests.pop import POP_MESSAGE, ExtraInfo
from rmqlite.protocols.remoting.bytes.requests.request import Body
from rmqlite.protocols.remoting.bytes.shapes import read_body, strict
from tests.conformance.captures import PULLS, SENDS, WITH_RECORDS, Before, Place, Step
from tests.support.brokers import BrokerUnderTest
from tests.support.remoting import LoopClient, ProtocolUnderTest, records_of
from tests.support.steps import done

WAIT_S: Final = 30.0
SHORT_WAIT_MS: Final = 20
"""How long a pull is suspended that was answered with 19 after 15 s and more."""
NOT_LATEST, NO_SUBSCRIPTION, NOT_SUPPORTED, NO_NEW_MESSAGE = 25, 24, 3, 19
OFFSET_NOT_FOUND: Final = 22
CHANGING: Final = frozenset({17, 25, 37, 100, 102, 200, 205, 207, 215, 216, 222, 318, 325, 327})
"""If one of these is not answered yet, what follows it in a scenario cannot be compared."""
MAPS: Final = frozenset(
    {
        *("offsetTable", "brokerAddrs", "brokerAddrTable", "clusterAddrTable", "table", "data"),
        *("topicConfigTable", "subscriptionGroupTable", "subscriptionTable", "consumerTable"),
        *(
            "timingCount",
            "mqTable",
            "statusTable",
            "filterServerTable",
            "messageQueueTable",
            "properties",
        ),
        "consumeStatsList",
    }
)
"""JSON objects whose keys are no field names."""
MAY_BE_EMPTY: Final = frozenset({"timingCount", "messageQueueAssignments"})
"""One that names every topic that RocketMQ has seen; ours only those with timers that wait.  The
queues of a client: nobody pulls the retry topic of a group that pops."""


NOT_MEANT: Final = frozenset({WAIT})
"""RocketMQ adds it to a half message that it asks for and whose client sends none, as Go's."""


@dataclass
class Replay:
    """One run of one scenario.

    not_yet: codes that are still refused.  only_there: ext fields and properties that are
    RocketMQ 5's; none for captures of 4.9.  meant: our own code of answers, by their t_ms.
    """

    protocol: ProtocolUnderTest
    under_test: BrokerUnderTest
    not_yet: frozenset[int]
    only_there: frozenset[str] = frozenset()
    meant: Mapping[int, int] = field(default_factory=dict)
    compared: int = 0
    wrong: list[str] = field(default_factory=list)
    answered_after_all: set[int] = field(default_factory=set)
    _offsets: dict[int, int] = field(default_factory=dict)
    """Physical offsets: the captured one, and ours."""
    _handles: dict[str, str] = field(default_factory=dict)
    """Recall handles: the captured one, and ours."""
    _leases: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """popTime and reviveQid: the captured ones, and ours."""
    _half: dict[int, str] = field(default_factory=dict)
    """Our queue offsets of half messages, by captured physical offset."""
    _opaques: dict[tuple[str, int], int] = field(default_factory=dict)
    """Of requests that the broker starts: the captured one, and ours."""
    _clients: dict[str, LoopClient] = field(default_factory=dict)
    _deleted: set[str] = field(default_factory=set)
    """Topics that the scenario has deleted at the broker."""
    _told: set[tuple[str, str]] = field(default_factory=set)
    _last_ms: int = 0
    _is_over: bool = False

    def prepare(self, before: Before) -> None:
        """Make what was there."""
        broker, clock = self.under_test.broker, self.under_test.clock
        for topic, (reads, writes, perm) in before.topics.items():
            broker.topics.create(TopicInfo(topic, reads, writes, perm))
        for group in before.groups:
            broker.heartbeat(HeartbeatRequest(group, "long gone", ()))
            broker.membership.leave(group, "long gone")
        waiting = [
            (place, offset, message)
            for place, queue in before.messages.items()
            for offset, message in sorted(queue.items())
        ]
        waiting.sort(key=lambda each: each[2].store_timestamp_ms if each[2] else 0)
        waiting.sort(key=lambda each: (each[0], each[1]))
        for place, _, message in waiting:
            if message is not None:
                ahead_ms = message.store_timestamp_ms - clock.now_ms()
                clock.forward(max(0, ahead_ms))
            (outcome,) = done(broker.drafts.send([DraftCall((_draft(place, message),))]))
            assert not isinstance(outcome, Exception), outcome
            if message is not None:
                (self._offsets[message.physical_offset],) = outcome.physical_offsets
        for (group, place), offset in before.offsets.items():
            queue = Queue(*place)
            known = self.under_test.store.queue(*place)
            end = known.max_offset if known else 0
            broker.commit_offsets(OffsetsCommit(group, {queue: min(offset, end)}))
        self.under_test.sync()

    async def run(self, steps: list[Step], before: Before) -> None:
        suspended = _suspended(steps)
        async with AsyncExitStack() as stack:
            for (namespace, key), value in before.values.items():
                await self.protocol.server.service[KeyValueCalls].put(namespace, key, value)
            for conn in dict.fromkeys([*[step.conn for step in steps], *before.live]):
                is_names = conn.startswith("namesrv")
                port = self.protocol.protocol.name_server_port if is_names else 0
                self._clients[conn] = await stack.enter_async_context(
                    self.protocol.client(port=port)
                )
            for conn, live in before.live.items():
                await self._go_live(conn, live)
            for step in steps:
                self._forward(int(step.row["t_ms"]))
                client = self._clients[step.conn]
                if step.is_of_client and step.command.is_answer:
                    self._answer(client, step)
                elif step.is_of_client:
                    client.write(self._frame(step, id(step) in suspended))
                elif not self._is_over:
                    await self._compare(client, step)
            await self._finish(steps)

    # ---- inside

    async def _go_live(self, conn: str, live: list[tuple[str, str]]) -> None:
        client = self._clients[conn]
        for group, client_id in live:
            if not group:
                producer = Heartbeat(client_id, (ProducerData("pg_live"),), ())
                assert (await client.ask(HEART_BEAT, None, producer)).code == 0
                continue
            every = [each.topic for each in self.under_test.broker.topics.all()]
            own = [name for name in every if group_of(name) in (None, group)]
            wanted = tuple([SubscriptionBody(name) for name in own])
            body = Heartbeat(client_id, (), (ConsumerData(group, subscription_data_set=wanted),))
            assert (await client.ask(HEART_BEAT, None, body)).code == 0

    async def _check_back(self) -> None:
        """Ask producers about half messages, which are old enough now."""
        under_test, server = self.under_test, self.protocol.server
        under_test.clock.forward(under_test.config.transaction_timeout_ms)
        await CheckingBack(
            server.config, under_test.broker, server.commit, server.service[TransactionCalls]
        ).round()

    def _forward(self, at_ms: int) -> None:
        """Move the clock, and deliver what is due."""
        self.under_test.clock.forward(max(0, at_ms - self._last_ms))
        self._last_ms = max(at_ms, self._last_ms)
        self.under_test.deliver_slice()

    def _frame(self, step: Step, is_suspended: bool) -> bytes:
        """The captured bytes, unless a value in them must be another one here."""
        command = step.command
        ext = dict(command.ext)
        for name in ("offset", "commitLogOffset"):
            if command.code in (33, 36, 37) and name in ext:
                ext[name] = str(self._offsets.get(int(ext[name]), ext[name]))
        if "recallHandle" in ext:
            ext["recallHandle"] = self._handles.get(ext["recallHandle"], ext["recallHandle"])
        if "extraInfo" in ext:
            info = ExtraInfo.parse(ext["extraInfo"])
            pop_time, revive_qid = self._leases[info.pop_time, info.revive_qid]
            ours = info._replace(pop_time=pop_time, revive_qid=revive_qid)
            ext["extraInfo"] = str(ours)
        if is_suspended:
            ext["suspendTimeoutMillis"] = str(SHORT_WAIT_MS)
        if command.code == 37 and int(command.ext["commitLogOffset"]) in self._half:
            ext["tranStateTableOffset"] = self._half[int(command.ext["commitLogOffset"])]
        if command.code == 309 and "msgId" in ext:
            place = self._offsets.get(int(ext["msgId"][16:], 16), 0)
            ext["msgId"] = f"{ext['msgId'][:16]}{place:016X}"
        if ext == command.ext and "frame_hex" in step.row:
            return bytes.fromhex(step.row["frame_hex"])
        return encode(command._replace(ext=ext))

    def _answer(self, client: LoopClient, step: Step) -> None:
        opaque = self._opaques.get((step.conn, step.command.opaque))
        if opaque is not None:
            client.send(step.command._replace(opaque=opaque))

    async def _compare(self, client: LoopClient, step: Step) -> None:
        expected = step.command
        if not expected.is_answer:
            await self._compare_question(client, step)
            return
        asked = step.asked
        if asked is None or asked.is_one_way:
            return
        if expected.code == NOT_LATEST or (expected.code == NO_SUBSCRIPTION and _may_wait(asked)):
            # Races of RocketMQ at a consumer's start and end.
            return
        found = await self._wait(client.answer(asked.opaque), step)
        if found is None:
            return
        if asked.code in self.not_yet:
            if found.code != NOT_SUPPORTED:
                self.answered_after_all.add(asked.code)
            self._is_over = asked.code in CHANGING
            return
        meant = NOT_SUPPORTED if asked.code in REFUSED else self.meant.get(step.row["t_ms"])
        if meant is not None:
            is_so = found.code == meant and (not meant or bool(found.remark))
            self._differs(step, is_so, f"code {found.code}, {found.remark!r}")
            return
        if self._is_gone(asked, found) or (self.only_there and _is_new_group(expected, found)):
            return
        self._differs(step, found.code == expected.code, f"code {found.code}, {found.remark!r}")
        if found.code != expected.code:
            return
        self._compare_contents(step, expected, found, asked.code)
        self.compared += 1

    def _is_gone(self, asked: Command, found: Command) -> bool:
        """Is it the route of a deleted topic?  RocketMQ's name server learns that later."""
        if asked.code == 215:
            self._deleted.add(asked.ext["topic"])
        return asked.code == 105 and found.code == 17 and asked.ext["topic"] in self._deleted

    async def _compare_question(self, client: LoopClient, step: Step) -> None:
        expected = step.command
        if expected.code == 40:
            # How often it comes may differ.
            key = step.conn, expected.ext["consumerGroup"]
            if key not in self._told:
                self._told.add(key)
                await self._wait(client.told(40), step)
            return
        if expected.code in self.not_yet:
            return
        if expected.code == 39:
            await self._check_back()
        found = await self._wait(client.told(expected.code), step)
        if found is None:
            return
        if expected.code == 39:
            at = int(expected.ext["commitLogOffset"])
            self._offsets[at] = int(found.ext["commitLogOffset"])
            self._half[at] = found.ext["tranStateTableOffset"]
        self._opaques[step.conn, expected.opaque] = found.opaque
        self._differs(step, found.is_one_way == expected.is_one_way, "one way")
        self._compare_contents(step, expected, found, expected.code)
        self.compared += 1

    async def _wait(self, coming: Any, step: Step) -> Command | None:
        try:
            async with asyncio.timeout(WAIT_S):
                found: Command = await coming
                return found
        except TimeoutError:
            self._differs(step, False, "nothing came")
            self._is_over = True
            return None

    def _compare_contents(self, step: Step, expected: Command, found: Command, code: int) -> None:
        missing = expected.ext.keys() - found.ext.keys() - self.only_there
        self._differs(step, not missing, f"no ext field {sorted(missing)}")
        self._differs(step, found.is_binary == expected.is_binary or code == 40, "spelling")
        if code in SENDS and expected.code == 0:
            self._note_ids(expected.ext["msgId"], found.ext["msgId"])
            same = expected.ext["queueId"] == found.ext["queueId"]
            self._differs(step, same, f"queue {found.ext['queueId']}")
            self._half[int(expected.ext["msgId"][-16:], 16)] = found.ext["queueOffset"]
            if "recallHandle" in found.ext:
                self._handles[expected.ext["recallHandle"]] = found.ext["recallHandle"]
        if expected.is_answer and expected.code:
            return
        if code == POP_MESSAGE.code:
            self._note_lease(step, expected, found)
        has_record = code in (39, 309) and not expected.is_answer and expected.body
        if has_record or (code in WITH_RECORDS and expected.is_answer):
            self._compare_records(step, expected.body, found.body)
            return
        kinds = ANSWERED[code].answer_body if expected.is_answer else ANSWERED[code].body
        if isinstance(kinds, tuple):
            self._compare_json(step, kinds, expected.body, found.body)
        elif kinds is Body.SETTINGS:
            self._differs(step, b"=" in found.body, "no settings")

    def _compare_records(self, step: Step, expected: bytes, found: bytes) -> None:
        theirs, ours = records_of(expected), records_of(found)
        if not step.command.is_answer:
            # A half message, whose queue counts those of all topics.
            theirs = [replace(each, queue_offset=0) for each in theirs]
            ours = [replace(each, queue_offset=0) for each in ours]
        if any(group_of(each.topic) for each in theirs):
            # In which order failed messages come back is not decided.
            theirs.sort(key=lambda each: each.body)
            ours.sort(key=lambda each: each.body)
        same = [_values(each) for each in theirs] == [_values(each) for each in ours]
        self._differs(step, same, f"{[_values(each) for each in ours]}")
        for captured, stored in zip(theirs, ours, strict=False):
            self._offsets[captured.physical_offset] = stored.physical_offset
            missing = captured.properties.keys() - stored.properties.keys() - NOT_MEANT
            missing -= self.only_there
            self._differs(step, not missing, f"no property {sorted(missing)}")
            if WAIT not in captured.properties:
                self._differs(step, WAIT not in stored.properties, f"a property {WAIT}")

    def _note_lease(self, step: Step, expected: Command, found: Command) -> None:
        theirs, ours = map(POP_MESSAGE.answer.read, (expected.ext, found.ext))
        self._leases[theirs.pop_time, theirs.revive_qid] = ours.pop_time, ours.revive_qid
        same = ours._replace(pop_time=theirs.pop_time, revive_qid=theirs.revive_qid) == theirs
        self._differs(step, same, f"{ours}")

    def _compare_json(self, step: Step, kinds: Any, expected: bytes, found: bytes) -> None:
        if not expected:
            return
        has_blank = b" " in found.replace(b"\\n", b"") and b" " not in expected
        self._differs(step, not has_blank, f"a blank in {found!r}")
        try:
            # The second kind is the list that C++ reads.
            read_body(kinds[b":[" in found and len(kinds) > 1], found)
            theirs, ours = (json.loads(strict(body.decode())) for body in (expected, found))
        except ValueError as error:
            self._differs(step, False, f"{error} in {found!r}")
            return
        difference = _shape_differs(theirs, ours, "body")
        self._differs(step, not difference, difference)

    def _note_ids(self, captured: str, ours: str) -> None:
        for theirs, own in zip(captured.split(","), ours.split(","), strict=True):
            self._offsets[int(theirs[16:], 16)] = int(own[16:], 16)

    async def _finish(self, steps: list[Step]) -> None:
        """No answer to a one-way request."""
        for client in self._clients.values():
            await client.ask(9_999)
        for step in steps:
            asked = step.command
            if step.is_of_client and asked.is_one_way:
                is_silent = asked.opaque not in self._clients[step.conn].answers
                self._differs(step, is_silent, "an answer to a one-way request")

    def _differs(self, step: Step, is_same: bool, what: str) -> None:
        if is_same:
            return
        code = step.asked.code if step.asked else step.command.code
        at = f"{step.row['t_ms']} ms {step.conn} {code} opaque {step.command.opaque}"
        self.wrong.append(f"{at}: expected {step.command.code} {step.command.ext}, got {what}")


def _suspended(steps: list[Step]) -> set[int]:
    """The pulls that were suspended until their time was up."""
    ended = {
        (step.conn, step.command.opaque)
        for step in steps
        if step.asked is not None
        and step.asked.code in PULLS
        and step.command.code == NO_NEW_MESSAGE
    }
    return {
        id(step)
        for step in steps
        if step.is_of_client and step.command.code in PULLS
        if (step.conn, step.command.opaque) in ended and not step.command.is_answer
    }


def _is_new_group(expected: Command, found: Command) -> bool:
    """Where does a group without an offset begin?  At the first message here, as in RocketMQ 4.9
    with a young queue; RocketMQ 5 lets its client decide."""
    return expected.code == OFFSET_NOT_FOUND and found.ext.get("offset") == "0"


def _may_wait(asked: Command) -> bool:
    return asked.code in PULLS and int(asked.ext.get("sysFlag", "0")) & 2 != 0


def _draft(place: Place, message: StoredMessage | None) -> Draft:
    host = pack_host("127.0.0.1:50000")
    if message is None:
        return Draft(place.topic, place.queue_id, b"TAGS\x01Unseen\x02", b"unseen", 0, host)
    return Draft(
        place.topic,
        place.queue_id,
        encode_properties(message.properties),
        message.body,
        message.born_timestamp_ms,
        host,
        message.flag,
        message.sys_flag,
    )


def _values(message: StoredMessage) -> tuple[Any, ...]:
    return (
        message.topic,
        message.queue_id,
        0 if group_of(message.topic) else message.queue_offset,
        message.body[:40],
        len(message.body),
        message.flag,
        message.sys_flag,
        message.reconsume_times,
        message.properties.get("TAGS"),
        message.properties.get("KEYS"),
    )


def _shape_differs(theirs: Any, ours: Any, path: str) -> str:
    """What is missing in ours, or of another type; "" if nothing is."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        name = path.rpartition(".")[2]
        if name in MAPS:
            if not theirs or not ours:
                return f"{path} is empty" if theirs and name not in MAY_BE_EMPTY else ""
            return _shape_differs(
                next(iter(theirs.values())), next(iter(ours.values())), path + "._"
            )
        for name, value in theirs.items():
            if value is not None and name not in ours:
                return f"no {path}.{name}"
            if found := _shape_differs(value, ours.get(name), f"{path}.{name}"):
                return found
        return ""
    if isinstance(theirs, list) and isinstance(ours, list):
        if theirs and not ours:
            is_wrong = path.rpartition(".")[2] not in MAY_BE_EMPTY
            return f"{path} is empty" if is_wrong else ""
        return _shape_differs(theirs[0], ours[0], f"{path}.0") if theirs else ""
    if theirs is None or type(theirs) is type(ours):
        return ""
    return f"{path} is {ours!r} instead of {theirs!r}"
