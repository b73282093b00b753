"""The broker's configuration as mqadmin reads and changes it."""

from __future__ import annotations

import json
from typing import Final

from rmqlite.server.protocols.remoting.calls import Call, Handler, Refusal
from rmqlite.server.service.service import Service
from rmqlite.wire.remoting.codes import administration as codes
from rmqlite.wire.remoting.codes.administration import VersionAnswer
from rmqlite.wire.remoting.codes.response_code import ResponseCode
from rmqlite.wire.remoting.command import Command
from rmqlite.wire.remoting.settings_text import read_settings, write_settings

_FIXED: Final = {
    "filterServerNums": "0",
    "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
    "slaveReadEnable": "false",
    "traceOn": "true",
    "traceTopicEnable": "true",
    "useTLS": "false",
}
"""RocketMQ's keys that are no keys here but that mqadmin exportConfigs needs: how it is here."""


class Settings:
    """Requests about the broker's configuration."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def handlers(self) -> dict[int, Handler]:
        return {
            codes.GET_BROKER_CONFIG.code: self.get,
            codes.UPDATE_BROKER_CONFIG.code: self.change,
        }

    async def get(self, call: Call) -> Command:
        """All keys of broker.conf and their values in force."""
        settings = await self._service.settings.all()
        version = {"counter": 0, "timestamp": (await self._service.status()).started_at_ms}
        ext = codes.GET_BROKER_CONFIG.answer.write(
            VersionAnswer(json.dumps(version, separators=(",", ":")))
        )
        body = write_settings(_FIXED | settings)
        return call.command.answer(ResponseCode.SUCCESS, ext, body)

    async def change(self, call: Call) -> Command:
        """Change keys that take effect at once; if one of them cannot, none is changed."""
        wanted = read_settings(call.command.body)
        for key, value in wanted.items():
            if _FIXED.get(key, value) != value:
                remark = f"{key}={value}: it is always {_FIXED[key]} here"
                raise Refusal(ResponseCode.NO_PERMISSION, remark)
        await self._service.settings.change(
            {key: value for key, value in wanted.items() if key not in _FIXED}
        )
        return call.command.answer(ResponseCode.SUCCESS)
