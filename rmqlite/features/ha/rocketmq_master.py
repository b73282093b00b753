"""haMasterAddress: this broker follows a RocketMQ master, to take its place.

The log comes as a slave of RocketMQ gets it.  Topics, groups, committed offsets, modes of POP, and
how far each level is delivered are asked of the master as a slave asks, each TABLES_S; so is its
configuration, because a copy with other lengths of files, or other delay levels, would be wrong.

What is said of the levels counts only when the log has come up to where the master's ended after
that: otherwise a message could count as delivered whose delivery is not in this log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar

from rmqlite.features.ha.frames import BEAT_S, HEADER, REPORT, SILENCE_S
from rmqlite.features.ha.rocketmq_asked import AskedMaster, connected
from rmqlite.features.ha.rocketmq_copy import RocketMQCopy
from rmqlite.features.request_modes.table_shapes import MODES_TABLE, RequestModesTable
from rmqlite.features.standby.following import Following
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.table_shapes import (
    ConsumerOffsetsTable,
    DelayOffsetsTable,
    GroupsTable,
    TopicsTable,
    validated,
)
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.store.tables.logged_tables import Row
from rmqlite.kernel.store.tables.tables import NoTable, Tree
from rmqlite.kernel.tables.groups import TABLE as GROUPS_TABLE
from rmqlite.kernel.tables.topics import TABLE as TOPICS_TABLE
from rmqlite.kernel.words.errors import InvalidValue, Refused, Unavailable
from rmqlite.kernel.words.json_tree import WrongValue
from rmqlite.kernel.words.levels import parse_levels
from rmqlite.protocols.native.replication import MasterFrame, pack_offsets
from rmqlite.protocols.remoting.bytes.requests import broker as codes
from rmqlite.protocols.remoting.bytes.requests.broker import KvTable, read_settings
from rmqlite.protocols.remoting.bytes.requests.groups import (
    GET_ALL_CONSUMER_OFFSET,
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
)
from rmqlite.protocols.remoting.bytes.requests.pop import GET_ALL_MESSAGE_REQUEST_MODE
from rmqlite.protocols.remoting.bytes.requests.topics import GET_ALL_TOPIC_CONFIG
from rmqlite.protocols.remoting.bytes.shapes import read_body

TABLES_S: Final = 2.0
REPORT_S: Final = 0.05
"""How soon a report follows a sync."""
OVERLAP_BYTES: Final = 32 << 10
"""Bytes that are asked for again, and compared: the same end does not make the same log."""
FRAME_BYTES_MAX: Final = 4 << 20
"""The buffer of RocketMQ's slave."""
_ANEW: Final = "remove the store of this broker, and start it"
_SHAPES: Final[Mapping[str, Any]] = {
    TOPICS_TABLE: TopicsTable,
    GROUPS_TABLE: GroupsTable,
    MODES_TABLE: RequestModesTable,
}
T = TypeVar("T")


class LogEnds(NamedTuple):
    """Of the master's log."""

    begin: int
    end: int


class RocketMQMaster:
    """The master, for a standby that follows it."""

    def __init__(self, broker: Broker, following: Following) -> None:
        store = broker.store
        assert isinstance(store, RocketMQCopy)
        self._store = store
        self._config = broker.parts.config
        self._following = following
        self._ends = LogEnds(0, 0)
        self._delivered: deque[tuple[int, Mapping[int, int]]] = deque(maxlen=16)
        """Where the log must have come, and then how far each level is delivered."""
        self._known: dict[str, Tree] = {}
        """The rows of each table, as the master has said last."""
        following.follow_once = self.follow_once

    async def follow_once(self) -> None:
        """Until an error ends it.  Raises RmqliteError, TimeoutError."""
        async with connected(self._config, self._following.access) as asked:
            await self._check_settings(asked)
            begin = await self._begin(asked)
            host, _, port = self._config.ha_master_address.rpartition(":")
            try:
                reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            except OSError as error:
                rule = f"{self._config.ha_master_address} is not reached: {error}"
                raise Unavailable(rule) from None
            try:
                await self._until_one_ends(
                    self._copy_tables(asked),
                    self._copy_log(reader, begin),
                    self._report(writer, begin),
                )
            finally:
                writer.transport.abort()

    async def _until_one_ends(self, *works: Any) -> None:
        """Run them together; the error of the first one that ends."""
        running = [asyncio.ensure_future(each) for each in works]
        try:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        except (OSError, asyncio.IncompleteReadError) as error:
            raise Unavailable(f"the master has ended the connection: {error}") from None
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    # ---- what must agree

    async def _check_settings(self, asked: AskedMaster) -> None:
        """Raises Refused."""
        settings = read_settings(await asked.body_of(codes.GET_BROKER_CONFIG))
        size = settings.get("mappedFileSizeCommitLog", "")
        if size != str(self._store.log_file_bytes):
            rule = f"mappedFileSizeCommitLog={size}, as the master's, and an empty store"
            raise Refused(f"the log files must be as long: {rule}", rule=rule)
        text = settings.get("messageDelayLevel", "")
        try:
            is_same = parse_levels(text).delays_ms == self._config.levels.delays_ms
        except InvalidValue:
            is_same = False
        if not is_same:
            rule = f"messageDelayLevel={text}, as the master's"
            raise Refused(f"the delays must be the same: {rule}", rule=rule)

    async def _begin(self, asked: AskedMaster) -> int:
        """Where the stream shall begin.  Raises Refused."""
        store, ends = self._store, await self._ask_ends(asked)
        if store.end == store.min_offset:
            if ends.begin:
                store.begin_at(ends.begin)
            return ends.begin
        if not ends.begin <= store.end <= ends.end:
            has = f"the master has {ends.begin} to {ends.end}"
            raise Refused(f"this copy ends at {store.end}, and {has}: {_ANEW}", rule=_ANEW)
        # Of one file: behind the records of the one before are our own marks.
        file_begin = store.end - store.end % store.log_file_bytes
        return max(ends.begin, store.min_offset, file_begin, store.end - OVERLAP_BYTES)

    async def _ask_ends(self, asked: AskedMaster) -> LogEnds:
        body = await asked.body_of(codes.GET_BROKER_RUNTIME_INFO)
        table = read_body(KvTable, body).table
        try:
            ends = LogEnds(int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"]))
        except (KeyError, ValueError):
            raise Unavailable("the master does not say where its log begins and ends") from None
        self._ends = ends
        return ends

    # ---- the log

    async def _copy_log(self, reader: asyncio.StreamReader, begin: int) -> None:
        """Raises IncompleteReadError, OSError; what Following.enter() does."""
        # A report of 0 would ask for the last file only; the first byte of a record is 0.
        at, store = begin or 1, self._store
        if not begin and not store.wanted:
            await self._take(0, b"\0")
        while True:
            async with asyncio.timeout(SILENCE_S):
                offset, size = HEADER.unpack(await reader.readexactly(HEADER.size))
                if offset != at or not 0 <= size <= FRAME_BYTES_MAX:
                    raise Unavailable(f"the master sends {size} bytes at {offset}, not at {at}")
                data = await reader.readexactly(size)
            self._hear()
            if data:
                await self._take(at, data)
                at += size
                # A turn for others while this broker catches up.
                await asyncio.sleep(0)

    async def _take(self, at: int, data: bytes) -> None:
        store = self._store
        known = max(0, min(store.end - at, len(data)))
        if store.read(at, known) != data[:known]:
            raise Refused(f"the master has another log before {store.end}: {_ANEW}", rule=_ANEW)
        if known < len(data):
            await self._following.enter(MasterFrame(at + known, data[known:]))

    def _hear(self, offsets: bytes = b"") -> None:
        end = max(self._ends.end, self._store.end)
        self._following.hear(
            MasterFrame(synced_end=end, min_offset=self._ends.begin, offsets=offsets)
        )

    async def _report(self, writer: asyncio.StreamWriter, begin: int) -> None:
        """Say what is on the disk: when it has grown, and as a sign of life."""
        loop, said_s = asyncio.get_running_loop(), 0.0
        said = begin or 1
        writer.write(REPORT.pack(said))
        while True:
            synced = self._store.synced_end
            if synced > said or loop.time() - said_s > BEAT_S:
                said, said_s = max(said, synced), loop.time()
                writer.write(REPORT.pack(said))
            await writer.drain()
            await asyncio.sleep(REPORT_S)

    # ---- the tables

    async def _copy_tables(self, asked: AskedMaster) -> None:
        while True:
            delivered = await self._ask(asked, codes.GET_ALL_DELAY_OFFSET, DelayOffsetsTable)
            ends = await self._ask_ends(asked)
            self._delivered.append((ends.end, delivered[1].offset_table))
            self._count_delivered()
            offsets, _ = await self._ask(asked, GET_ALL_CONSUMER_OFFSET, ConsumerOffsetsTable)
            self._hear(pack_offsets({"offsetTable": offsets["offsetTable"]}))
            topics, _ = await self._ask(asked, GET_ALL_TOPIC_CONFIG, TopicsTable)
            self._put(TOPICS_TABLE, "topicConfigTable", topics)
            groups, _ = await self._ask(asked, GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GroupsTable)
            self._put(GROUPS_TABLE, "subscriptionGroupTable", groups)
            # RocketMQ 4.9 has none.
            row = GET_ALL_MESSAGE_REQUEST_MODE
            modes, _ = await self._ask(asked, row, RequestModesTable, unknown=b"{}")
            self._put(MODES_TABLE, "messageRequestModeMap", modes)
            await asyncio.sleep(TABLES_S)

    async def _ask(
        self, asked: AskedMaster, row: Any, shape: type[T], unknown: bytes | None = None
    ) -> tuple[Tree, T]:
        """A table, as it came and as a value."""
        body = await asked.body_of(row, unknown)
        try:
            tree = await asyncio.to_thread(tables.decode, body)
            return tree, validated(shape, tree)
        except (NoTable, WrongValue) as error:
            raise Unavailable(f"the master's table of code {row.code} is none: {error}") from None

    def _count_delivered(self) -> None:
        while self._delivered and self._delivered[0][0] <= self._store.synced_end:
            for level, queue_offset in self._delivered.popleft()[1].items():
                self._store.delivered(level, queue_offset)

    def _put(self, name: str, section: str, tree: Tree) -> None:
        """Take a table over; it gets into the log when this broker is the master."""
        before, after = self._known.get(name), tree.get(section, {})
        if before is None:
            table = self._store.tables.load(name, _SHAPES[name])
            before = table.model_dump(by_alias=True)[section] if table else {}
        self._known[name] = after
        rows: list[Row] = [
            ((section, key), value) for key, value in after.items() if before.get(key) != value
        ]
        rows += [((section, key), None) for key in before.keys() - after.keys()]
        if rows:
            rows.append((("dataVersion",), tree.get("dataVersion", {})))
            self._store.tables.put_rows(name, rows, is_logged=False)
