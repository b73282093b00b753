"""AsyncAdmin: what a service asks of AdminClient, with its names, parameters and errors.

What an operator does now and then (levels, bulk jobs, imports, changes of thousands) has the
command line and AdminClient.
"""

from __future__ import annotations

from typing import Final

from rmqlite.client.admin.admin_client import AdminClient
from rmqlite.client.admin.dead_letters import DeadLetterAdmin
from rmqlite.client.admin.redrive import RedriveAdmin
from rmqlite.client.admin.schedule import ScheduleAdmin
from rmqlite.client.asyncio.bridge import (
    AsyncClosing,
    Bridge,
    CallThreads,
    alone_in_thread,
    in_thread,
    items_in_thread,
)
from rmqlite.client.credentials import Credentials


class AsyncScheduleAdmin(Bridge[ScheduleAdmin]):
    """AsyncAdmin.schedule: lists and changes waiting messages, as AdminClient.schedule."""

    pending = items_in_thread(ScheduleAdmin.pending)
    count_pending = in_thread(ScheduleAdmin.count_pending)
    cancel = in_thread(ScheduleAdmin.cancel)
    fire = in_thread(ScheduleAdmin.fire)
    reschedule = in_thread(ScheduleAdmin.reschedule)


class AsyncDeadLetterAdmin(Bridge[DeadLetterAdmin]):
    """AsyncAdmin.dead_letters: retries, dead letters and histories, as AdminClient.dead_letters."""

    groups = in_thread(DeadLetterAdmin.groups)
    reasons = in_thread(DeadLetterAdmin.reasons)
    dead = items_in_thread(DeadLetterAdmin.dead)
    retries = items_in_thread(DeadLetterAdmin.retries)
    history = in_thread(DeadLetterAdmin.history)
    purge = in_thread(DeadLetterAdmin.purge)


class AsyncRedriveAdmin(Bridge[RedriveAdmin]):
    """AsyncAdmin.redrives: jobs that send dead letters again, as AdminClient.redrives."""

    preview = in_thread(RedriveAdmin.preview)
    start = in_thread(RedriveAdmin.start)
    job = in_thread(RedriveAdmin.job)
    jobs = in_thread(RedriveAdmin.jobs)
    pause = in_thread(RedriveAdmin.pause)
    resume = in_thread(RedriveAdmin.resume)
    cancel = in_thread(RedriveAdmin.cancel)
    set_rate = in_thread(RedriveAdmin.set_rate)


class AsyncAdmin(Bridge[AdminClient], AsyncClosing):
    """An AdminClient for one event loop; its options are those of AdminClient.

    A change whose await is cancelled may be made all the same.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        timeout_ms: float = 5_000,
        credentials: Credentials | None = None,
        note: str = "",
    ) -> None:
        client = AdminClient(endpoint, timeout_ms=timeout_ms, credentials=credentials, note=note)
        super().__init__(client, CallThreads(timeout_ms))
        self.schedule: Final = AsyncScheduleAdmin(client.schedule, self._threads)
        self.dead_letters: Final = AsyncDeadLetterAdmin(client.dead_letters, self._threads)
        self.redrives: Final = AsyncRedriveAdmin(client.redrives, self._threads)

    list_topics = in_thread(AdminClient.list_topics)
    create_topic = in_thread(AdminClient.create_topic)
    ranges = in_thread(AdminClient.ranges)
    list_groups = in_thread(AdminClient.list_groups)
    group = in_thread(AdminClient.group)
    set_group = in_thread(AdminClient.set_group)
    broker_status = in_thread(AdminClient.broker_status)
    levels = in_thread(AdminClient.levels)
    find_messages = in_thread(AdminClient.find_messages)
    message_at = in_thread(AdminClient.message_at)

    async def close(self) -> None:
        """Disconnect; calls under way end with an Unavailable, later ones are Refused."""
        self._threads.shut()
        await alone_in_thread(self._client.close)
