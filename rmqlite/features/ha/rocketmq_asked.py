"""Requests to a RocketMQ master, as one of its slaves sends them; one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.service.access import Access
from rmqlite.kernel.words.errors import Unavailable
from rmqlite.protocols.remoting.bytes.command import (
    ACCESS_KEY,
    SIGNATURE,
    ResponseCode,
    server_request,
    signature,
)
from rmqlite.protocols.remoting.bytes.frame import FrameDecoder, encode
from rmqlite.protocols.remoting.bytes.requests.request import RemotingRequest

ANSWER_S: Final = 3.0
_READ_BYTES: Final = 1 << 16


class AskedMaster:
    """A connection.  account: access key and secret, or nothing."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        account: tuple[str, str] | None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._account = account
        self._decoder = FrameDecoder()
        self._opaque = 0

    async def body_of(self, row: RemotingRequest[Any, Any], unknown: bytes | None = None) -> bytes:
        """The body of the answer; unknown: of a master that does not know the code.

        Raises Unavailable.
        """
        self._opaque += 1
        ext: dict[str, str] = {}
        if self._account is not None:
            key, secret = self._account
            ext = {ACCESS_KEY: key}
            ext[SIGNATURE] = signature(ext, b"", secret)
        command = server_request(row.code, self._opaque, ext, b"", is_one_way=False)
        try:
            async with asyncio.timeout(ANSWER_S):
                self._writer.write(encode(command))
                return await self._answer(row.code, unknown)
        except OSError as error:
            raise Unavailable(f"the master does not answer code {row.code}: {error}") from None

    async def _answer(self, code: int, unknown: bytes | None) -> bytes:
        while True:
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise Unavailable("the master has closed the connection")
            for answer in self._decoder.feed(data):
                if answer.opaque != self._opaque or not answer.is_answer:
                    continue
                if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and unknown is not None:
                    return unknown
                if answer.code != ResponseCode.SUCCESS:
                    about = f"with {answer.code} {answer.remark}"
                    raise Unavailable(f"the master refuses code {code} {about}")
                return answer.body
            if self._decoder.error is not None:
                raise Unavailable(f"the master sends what is no answer: {self._decoder.error}")


@asynccontextmanager
async def connected(config: BrokerConfig, access: Access) -> AsyncIterator[AskedMaster]:
    """A connection to masterAddress.  Raises Unavailable, ConfigInvalid."""
    host, _, port = config.master_address.rpartition(":")
    account = None
    if key := config.master_account:
        found = access.accounts.accounts.get(key) if access.accounts else None
        if found is None:
            raise config.refusal("master_account", "the access key of an account")
        account = (key, found.secret_text)
    try:
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except OSError as error:
        raise Unavailable(f"{config.master_address} is not reached: {error}") from None
    try:
        yield AskedMaster(reader, writer, account)
    finally:
        writer.transport.abort()
