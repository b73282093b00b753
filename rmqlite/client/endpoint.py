"""A broker's address, and what it means when no connection can be made there.

gRPC has words of its own for it, which name neither the mistake nor the remedy.  A mistake is
certain if the other side has answered in a way that no broker does at that port: then waiting
cannot help.  Everything else may be over in a moment, as a restart is.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from rmqlite.client.credentials import ENVIRONMENT
from rmqlite.kernel.words.errors import (
    BrokerUnreachable,
    InvalidValue,
    Refused,
    RmqliteError,
    must_be_type,
)
from rmqlite.protocols.shared.status import error_from_status

TLS: Final = "tls://"
LOOK_S_MAX: Final = 0.3
"""How long a look whether a port takes TLS may last."""
_RULE: Final = "host:port, such as 127.0.0.1:8081, or tls://host:port"
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]]+):([0-9]{1,5})")
_UNIX: Final = "unix:"
PROXY_VARIABLE: Final = "RMQLITE_PROXY"
"""Names an HTTP proxy.  http_proxy, which Docker and companies set, does not concern a broker."""
_PROXY: Final = re.compile(rf"http://(?:[^\s/@]+@)?({_ADDRESS.pattern})/?")
_NO_CONNECTION: Final = "failed to connect to all addresses"
_GRPC_PORT: Final = "use the broker's grpcPort"
_ENDED: Final = r"Socket closed|Connection reset|Broken pipe"


class _Cause(NamedTuple):
    """found: in gRPC's details; {why} is its group.  {address}: the endpoint without tls://."""

    found: str
    what: str
    remedy: str = ""
    is_mistake: bool = False


_PLAIN: Final = (
    _Cause("http1.x server", "it answers in HTTP/1, as webPort does", _GRPC_PORT, True),
    _Cause("Failed parsing HTTP/2", "it does not speak gRPC", _GRPC_PORT, True),
    _Cause(_ENDED, "it closes the connection", f"perhaps it wants TLS: {TLS}{{address}}"),
)
_OVER_TLS: Final = (
    _Cause(
        "WRONG_VERSION_NUMBER", "it does not speak TLS", "use {address}, or a port with TLS", True
    ),
    _Cause("missing selected ALPN", "it speaks TLS, but not gRPC", _GRPC_PORT, True),
    _Cause(
        "unable to get local issuer certificate|self.signed certificate",
        "its certificate is from a CA that is not trusted (CERTIFICATE_VERIFY_FAILED)",
        "name the file of the CA by RMQLITE_TLS_CA",
    ),
    _Cause("Hostname Verification Check failed", "its certificate is for another host name"),
    _Cause(
        "CERTIFICATE_VERIFY_FAILED: ([^:]+)",
        "its certificate is not trusted: {why} (CERTIFICATE_VERIFY_FAILED)",
    ),
    _Cause(
        f"Handshake read failed|{_ENDED}",
        "it ends the TLS connection",
        "perhaps it takes no TLS, or wants a certificate of the client (RMQLITE_TLS_CERTIFICATE)",
    ),
)
_ANY: Final = (
    _Cause("Connection refused|No such file", "nothing listens there"),
    _Cause("lookup error|errors resolving", "there is no such host"),
    _Cause("before receiving SETTINGS|Endpoint closing", "it takes connections, but never answers"),
)
_OF_PROXY: Final = (
    _Cause("HTTP proxy returned response code ([0-9]+)", "the proxy answers with code {why}"),
    _Cause("Connection refused", "nothing listens at the proxy"),
    _Cause("lookup error|errors resolving", "there is no such host as the proxy's"),
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """text: as it was given.  address: what gRPC connects to, through a proxy if there is one."""

    text: str
    address: str
    is_tls: bool
    proxy: str = ""

    @classmethod
    def parse(cls, text: str, environment: Mapping[str, str] = ENVIRONMENT) -> Endpoint:
        """With the proxy that the environment names for rmqlite.  Raises InvalidValue."""
        if not isinstance(text, str):
            raise must_be_type("endpoint", "str", text)
        is_tls = text.startswith(TLS)
        address = text.removeprefix(TLS)
        matched = _ADDRESS.fullmatch(address)
        is_right = matched and 0 < int(matched[2]) <= 65_535
        if not is_right and (is_tls or not address.startswith(_UNIX)):
            raise InvalidValue("endpoint", text, _RULE)
        proxy = environment.get(PROXY_VARIABLE, "").strip()
        if proxy and not _PROXY.fullmatch(proxy):
            raise InvalidValue(PROXY_VARIABLE, proxy.rpartition("@")[2], "http://host:port")
        return cls(text, address, is_tls, "" if address.startswith(_UNIX) else proxy)

    @classmethod
    def parse_all(cls, text: str) -> list[Endpoint]:
        """Of a master and its standby, with a comma between them.  Raises InvalidValue."""
        return [cls.parse(each) for each in (text.split(",") if isinstance(text, str) else [text])]

    def error(self, status_name: str, details: str, *, has_met: bool) -> RmqliteError:
        """The error of a call that ended with a gRPC status of gRPC itself.

        has_met: the broker has answered there before, so that waiting may help after all.
        """
        if status_name == "FAILED_PRECONDITION":
            return self._mistake(details)
        if _NO_CONNECTION in details or "resolving" in details:
            own = _OVER_TLS if self.is_tls else _PLAIN
            for cause in (*(_OF_PROXY if self.proxy else ()), *own, *_ANY):
                if found := re.search(cause.found, details):
                    return self._error_for(cause, *found.groups(), has_met=has_met)
        if status_name == "DEADLINE_EXCEEDED":
            details = "it did not answer in time: it is away, or too busy"
        return error_from_status(status_name, f"{self._shown}: {details}")

    def with_a_look(self, error: RmqliteError) -> RmqliteError:
        """The same, or a better error: a port that ended a plain connection may want TLS."""
        is_unclear = error.rule.endswith(f"{TLS}{self.address}")
        if not is_unclear or self.is_tls or self.proxy or not _takes_tls(self.address):
            return error
        return self._mistake(f"it takes TLS only: use {TLS}{self.address}")

    def _error_for(self, cause: _Cause, why: str = "", *, has_met: bool) -> RmqliteError:
        what = cause.what.format(why=why)
        remedy = cause.remedy.format(address=self.address)
        sentence = f"{what}: {remedy}" if remedy else what
        if cause.is_mistake and not has_met:
            return self._mistake(sentence)
        error = BrokerUnreachable(
            f"no answer from the broker: {self._shown}: {sentence}",
            field="endpoint",
            rule=remedy,
        )
        error.was_never_sent = True
        return error

    @property
    def _shown(self) -> str:
        """The endpoint and its proxy, without the proxy's password."""
        by = _PROXY.fullmatch(self.proxy)
        return f"{self.text} through the proxy {by[1]} ({PROXY_VARIABLE})" if by else self.text

    def _mistake(self, sentence: str) -> Refused:
        return Refused(
            f"no broker for this client at {self._shown}: {sentence}",
            field="endpoint",
            value=self.text,
            rule=sentence,
        )


def _takes_tls(address: str) -> bool:
    """Does a TLS handshake come to its end there?  Whoever answers is not believed anything."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host, _, port = address.rpartition(":")
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), LOOK_S_MAX) as plain,
            context.wrap_socket(plain),
        ):
            return True
    except (OSError, ValueError):
        return False
