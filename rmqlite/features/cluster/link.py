"""A connection to a name server, on which this broker is the client.

The name server sees the connection: when it closes, the broker leaves the routes at once.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final, NamedTuple, TypeVar, cast

from rmqlite.kernel.config.config import KEYS, BrokerConfig
from rmqlite.kernel.service.access import Access
from rmqlite.kernel.words.message import host_text
from rmqlite.protocols.remoting.bytes.command import (
    ACCESS_KEY,
    SIGNATURE,
    Command,
    ResponseCode,
    signature,
)
from rmqlite.protocols.remoting.bytes.frame import FrameDecoder, encode
from rmqlite.protocols.remoting.bytes.requests.request import RemotingRequest
from rmqlite.protocols.remoting.connection import NotAnswered, OwnRequests

CONNECT_S: Final = 3.0
ANSWER_S: Final = 6.0
"""RocketMQ's registerBrokerTimeoutMills."""
ANSWER_BYTES_MAX: Final = 2 << 20
"""A longer frame ends the connection before it is read."""
Q = TypeVar("Q", bound=tuple[Any, ...])
A = TypeVar("A", bound=tuple[Any, ...])


class NameServerRefusal(Exception):
    """A name server answered with an error."""


class SigningAccount(NamedTuple):
    """The account that signs the requests."""

    access_key: str
    secret: str

    def __repr__(self) -> str:
        """Without the secret, because logs may get this text."""
        return f"Account({self.access_key!r})"


class Link(asyncio.Protocol):
    """Requests to one name server, and its answers.  name: its address, for errors."""

    def __init__(self, name: str, account: SigningAccount | None = None) -> None:
        self.name = f"the name server {name}"
        self._account = account
        self._decoder = FrameDecoder(ANSWER_BYTES_MAX)
        self._asked = OwnRequests()
        self._transport: asyncio.Transport
        self.reason = ""
        """Why the connection has ended."""
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for command in self._decoder.feed(data):
            # RocketMQ 5's name servers may also ask something; nobody waits for an answer to that.
            if command.is_answer:
                self._asked.answered(command)
        if self._decoder.error is not None:
            self.reason = f"{self.name} sends what is no answer: {self._decoder.error}"
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        why = f" ({error})" if error else ""
        self.reason = self.reason or f"{self.name} closed the connection{why}"
        self.ended.set()
        self._asked.end(self.name)

    @property
    def peer_host(self) -> str:
        return str(self._transport.get_extra_info("peername")[0])

    async def ask(
        self,
        request: RemotingRequest[Q, A],
        fields: Q,
        body: bytes = b"",
        seconds: float = ANSWER_S,
    ) -> Command:
        """The answer.  Raises NotAnswered; Refused if its code is not 0."""
        if self.ended.is_set():
            raise NotAnswered(self.reason)
        ext = request.fields.write(fields)
        if self._account is not None:
            ext[ACCESS_KEY] = self._account.access_key
            ext[SIGNATURE] = signature(ext, body, self._account.secret)
        command = self._asked.request(request.code, ext, body, is_one_way=False)
        self._transport.write(encode(command))
        answer = await self._asked.answer_to(command, self.name, seconds)
        if answer.code != ResponseCode.SUCCESS:
            remark = answer.remark or "no remark"
            raise NameServerRefusal(
                f"{self.name} refuses {request.code}: code {answer.code}, {remark}"
            )
        return answer

    def close(self) -> None:
        """End the connection; what waits to be sent is dropped."""
        if not self.ended.is_set():
            self._transport.abort()


class Connecting:
    """How this broker connects: with its account, and by TLS if it shall."""

    def __init__(self, config: BrokerConfig, access: Access) -> None:
        """Raises ConfigInvalid."""
        self._config = config
        self._access = access
        if config.name_server_account and not config.acl_enabled:
            rule = f"empty unless {KEYS['acl_enabled']}=true: the account is one of aclFile"
            raise config.refusal("name_server_account", rule)
        self._account()
        self._tls()

    async def connect(self, host: str, port: int) -> Link:
        """Raises OSError, also a TimeoutError; ConfigInvalid."""
        loop, account, tls = asyncio.get_running_loop(), self._account(), self._tls()
        async with asyncio.timeout(CONNECT_S):
            _, link = await loop.create_connection(
                lambda: Link(host_text(host, port), account), host, port, ssl=tls
            )
        return link

    def _account(self) -> SigningAccount | None:
        """As it is in aclFile now.  Raises ConfigInvalid."""
        key = self._config.name_server_account
        if not key:
            return None
        assert self._access.accounts is not None
        account = self._access.accounts.accounts.get(key)
        if account is None:
            raise self._config.refusal("name_server_account", "the access key of an account")
        return SigningAccount(key, account.secret_text)

    def _tls(self) -> ssl.SSLContext | None:
        """With the files as they are now.  Raises ConfigInvalid."""
        config = self._config
        if not config.name_server_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=config.tls_trust_cert_path)
            if config.tls_mode != "disabled":
                context.load_cert_chain(config.tls_cert_path, config.tls_key_path, password="")
        except OSError as error:
            rule = f"certificates in PEM that name servers' certificates are signed with ({error})"
            raise config.refusal("tls_trust_cert_path", rule) from None
        return context
