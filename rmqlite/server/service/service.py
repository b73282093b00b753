"""The one door to a running broker: every call of every protocol comes through here.

A protocol turns bytes or a form into a value of rmqlite.requests, calls a method of the part with
that noun, and turns the answer back.  The service knows no protocol and no connection: everything
that a method needs from its caller is an argument.  The service waits (for the disk, for a message,
for an assignment) and gives other calls their turns; broker/ decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rmqlite.broker.broker import Broker
from rmqlite.clock import Clock
from rmqlite.config import BrokerConfig
from rmqlite.requests.figures import BrokerStatus, NameServerStatus
from rmqlite.server.gate.exposure import open_ports
from rmqlite.server.gate.limits import limits_of
from rmqlite.server.gate.watched import WatchedFiles
from rmqlite.server.group_commit import GroupCommit
from rmqlite.server.service.access import Access, view
from rmqlite.server.service.administration import FigureCalls, KeyValueCalls, SettingCalls
from rmqlite.server.service.groups import GroupCalls
from rmqlite.server.service.letters import LetterCalls, RedriveCalls
from rmqlite.server.service.log import LogCalls
from rmqlite.server.service.messages import MessageCalls
from rmqlite.server.service.part import Behind, Part
from rmqlite.server.service.schedule import ScheduleCalls
from rmqlite.server.service.topics import TopicCalls
from rmqlite.server.service.transactions import TransactionCalls
from rmqlite.server.waiting import Waiting


class Service(Part):
    """Everything that a caller can ask one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        broker: Broker,
        commit: GroupCommit,
        pulls: Waiting,
        heartbeats: Waiting,
        clock: Clock,
        access: Access,
        watched: Sequence[WatchedFiles[Any]] = (),
    ) -> None:
        self.limits = limits_of(config)
        behind = Behind(config, broker, commit, pulls, heartbeats, access, self.limits)
        super().__init__(behind)
        self.clock = clock
        self.access = access
        self.open_ports = open_ports(config)
        """What other machines can do here without an account, a sentence for each address."""
        self.watched = watched
        self.name_servers: Callable[[], tuple[NameServerStatus, ...]] = tuple
        """The state of each name server at which the broker registers."""
        self.messages = MessageCalls(behind)
        self.topics = TopicCalls(behind)
        self.groups = GroupCalls(behind)
        self.schedule = ScheduleCalls(behind)
        self.letters = LetterCalls(behind)
        self.redrives = RedriveCalls(behind)
        self.log = LogCalls(behind)
        self.transactions = TransactionCalls(behind)
        self.figures = FigureCalls(behind)
        self.settings = SettingCalls(behind)
        self.key_values = KeyValueCalls(behind)

    @view
    async def status(self) -> BrokerStatus:
        """Counts since the start, the pending messages of every level, and the last disk use."""
        of_files = [sentence for files in self.watched for sentence in files.warnings]
        status = self._broker.status(self._pulls.count)
        servers = self.name_servers()
        away = [
            f"this broker is not registered at the name server {each.address}: {each.reason}"
            for each in servers
            if each.reason
        ]
        warnings = (*self.open_ports, *of_files, *away, *status.warnings)
        return replace(status, warnings=warnings, name_servers=servers)

    @property
    def parked(self) -> int:
        """How many pulls and heartbeats wait."""
        return self._pulls.count + self._heartbeats.count

    @property
    def is_closing(self) -> bool:
        return self._pulls.is_closed

    def close(self) -> None:
        """Answer every call that waits; from now on no call waits or stores a message."""
        self._pulls.close()
        self._heartbeats.close()
