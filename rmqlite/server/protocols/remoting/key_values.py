"""The name server's key-value table, its settings, and its permission to write."""

from __future__ import annotations

from rmqlite.server.protocols.remoting.administration.large_bodies import large_body
from rmqlite.server.protocols.remoting.calls import Call, Handler, Refusal
from rmqlite.server.service.service import Service
from rmqlite.wire.remoting.bodies.topics import KvTable
from rmqlite.wire.remoting.codes import name_server as codes
from rmqlite.wire.remoting.codes.name_server import ValueAnswer
from rmqlite.wire.remoting.codes.response_code import ResponseCode
from rmqlite.wire.remoting.command import Command


class KeyValues:
    """Requests about values that tools keep at the name server."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def handlers(self) -> dict[int, Handler]:
        return {
            codes.PUT_KV_CONFIG.code: self.put,
            codes.GET_KV_CONFIG.code: self.get,
            codes.DELETE_KV_CONFIG.code: self.delete,
            codes.GET_KVLIST_BY_NAMESPACE.code: self.list,
        }

    async def put(self, call: Call) -> Command:
        asked = codes.PUT_KV_CONFIG.fields.read(call.command.ext)
        await self._service.key_values.put(asked.namespace, asked.key, asked.value)
        return call.command.answer(ResponseCode.SUCCESS)

    async def get(self, call: Call) -> Command:
        asked = codes.GET_KV_CONFIG.fields.read(call.command.ext)
        value = (await self._service.key_values.of(asked.namespace)).get(asked.key)
        if value is None:
            remark = f"No config item, Namespace: {asked.namespace} Key: {asked.key}"
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        ext = codes.GET_KV_CONFIG.answer.write(ValueAnswer(value))
        return call.command.answer(ResponseCode.SUCCESS, ext)

    async def delete(self, call: Call) -> Command:
        asked = codes.DELETE_KV_CONFIG.fields.read(call.command.ext)
        await self._service.key_values.delete(asked.namespace, asked.key)
        return call.command.answer(ResponseCode.SUCCESS)

    async def list(self, call: Call) -> Command:
        namespace = codes.GET_KVLIST_BY_NAMESPACE.fields.read(call.command.ext).namespace
        values = await self._service.key_values.of(namespace)
        if not values:
            remark = f"No config item, Namespace: {namespace}"
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        body = await large_body(KvTable({}), "table", values.items())
        return call.command.answer(ResponseCode.SUCCESS, body=body)
