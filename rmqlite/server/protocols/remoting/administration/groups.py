"""Consumer groups: settings, and their deletion."""

from __future__ import annotations

from rmqlite.requests.groups import GroupChange, GroupExtras, GroupInfo
from rmqlite.server.protocols.remoting.administration.large_bodies import large_body
from rmqlite.server.protocols.remoting.calls import Call, Handler
from rmqlite.server.service.service import Service
from rmqlite.wire.remoting.bodies.topics import DataVersion, SubscriptionGroup, SubscriptionGroups
from rmqlite.wire.remoting.codes import administration as codes
from rmqlite.wire.remoting.codes.response_code import ResponseCode
from rmqlite.wire.remoting.command import Command
from rmqlite.wire.remoting.shapes import read_body


class Groups:
    """Requests about settings of groups."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def handlers(self) -> dict[int, Handler]:
        return {
            codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.code: self.change,
            codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG.code: self.all,
            codes.DELETE_SUBSCRIPTIONGROUP.code: self.delete,
        }

    async def change(self, call: Call) -> Command:
        """Create a group, or give it other settings."""
        asked = read_body(SubscriptionGroup, call.command.body)
        await self._service.groups.change(
            GroupChange(
                asked.group_name,
                asked.retry_max_times,
                asked.retry_queue_nums,
                asked.consume_enable,
            ),
            GroupExtras(
                asked.broker_id,
                asked.consume_broadcast_enable,
                asked.consume_from_min_enable,
                asked.notify_consumer_ids_changed_enable,
                asked.which_broker_when_consume_slowly,
            ),
        )
        return call.command.answer(ResponseCode.SUCCESS)

    async def all(self, call: Call) -> Command:
        settings = await self._service.groups.settings()
        counter, changed_at_ms = await self._service.groups.version()
        body = await large_body(
            SubscriptionGroups({}, DataVersion(changed_at_ms, counter)),
            "subscription_group_table",
            ((info.group, _config(info, extras)) for info, extras in settings),
        )
        return call.command.answer(ResponseCode.SUCCESS, body=body)

    async def delete(self, call: Call) -> Command:
        """Delete a group's settings, and its offsets if that is asked for."""
        asked = codes.DELETE_SUBSCRIPTIONGROUP.fields.read(call.command.ext)
        await self._service.groups.delete(asked.group_name, with_offsets=asked.remove_offset)
        return call.command.answer(ResponseCode.SUCCESS)


def _config(info: GroupInfo, extras: GroupExtras) -> SubscriptionGroup:
    return SubscriptionGroup(
        info.group,
        info.can_consume,
        extras.begins_at_min,
        extras.may_broadcast,
        info.retry_queues,
        info.max_reconsume_times,
        extras.broker_id,
        extras.broker_id_when_slow,
        extras.notifies_members,
    )
