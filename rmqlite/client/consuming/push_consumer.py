"""The push consumer: a listener is called for every message of its share of the queues.

    broker -> membership -> readers -> backlog -> listener threads -> commit, or send-back

One loop thread owns everything that talks to the broker; the listener threads share with
it only the backlog.  A message's offset is committed when the listener succeeded or the
broker took the message back: so each is consumed at least once.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from rmqlite.client.channel import Closing, Connection
from rmqlite.client.consuming.backlog import Backlog, CacheLimits, ProcessQueue
from rmqlite.client.consuming.broker_link import BrokerLink, Loop
from rmqlite.client.consuming.listener import (
    ConsumeResult,
    HandOver,
    Listener,
    SendBacks,
    on_this_thread,
)
from rmqlite.client.consuming.queue_reader import (
    EVERYTHING,
    ConsumeFrom,
    PullSettings,
    Start,
    given_sql,
    parse_tags,
)
from rmqlite.client.consuming.readers import OwnMembership, Readers
from rmqlite.client.credentials import Credentials
from rmqlite.client.forks import follow
from rmqlite.client.tracing import Tracing
from rmqlite.client.unique_id import own_client_id
from rmqlite.kernel.requests.groups import OffsetsCommit, Subscription
from rmqlite.kernel.requests.topics import Queue, RouteRequest
from rmqlite.kernel.words.errors import InvalidValue, Refused, RmqliteError, TopicUnknown
from rmqlite.kernel.words.levels import check_not_long_ago
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.kernel.words.names import check_group, check_topic, retry_topic
from rmqlite.protocols.native.bytes import rpcs

CALL_S_MAX: Final = 5.0
"""The timeout of the few calls that start() and close() wait for."""
SILENT_S: Final = 1.0
"""close() waits so long for listeners without a word."""
WAITING: Final = (
    "closing: waiting for %d listeners, at most %g s; a second Ctrl-C ends the wait group=%s"
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Running:
    """The parts that exist from start() to close()."""

    loop: Loop
    readers: Readers
    membership: OwnMembership
    send_backs: SendBacks


class PushConsumer(Closing):
    """Consumes messages as a member of a group.  Usable from any thread.

    Call subscribe(), then listen() unless the listener is given here, then start(); `with` only
    closes the consumer, so call all of them inside it.

    listener: see listen().  consume_threads: how many messages are consumed at a time.
    pull_batch: messages per pull.  cached_messages_max, cached_bytes_max (of records): limits per
    queue of messages pulled and not finished; while one is reached, nothing is pulled, but one
    pull may exceed it.  max_reconsume_times: None means the group's; a limit set by a message's
    sender comes first.  consume_from: where the group starts in a queue that
    it never committed: FIRST_OFFSET, LAST_OFFSET, or a store timestamp in ms.
    commit_interval_ms: the time between commits; a crash may repeat this much.
    heartbeat_interval_ms: how long a heartbeat waits for a new assignment.  close_timeout_ms: how
    long close() waits for running listeners.  client_id: unique in the group; generated if None.
    credentials: what they lack
    comes from the environment.  tracing: make a span of each call of the listener.
    """

    def __init__(
        self,
        endpoint: str,
        group: str,
        listener: Listener | None = None,
        *,
        consume_threads: int = 20,
        pull_batch: int = 32,
        cached_messages_max: int = 1_000,
        cached_bytes_max: int = 100 * 1024 * 1024,
        max_reconsume_times: int | None = None,
        consume_from: Start = ConsumeFrom.FIRST_OFFSET,
        commit_interval_ms: float = 5_000,
        heartbeat_interval_ms: int = 10_000,
        close_timeout_ms: float = 30_000,
        client_id: str | None = None,
        credentials: Credentials | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        check_group(group)
        for name, value, least in (
            ("consume_threads", consume_threads, 1),
            ("pull_batch", pull_batch, 1),
            ("cached_messages_max", cached_messages_max, 1),
            ("cached_bytes_max", cached_bytes_max, 1),
            ("commit_interval_ms", commit_interval_ms, 1),
            ("heartbeat_interval_ms", heartbeat_interval_ms, 0),
            ("close_timeout_ms", close_timeout_ms, 0),
        ):
            if value < least:
                raise InvalidValue(name, value, f"{least} or more")
        if isinstance(consume_from, int):
            check_not_long_ago("consume_from", consume_from)
        self.group: Final = group
        self._given_client_id = client_id
        self._spans = tracing.spans(endpoint, group) if tracing else None
        self._hand_over = None if listener is None else on_this_thread(listener, self._spans)
        self._subscriptions: dict[str, Subscription] = {}
        self._consume_from = consume_from
        self._max_reconsume_times = max_reconsume_times
        self._commit_interval_s = commit_interval_ms / 1000
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._close_timeout_s = close_timeout_ms / 1000
        limits = CacheLimits(cached_messages_max, cached_bytes_max)
        self._settings = PullSettings(group, pull_batch, limits)
        self._connection = Connection(endpoint, credentials=credentials)
        self._consume_threads = consume_threads
        self._taking_threads = consume_threads
        self._running: _Running | None = None
        self._closed = False
        self._was_forked = False
        self.begin_anew()
        follow(self)

    def begin_anew(self) -> None:
        """For a forked child: it has none of the threads, and is no member of the group."""
        self._was_forked = self._was_forked or self._running is not None
        self._running = None
        self.client_id: str = self._given_client_id or own_client_id()
        self._backlog = Backlog(self._consume_threads)
        if self._was_forked:
            # A listener may have forked: the child of its thread must end with it.
            self._backlog.stop()
        self._threads: list[threading.Thread] = []
        self._lifecycle = threading.Lock()

    def subscribe(
        self, topic: str, expression: str = EVERYTHING, *, sql: str | None = None
    ) -> None:
        """Consume a topic: all of it, or the tags of "TagA || TagB".  Before start().

        sql: only messages whose properties match this SQL92 expression, such as
        "amount > 100 AND region IN ('eu', 'uk')"; with tags and sql a message has to match both.
        start() raises ExpressionInvalid for one that does not parse.  All members of a group must
        subscribe to the same.  The group's retry topic is subscribed automatically, and is not
        filtered.  Raises InvalidName, InvalidValue, Refused.
        """
        check_topic(topic)
        self._check_not_started()
        self._subscriptions[topic] = Subscription(topic, expression, given_sql(sql))

    def listen(self, listener: Listener) -> Listener:
        """Call this for every message; also a decorator.  Before start().

        It gets one message, whose topic is the original one even in a retry (see reconsume_times).
        It succeeds if it returns nothing, or CONSUME_SUCCESS; reconsume_later(...) and a raised
        RetryLater fail the message.  Any other exception, also SystemExit, and any other value fail
        it, too: that is logged, and the reason says so.  A body that cannot be inflated fails
        without a call of the listener.  Raises InvalidValue for an async function or a generator,
        Refused after start().
        """
        self._check_not_started()
        self._hand_over = on_this_thread(listener, self._spans)
        return listener

    def listen_elsewhere(self, hand_over: HandOver) -> None:
        """For rmqlite.client.asyncio: one thread hands the messages over, in the order of each
        queue, and consume_threads is how many of them may be consumed at a time.  Before start().
        """
        self._check_not_started()
        self._hand_over = hand_over
        self._taking_threads = 1

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queues that this member reads now, including those of the retry topic."""
        return self._running.readers.queues if self._running else ()

    def wait_assigned(self, timeout_ms: float) -> bool:
        """Wait until this member has a queue to read; False at the timeout."""
        return bool(self._running and self._running.readers.wait_assigned(timeout_ms / 1000))

    def start(self) -> None:
        """Join the group and consume, on threads of its own; call it once.

        Raises Refused without a listener or a subscription, when called again or after close(),
        and when the broker refuses the group; if the broker is away, the consumer waits for it in
        the background.
        """
        with self._lifecycle:
            self._check_not_started("start() is called once")
            if self._hand_over is None:
                raise _not_ready("no listener", "listener", "give one, or call listen()")
            if not self._subscriptions:
                raise _not_ready("no subscription", "topic", "call subscribe() for a topic")
            running = self._assembled()
            running.membership.join(self._connection, CALL_S_MAX)
            self._warn_of_silence()
            self._running = running
            running.loop.post(running.readers.start)
            running.loop.post(running.membership.start)
            running.loop.start()
            self._threads = [
                threading.Thread(
                    target=self._consume, name=f"rmqlite-{self.group}-{n}", daemon=True
                )
                for n in range(self._taking_threads)
            ]
            for thread in self._threads:
                thread.start()

    def stop_listening(self) -> None:
        """Start no listener any more; running listeners finish.  It cannot be undone.

        Returns at once, so a listener may call it to be the last one.  This consumer stays a
        member and holds its queues until close(); finished messages are committed as usual.
        """
        self._backlog.stop()

    def close(self) -> None:
        """Stop pulling, let running listeners finish, commit, leave the group.

        Waits up to close_timeout_ms for listeners and send-backs; messages that are not finished
        by then are delivered again, to another member or after the next start.  If a listener
        calls it, it does not wait for that listener.
        """
        self.close_within(int(threading.current_thread() in self._threads))

    def close_within(self, listeners: int) -> None:
        """close() that so many running listeners wait for, and that does not wait for them."""
        with self._lifecycle:
            if self._closed:
                return
            self._closed = True
            if self._running is not None:
                self._stop(self._running, listeners)
            self._connection.close()

    def _assembled(self) -> _Running:
        loop = Loop(f"rmqlite-{self.group}")
        link = BrokerLink(self._connection, loop, self.group)
        readers = Readers(
            self._subscriptions,
            self._consume_from,
            self._commit_interval_s,
            self._settings,
            link,
            loop,
            self._backlog,
        )
        membership = OwnMembership(
            self.group,
            self.client_id,
            tuple(sorted(self._subscriptions.values())),
            self._heartbeat_interval_ms,
            link,
            loop,
            readers.assign,
        )
        send_backs = SendBacks(self.group, self._max_reconsume_times, link, loop, self._backlog)
        return _Running(loop, readers, membership, send_backs)

    def _stop(self, running: _Running, besides: int) -> None:
        running.loop.post(running.readers.stop)
        running.loop.post(running.send_backs.close)
        self._backlog.stop()
        # Heartbeats continue, so no other member gets these messages before the commit.
        interrupted: BaseException | None = None
        try:
            is_quiet = self._wait_quiet(besides)
        except BaseException as error:  # a second Ctrl-C: commit and leave
            interrupted, is_quiet = error, False
        if not is_quiet:
            log.warning("closing while listeners run, they will be repeated group=%s", self.group)
        running.loop.post(running.membership.stop)
        running.loop.stop()
        self._commit_last()
        running.membership.leave(self._connection, CALL_S_MAX)
        for thread in self._threads if is_quiet else ():
            if thread is not threading.current_thread():
                thread.join()
        if interrupted is not None:
            raise interrupted

    def _wait_quiet(self, besides: int) -> bool:
        silent_s = min(SILENT_S, self._close_timeout_s)
        if self._backlog.wait_quiet(silent_s, besides):
            return True
        log.warning(WAITING, self._backlog.unfinished - besides, self._close_timeout_s, self.group)
        return self._backlog.wait_quiet(self._close_timeout_s - silent_s, besides)

    def _warn_of_silence(self) -> None:
        """Say why nothing will come, if that can be known now; it may be meant so."""
        for topic, each in self._subscriptions.items():
            tags = parse_tags(each.expression).tags or ()
            for pattern in [tag for tag in tags if "*" in tag]:
                log.warning(
                    "tags match whole, there are no patterns: only the tag %r itself comes"
                    " group=%s topic=%s",
                    pattern,
                    self.group,
                    topic,
                )
        try:
            for topic in self._subscriptions:
                self._connection.call(rpcs.GET_ROUTE, RouteRequest(topic), CALL_S_MAX)
        except TopicUnknown as error:
            log.warning("nothing comes before the topic exists group=%s: %s", self.group, error)
        except RmqliteError as error:
            log.debug("the topics are not known group=%s: %s", self.group, error)

    def _commit_last(self) -> None:
        commit = OffsetsCommit(self.group, self._backlog.uncommitted())
        try:
            for part in commit.parts():
                self._connection.call(rpcs.COMMIT_OFFSETS, part, CALL_S_MAX)
        except RmqliteError as error:
            log.warning("the last commit failed group=%s: %s", self.group, error)

    def _check_not_started(self, rule: str = "do it before start()") -> None:
        if self._running is not None or self._closed:
            state = "closed: make a new one" if self._closed else "started already"
            raise Refused(f"this consumer was {state}; {rule}", field="consumer", rule=rule)
        if self._was_forked:
            rule = "start another one in this process"
            raise Refused(
                f"this consumer was started before the fork, it runs in the parent: {rule}",
                field="consumer",
                rule=rule,
            )

    # ---- the listener threads

    def _consume(self) -> None:
        running, hand_over = self._running, self._hand_over
        assert running is not None
        assert hand_over is not None
        retries = retry_topic(self.group)
        here = threading.get_ident()
        while (taken := self._backlog.take()) is not None:
            queue, message = taken
            shown = message
            if message.topic == retries:
                shown = replace(message, topic=message.origin_topic)
            hand_over(shown, partial(self._settle, running, here, queue, message))

    def _settle(
        self,
        running: _Running,
        taker: int,
        queue: ProcessQueue,
        message: StoredMessage,
        result: ConsumeResult | None,
    ) -> None:
        is_finished = result is not None and result.is_success
        takes_next = taker == threading.get_ident()
        self._backlog.returned(queue, message, is_finished=is_finished, takes_next=takes_next)
        if result is None:
            self._backlog.abandon(queue)
        elif not is_finished:
            running.loop.post(partial(running.send_backs.send, queue, message, result))


def _not_ready(what: str, field: str, rule: str) -> Refused:
    return Refused(f"{what}: {rule} before start()", field=field, rule=rule)
