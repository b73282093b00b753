"""What an operator asks about whole topics and groups: progress, resets, deletions."""

from __future__ import annotations

from collections.abc import Mapping

from rmqlite.features.operating.deleting import Deleting
from rmqlite.features.operating.progress import Progress
from rmqlite.features.operating.requests import (
    GroupProgress,
    GroupStatus,
    OffsetReset,
    QueueReset,
    QueueTimes,
    TopicLoss,
)
from rmqlite.features.operating.resetting import Resetting
from rmqlite.features.operating.settings import Settings
from rmqlite.kernel.requests.groups import OffsetsCommit
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.service.access import (
    Need,
    Right,
    admin,
    group_right,
    needs,
    of_group,
    topic_right,
    view,
)
from rmqlite.kernel.service.part import Part, ServiceParts
from rmqlite.kernel.service.turns import done_in_turns


def _progress_rights(group: str, topic: str = "") -> list[Need]:
    """A group's progress in a topic also says where that topic ends, and when it was written."""
    topics = [topic_right(Right.VIEW, topic)] if topic else []
    return [group_right(Right.VIEW, group), *topics]


class DeletionCalls(Part):
    """Calls that delete topics."""

    @view
    async def loss(self, topic: str) -> TopicLoss:
        """What is lost with a topic; it names groups.  Raises TopicUnknown, InvalidName."""
        return await done_in_turns(self._broker[Deleting].loss(topic))

    @admin
    async def delete(self, topic: str) -> None:
        """Delete a topic; calls that wait for its messages end."""
        self._broker[Deleting].delete_topic(topic)
        await self._saved()
        self._pulls.wake([(topic, number) for number in range(self._config.topic_queues_max)])

    @admin
    async def delete_unused(self) -> int:
        """Delete the queues of topics that do not exist; how many topics."""
        return await self._stored(self._broker[Deleting].delete_unused())


class ProgressCalls(Part):
    """Calls about how far groups are, and calls that move them."""

    @of_group(Right.VIEW)
    async def status(self, group: str) -> GroupStatus:
        """Settings, members, and progress in every queue that the group reads or has read."""
        return await done_in_turns(self._broker[Progress].status(group))

    @needs(_progress_rights)
    async def taken(self, group: str, topic: str = "") -> tuple[GroupProgress, ...]:
        """A group's progress in one topic, or in all topics of which it has an offset."""
        return await done_in_turns(self._broker[Progress].of_group(group, topic))

    @needs(_progress_rights)
    async def times(self, group: str, topic: str) -> tuple[QueueTimes, ...]:
        """When the messages were stored that a group has taken of a topic, and will take next."""
        return await done_in_turns(self._broker[Progress].times(group, topic))

    @admin
    async def reset(
        self, group: str, topic: str, timestamp_ms: int | None, *, may_advance: bool = True
    ) -> dict[Queue, int]:
        """The offsets at which a group goes on with the messages of a time.

        The caller sends them to the members that pull, which commit them.  Those of a group that
        receives single messages have no offsets: for them they are committed here.
        """
        steps = self._broker[Progress].offsets_at(
            group, topic, timestamp_ms, may_advance=may_advance
        )
        offsets = await done_in_turns(steps)
        if self._broker.membership.receives(group):
            for part in OffsetsCommit(group, offsets).parts():
                self._broker.commit_offsets(part, is_reset=True)
            await self._durable()
        return offsets

    @view
    async def preview_reset(self, request: OffsetReset) -> tuple[QueueReset, ...]:
        """What reset_offsets() would do; it changes nothing, and takes a group with members."""
        return await done_in_turns(self._broker[Resetting].preview(request))

    @admin
    async def reset_offsets(self, request: OffsetReset) -> tuple[QueueReset, ...]:
        """Let a group go on from another place; what was committed there before."""
        return await self._stored(self._broker[Resetting].reset(request))


class SettingCalls(Part):
    """Calls about the broker's configuration."""

    def __init__(self, parts: ServiceParts) -> None:
        super().__init__(parts)
        self._settings = Settings(parts.config, parts.broker.levels)

    @view
    async def all(self) -> dict[str, str]:
        """The value in force of each key of broker.conf."""
        return self._settings.all()

    @admin
    async def change(self, wanted: Mapping[str, str]) -> None:
        """Change keys at once, all or none; only messageDelayLevel needs no restart."""
        self._settings.change(wanted)
        await self._saved()
