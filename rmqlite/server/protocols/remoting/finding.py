"""Messages by key, by producer's id, and by physical offset."""

from __future__ import annotations

from typing import Final

from rmqlite.broker.finding.finding import MESSAGES_DEFAULT, MESSAGES_MAX
from rmqlite.errors import MessageNotFound
from rmqlite.requests.messages import MessageQuery
from rmqlite.server.protocols.remoting.calls import Call, Handler, Refusal
from rmqlite.server.service.service import Service
from rmqlite.wire.remoting.codes import consuming as codes
from rmqlite.wire.remoting.codes.consuming import QueryAnswer
from rmqlite.wire.remoting.codes.response_code import ResponseCode
from rmqlite.wire.remoting.command import Command
from rmqlite.wire.remoting.limits import FRAME_BYTES_MAX

RECORDS_BYTES_MAX: Final = FRAME_BYTES_MAX // 2
"""Records in one answer, which must fit into a frame; further ones are left out."""


class Finding:
    """Requests that look for messages."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def handlers(self) -> dict[int, Handler]:
        return {
            codes.QUERY_MESSAGE.code: self.query,
            codes.VIEW_MESSAGE_BY_ID.code: self.view,
        }

    async def query(self, call: Call) -> Command:
        """The newest messages with a key, as records; the client compares the key itself."""
        asked = codes.QUERY_MESSAGE.fields.read(call.command.ext)
        most = MESSAGES_DEFAULT if asked.is_unique_key else asked.max_num
        found = await self._service.messages.find(
            MessageQuery(
                asked.topic,
                asked.key,
                asked.is_unique_key,
                max(0, asked.begin_timestamp),
                # RocketMQ's end belongs to the range.
                min(asked.end_timestamp, 2**63 - 2) + 1,
                min(max(most, 1), MESSAGES_MAX),
            )
        )
        newest = found.messages[-1].message if found.messages else None
        ext = codes.QUERY_MESSAGE.answer.write(
            QueryAnswer(newest.store_timestamp_ms, newest.physical_offset)
            if newest
            else QueryAnswer(0, 0)
        )
        if newest is None:
            remark = "can not find message, maybe time range not correct"
            return call.command.answer(ResponseCode.QUERY_NOT_FOUND, ext, remark=remark)
        async with call.connection.reading():
            records: list[bytes] = []
            size = 0
            for each in found.messages:
                record = await self._service.messages.record(each.message.physical_offset)
                size += len(record.encoded)
                if records and size > RECORDS_BYTES_MAX:
                    break
                records.append(record.encoded)
            return call.command.answer(ResponseCode.SUCCESS, ext, b"".join(records))

    async def view(self, call: Call) -> Command:
        """The record that begins at a physical offset."""
        offset = codes.VIEW_MESSAGE_BY_ID.fields.read(call.command.ext).offset
        async with call.connection.reading():
            try:
                record = await self._service.messages.record(offset)
            except MessageNotFound:
                remark = f"can not find message by the offset, {offset}"
                raise Refusal(ResponseCode.SYSTEM_ERROR, remark) from None
            return call.command.answer(ResponseCode.SUCCESS, body=record.encoded)
