"""One connection to a broker: values out, values or our errors back.

A Connection owns a gRPC channel and the table of calls; everything above it uses values of
requests/ and errors of errors.py and never sees gRPC.  A call either
blocks its thread (call) or costs no thread at all (start).  Both sign it, if there are credentials.
"""

from __future__ import annotations

import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

from rmqlite.client.credentials import Credentials, with_environment
from rmqlite.client.endpoint import Endpoint
from rmqlite.client.forks import enter_grpc, follow, is_in_grpc, leave_grpc, leave_to_parent
from rmqlite.client.quiet_grpc import grpc, know_gevent
from rmqlite.features.rows import A, Q, Row
from rmqlite.kernel.words.clock import elapsed_s, wall_ms
from rmqlite.kernel.words.errors import (
    BrokerUnreachable,
    InvalidValue,
    NotMaster,
    Refused,
    RmqliteError,
)
from rmqlite.kernel.words.limits import check_note
from rmqlite.protocols.native.bytes.notes import note_metadata
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.shared.signing import Signer
from rmqlite.protocols.shared.status import ERROR_METADATA, error_from_metadata, error_from_status

CALL_BYTES_MAX: Final = 64 * 1024 * 1024
RECONNECT_BACKOFF_MS_MAX: Final = 1_000
RETRY_PAUSE_S_MIN: Final = 0.1
RETRY_PAUSE_S_MAX: Final = 1.0

_OPTIONS: Final = (
    ("grpc.max_send_message_length", CALL_BYTES_MAX),
    ("grpc.max_receive_message_length", CALL_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", RECONNECT_BACKOFF_MS_MAX),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_BACKOFF_MS_MAX),
    # A half-open connection is noticed; an idle one is not pinged.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Clients of one process do not share, and so do not slow, one TCP connection.
    ("grpc.use_local_subchannel_pool", 1),
)
_NO_PROXY: Final = ("grpc.enable_http_proxy", 0)
_waited_s: Final = ContextVar("rmqlite-waited-s", default=0.0)
"""How long the calls of this context have waited for their thread."""


@contextmanager
def waited(seconds: float) -> Iterator[None]:
    """The calls inside have waited so long for their thread: it counts as time of theirs."""
    token = _waited_s.set(seconds)
    try:
        yield
    finally:
        _waited_s.reset(token)


class Closing(ABC):
    """Whatever has a close() is closed at the end of its `with`."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(slots=True)
class CallAttempts:
    """How often a call is made.  An attempt that was never sent counts only against the time, so
    that a call outlasts a restart of its broker; with no retries there is one attempt.
    """

    retries: int
    deadline_s: float
    failed: int = 0
    _counted: int = 0

    def left_s(self) -> float:
        return max(0.001, self.deadline_s - elapsed_s())

    def pause_s_after(self, error: RmqliteError) -> float | None:
        """The pause before the next attempt, None if this error is the outcome."""
        pause_s = retry_pause_s(self.failed)
        self.failed += 1
        if not (isinstance(error, (BrokerUnreachable, NotMaster)) and error.was_never_sent):
            self._counted += 1
        is_last = self.retries == 0 or self._counted > self.retries
        is_late = elapsed_s() + pause_s >= self.deadline_s
        return None if is_last or is_late or not error.can_retry else pause_s


class Started(Protocol):
    """A call under way."""

    def cancel(self) -> object:
        """Give it up; its on_done is still called, with an Unavailable."""
        ...


class _Started:
    __slots__ = ("_call", "_future")

    def __init__(self, call: object, future: Any) -> None:
        self._call = call
        self._future = future

    def cancel(self) -> None:
        if is_in_grpc(self._call):
            self._future.cancel()


class Connection(Closing):
    """Calls to the broker at endpoint ("host:port", or "tls://host:port").  Usable from any thread.

    Of a master and its standby both are given, with a comma between them: calls go to the one that
    is the master, which the other one names, and if one cannot be reached to the other.

    channel: a gRPC channel to use instead; the caller closes it.  credentials: what they lack comes
    from the environment; without an account calls are not signed.  note: of all calls.
    """

    def __init__(
        self,
        endpoint: str,
        channel: grpc.Channel | None = None,
        *,
        credentials: Credentials | None = None,
        note: str = "",
    ) -> None:
        """Raises InvalidValue and ConfigInvalid for credentials that cannot be used."""
        check_note(note)
        self._note = note_metadata(note)
        self._credentials = with_environment(credentials)
        self._given = channel
        self._has_met = False
        """Has the broker answered?  Until then the endpoint may be wrong."""
        self._channels: dict[int, grpc.Channel] = {}
        self._is_closed = False
        self._at = 0
        """Which of the endpoints is asked now."""
        if channel is None:
            self._endpoints = Endpoint.parse_all(endpoint)
            if self._credentials.ca and any(each.is_tls for each in self._endpoints):
                _check_ca(self._credentials.ca)
        else:
            self._endpoints = [Endpoint(endpoint, endpoint, is_tls=False)]
        self.begin_anew()
        follow(self)

    def begin_anew(self) -> None:
        """For a forked child: the parent's channel and its nonces stay the parent's."""
        account = self._credentials
        self._signer = Signer(account.access_key, account.secret) if account.access_key else None
        for channel in self._channels.values():
            leave_to_parent(channel)
        self._channels = {}
        self._calls: dict[tuple[int, str], grpc.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self._opening = threading.Lock()
        self._pause = threading.Event()

    def call(
        self, row: Row[Q, A], value: Q, timeout_s: float, *, wait_for_ready: bool = False
    ) -> A:
        """Ask and wait for the answer.  Raises RmqliteError, Unavailable at the timeout.

        wait_for_ready: while the broker cannot be reached, wait for it until the timeout, if it
        has answered before.
        """
        data = self._prepared(row, value)
        left_s = max(0.001, timeout_s - _waited_s.get())
        for others in reversed(range(len(self._endpoints))):
            try:
                return self._answer(row, data, left_s, wait_for_ready=wait_for_ready)
            except (BrokerUnreachable, NotMaster) as error:
                if not (others and error.was_never_sent):
                    raise
        raise AssertionError("there is an endpoint")

    def _answer(self, row: Row[Q, A], data: bytes, left_s: float, *, wait_for_ready: bool) -> A:
        """The answer of the endpoint that is asked now."""
        how, at = self._how(row, left_s, wait_for_ready=wait_for_ready), self._at
        call = enter_grpc()
        try:
            answer = self._method(at, row.path)(data, **how)
        except grpc.RpcError as error:
            raise self._endpoints[at].with_a_look(self._translated(error, at)) from error
        except ValueError as error:  # another thread closed the channel meanwhile
            raise closed_error() from error
        finally:
            leave_grpc(call)
        return self._decoded(row, answer)

    def call_repeatedly(self, row: Row[Q, A], value: Q, timeout_s: float, *, retries: int) -> A:
        """call(); after an Unavailable repeat it as Attempts allows, all within timeout_s.

        A request without an answer may have run, so use this only for requests that may run twice.
        """
        attempts = CallAttempts(retries, elapsed_s() + timeout_s - _waited_s.get())
        while True:
            try:
                # call() takes the wait off once more.
                left_s = attempts.left_s() + _waited_s.get()
                return self.call(row, value, left_s, wait_for_ready=attempts.failed > 0)
            except RmqliteError as error:
                pause_s = attempts.pause_s_after(error)
                if pause_s is None or self._pause.wait(pause_s):
                    raise

    def start(
        self,
        row: Row[Q, A],
        value: Q,
        timeout_s: float,
        on_done: Callable[[A | RmqliteError], None],
        *,
        wait_for_ready: bool = False,
    ) -> Started:
        """Ask without waiting; on_done gets the answer or the error, on gRPC's own thread.

        Raises InvalidValue for a value that cannot be encoded, Refused once closed.
        """
        data = self._prepared(row, value)
        how, at = self._how(row, timeout_s, wait_for_ready=wait_for_ready), self._at
        call = enter_grpc()
        try:
            future = self._method(at, row.path).future(data, **how)
        except BaseException as error:
            leave_grpc(call)
            if isinstance(error, ValueError):
                raise closed_error() from error
            raise

        def finished(done: Any) -> None:
            leave_grpc(call)
            outcome: A | RmqliteError = self._outcome(row, done, at)
            on_done(outcome)

        future.add_done_callback(finished)
        return _Started(call, future)

    def close(self) -> None:
        """End every call under way with an Unavailable; later ones are Refused."""
        with self._opening:
            self._is_closed = True
            channels, self._channels = self._channels, {}
        self._pause.set()
        for channel in channels.values():
            call = enter_grpc()
            try:
                channel.close()
            finally:
                leave_grpc(call)

    def _method(self, at: int, path: str) -> grpc.UnaryUnaryMultiCallable[bytes, bytes]:
        """Raises Refused once closed."""
        method = self._calls.get((at, path))
        if method is None:
            with self._opening:
                if self._is_closed:
                    raise closed_error()
                # Not before the first call: a process that only forks others uses no gRPC itself.
                if self._given is None and at not in self._channels:
                    self._channels[at] = _channel_to(self._endpoints[at], self._credentials)
                channel = self._given or self._channels[at]
                method = self._calls[at, path] = channel.unary_unary(path)
        return method

    def _prepared(self, row: Row[Q, A], value: Q) -> bytes:
        if self._is_closed:
            raise closed_error()
        # Encode here: gRPC would only log a field's wrong type, and report INTERNAL.
        try:
            return rpc_of(row).encode_request(value)
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            rule = "of the types that it declares"
            raise InvalidValue("request", f"{row.name}: {error}", rule) from error

    def _how(self, row: Row[Any, Any], timeout_s: float, *, wait_for_ready: bool) -> dict[str, Any]:
        """What a call has beside its request; each attempt has a signature of its own."""
        how: dict[str, Any] = {"timeout": timeout_s}
        # gRPC would wait for a wrong endpoint, too, and then not say why no connection was made.
        if wait_for_ready and self._has_met and len(self._endpoints) == 1:
            how["wait_for_ready"] = True
        if self._signer is not None or self._note:
            signed = self._signer.metadata(row.path, wall_ms()) if self._signer else ()
            how["metadata"] = (*signed, *self._note)
        return how

    def _outcome(self, row: Row[Any, A], done: Any, at: int) -> A | RmqliteError:
        try:
            return self._decoded(row, done.result())
        except grpc.RpcError as error:
            return self._translated(error, at)
        except grpc.FutureCancelledError:
            return error_from_status("CANCELLED", "the call was given up")
        except RmqliteError as error:
            return error

    def _translated(self, error: Any, at: int) -> RmqliteError:
        """at: of the endpoint that was asked."""
        found, has_met = None, self._has_met
        for key, value in error.trailing_metadata() or ():
            if key == ERROR_METADATA:
                self._has_met = True
                found = error_from_metadata(value)
        if found is None:
            endpoint, code = self._endpoints[at], error.code().name
            found = endpoint.error(code, error.details(), has_met=has_met)
        if len(self._endpoints) > 1 and isinstance(found, (BrokerUnreachable, NotMaster)):
            self._turn_from(at, found)
        return found

    def _turn_from(self, at: int, error: BrokerUnreachable | NotMaster) -> None:
        """Ask another endpoint from now on, unless another call has turned already."""
        if isinstance(error, NotMaster):
            error.was_never_sent = True
        with self._opening:
            if at == self._at:
                named = [n for n, each in enumerate(self._endpoints) if each.address == error.value]
                is_named = isinstance(error, NotMaster) and named
                self._at = named[0] if is_named else (at + 1) % len(self._endpoints)

    def _decoded(self, row: Row[Any, A], data: bytes) -> A:
        self._has_met = True
        try:
            return rpc_of(row).decode_response(data)
        except ValueError as error:  # such as a pull status of a newer broker
            raise RmqliteError(f"the answer to {row.name} cannot be read: {error}") from error


def _channel_to(endpoint: Endpoint, credentials: Credentials) -> grpc.Channel:
    """With tls:// the broker's certificate must be for this host, and the CA's."""
    know_gevent()
    address = endpoint.address
    # gRPC would take http_proxy from the environment, for a broker on this machine, too.
    proxy = ("grpc.http_proxy", endpoint.proxy) if endpoint.proxy else _NO_PROXY
    options = (*_OPTIONS, proxy)
    if not endpoint.is_tls:
        return grpc.insecure_channel(address, options=options)
    ca, key, certificate = [
        each.encode() or None
        for each in (credentials.ca, credentials.private_key, credentials.certificate)
    ]
    tls = grpc.ssl_channel_credentials(ca, key, certificate)
    return grpc.secure_channel(address, tls, options=options)


def _check_ca(text: str) -> None:
    """gRPC would only say that no connection can be made."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidValue("ca", f"{len(text)} characters", "certificates in PEM") from error


def retry_pause_s(attempt: int) -> float:
    """The pause after the n-th failure in a row, counted from 0: it doubles, up to a limit."""
    return min(RETRY_PAUSE_S_MAX, RETRY_PAUSE_S_MIN * 2.0 ** min(attempt, 10))


def closed_error() -> Refused:
    """The error of every call after close()."""
    return Refused("this client is closed", field="client", rule="make a new one")
