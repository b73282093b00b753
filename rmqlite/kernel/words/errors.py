"""Every error that rmqlite raises on purpose.

One tree, two branches: Refused (this request can never work as it stands) and
Unavailable (not now; the same request may work later).  Each class has a stable
`code` for programs, RocketMQ's numeric `response_code`, and builds its sentence
from its fields, so that a caller sees the field, the value and the rule.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from typing import Any, ClassVar

from rmqlite.kernel.words.visible import did_you_mean, shortened


class RmqliteError(Exception):
    """The root.  `field`, `value` and `rule` are empty if no single field is wrong."""

    code: ClassVar[str] = "error"
    response_code: ClassVar[int] = 1
    can_retry: ClassVar[bool] = False

    def __init__(
        self, sentence: str, *, field: str = "", value: object = "", rule: str = ""
    ) -> None:
        super().__init__(sentence)
        self.field = field
        self.value = shortened(value)
        self.rule = rule

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copy: the sentence is made, so __init__ has nothing to do any more."""
        return _remade, (type(self), self.args), self.__dict__


class Refused(RmqliteError):
    """This request can never work; change it before asking again."""

    code = "refused"


class Unavailable(RmqliteError):
    """Not now; the same request may work later."""

    code = "unavailable"
    response_code = 14
    can_retry = True


class InvalidValue(Refused):
    """A field's value breaks a rule; what explains the rule follows ": " or "; " in it."""

    code = "invalid-value"
    response_code = 13

    def __init__(self, field: str, value: object, rule: str, sentence: str = "") -> None:
        wanted, *explained = re.split("(?<!:)(?=: |; )", rule, maxsplit=1)
        default = f"{field} must be {wanted}, not {shortened(value)!r}{''.join(explained)}"
        super().__init__(sentence or default, field=field, value=value, rule=rule)


class InvalidName(InvalidValue):
    """A topic or group name breaks the naming rules."""

    code = "invalid-name"
    response_code = 1


class ExpressionInvalid(InvalidValue):
    """A filter expression does not parse; at: the place in it, counted from 0."""

    code = "expression-invalid"
    response_code = 23

    def __init__(self, field: str, expression: str, rule: str, *, at: int) -> None:
        rest = expression[at : at + 20]
        place = f"before {rest!r}" if rest else "at the end"
        rule, start = (
            f"at character {at + 1}, {place}: {rule}",
            f"{field}={shortened(expression)!r}",
        )
        super().__init__(field, expression, rule, f"{start} does not parse {rule}")
        self.at = at


class MessageTooLarge(InvalidValue):
    """A body, a property string or a call is over its limit; value is a size or a count.

    A call with several messages may work if it is split into smaller calls.
    """

    code = "message-too-large"


class DelayUnknown(InvalidValue):
    """No delay level is exactly as long as the requested delay."""

    code = "delay-unknown"

    def __init__(self, delay: str, known: str) -> None:
        super().__init__(
            "delay",
            delay,
            f"a level's delay: no level is exactly that long; the levels are {known};"
            " deliver_after (--after) takes any time",
        )


class TimersOff(InvalidValue):
    """The broker has delay levels only; a client of RocketMQ then tries another broker."""

    code = "timers-off"
    response_code = 1


class ConfigInvalid(Refused):
    """A configuration file, key or value cannot be used; line is 0 if no line is to blame."""

    code = "config-invalid"

    def __init__(self, source: str, line: int, key: str, value: object, rule: str) -> None:
        place = f"{source}:{line}" if line else source
        super().__init__(
            f"{place}: {key}={shortened(value)!r}: {rule}", field=key, value=value, rule=rule
        )
        self.source = source
        self.line = line


class RepairRefused(Refused):
    """A repair would remove bytes that no damage explains; it has changed nothing."""

    code = "repair-refused"


class HandleInvalid(InvalidValue):
    """A receipt handle is not that of a lease: it was acknowledged, has expired, or never was."""

    code = "handle-invalid"
    response_code = 208

    def __init__(self, handle: object) -> None:
        rule = "that of a message that is leased now: it is acknowledged, expired or foreign"
        super().__init__("receipt_handle", handle, rule)


class TopicUnknown(Refused):
    """There is no such topic, and it was not created on demand."""

    code = "topic-unknown"
    response_code = 17

    def __init__(self, topic: str) -> None:
        rule = "create the topic first, or set autoCreateTopicEnable=true"
        super().__init__(
            f"no topic named {shortened(topic)!r}", field="topic", value=topic, rule=rule
        )


class TopicExists(Refused):
    """A topic of that name exists with other settings."""

    code = "topic-exists"
    response_code = 18

    def __init__(self, topic: str) -> None:
        sentence = f"topic {shortened(topic)!r} exists already"
        super().__init__(sentence, field="topic", value=topic, rule="choose another name")


class PermissionMissing(Refused):
    """The topic or group does not permit this operation."""

    code = "permission-missing"
    response_code = 16

    def __init__(self, name: str, operation: str, rule: str) -> None:
        sentence = f"{operation} {shortened(name)!r} is forbidden: {rule}"
        super().__init__(sentence, field="topic", value=name, rule=rule)


class AccessDenied(Refused):
    """The caller has no account, or its account lacks a right; the sentence names the rule."""

    code = "access-denied"


class QueueUnknown(Refused):
    """The topic has no such queue."""

    code = "queue-unknown"

    def __init__(self, topic: str, queue_id: int, queues: int) -> None:
        sentence, rule = f"topic {shortened(topic)!r} has no queue", f"0 <= queue_id < {queues}"
        super().__init__(f"{sentence} {queue_id}", field="queue_id", value=queue_id, rule=rule)


class GroupUnknown(Refused):
    """There is no such consumer group, and it was not created on demand."""

    code = "group-unknown"
    response_code = 26

    def __init__(self, group: str, known: Iterable[str] = ()) -> None:
        near = did_you_mean(group, known)
        sentence = f"no consumer group named {shortened(group)!r}{near}"
        rule = "create the group first, or set autoCreateSubscriptionGroup=true"
        if near:
            rule = near.removeprefix("; ")
        super().__init__(sentence, field="group", value=group, rule=rule)


class GroupInUse(Refused):
    """The group has members, which would undo the change or be surprised by it."""

    code = "group-in-use"

    def __init__(self, group: str, members: int) -> None:
        rule = "stop its consumers first, or force it"
        sentence = f"group {shortened(group)!r} has {members} live member{'s'[: members != 1]}"
        super().__init__(sentence, field="group", value=group, rule=rule)


class MessageNotFound(Refused):
    """No message begins at that physical offset: none was written there, or retention took it."""

    code = "message-not-found"

    def __init__(self, physical_offset: int) -> None:
        super().__init__(
            f"no message begins at physical offset {physical_offset}",
            field="physical_offset",
            value=physical_offset,
            rule="the physical offset of a message that this broker still has",
        )


class OffsetGone(Refused):
    """Retention has deleted the requested offset of the log or of a queue."""

    code = "offset-gone"

    def __init__(self, what: str, offset: int, min_offset: int) -> None:
        super().__init__(
            f"{shortened(what)}: offset {offset} is gone, the first one kept is {min_offset}",
            field="offset",
            value=offset,
            rule=f"{min_offset} or more",
        )


class JobUnknown(Refused):
    """There is no such job, or the broker has forgotten it because it is old."""

    code = "job-unknown"

    def __init__(self, job_id: str) -> None:
        sentence = f"no job named {shortened(job_id)!r}"
        rule = "one of the jobs that rmqlite job list shows"
        super().__init__(sentence, field="job_id", value=job_id, rule=rule)


class JobExists(Refused):
    """A job with that id exists and does something else."""

    code = "job-exists"

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"job {shortened(job_id)!r} exists already and does something else",
            field="job_id",
            value=job_id,
            rule="another id, or the same request as the first time",
        )


class JobOver(Refused):
    """The job has ended; state tells how."""

    code = "job-over"

    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(
            f"job {shortened(job_id)!r} is over: {shortened(state)}",
            field="job_id",
            value=job_id,
            rule="a job that is running or paused",
        )


class ExtraMissing(Refused):
    """A package or a program that a part of rmqlite needs is not installed."""

    code = "extra-missing"

    def __init__(self, what: str, found: str, remedy: str) -> None:
        super().__init__(
            f"{what} is needed, found {found}: {remedy}", field=what, value=found, rule=remedy
        )


class NotSupported(Refused):
    """The broker understands the request but does not support it."""

    code = "not-supported"
    response_code = 3


class StoreDamaged(Refused):
    """Bytes on disk are not those that were written: nothing is skipped, the store stays shut."""

    code = "store-damaged"

    def __init__(self, path: str, position: int, expected: str, found: str) -> None:
        super().__init__(
            f"{path} is damaged at byte {position}: expected {expected}, found {found}",
            field=path,
            value=position,
            rule=expected,
        )
        self.path = path
        self.position = position
        self.found = found


class StoreLocked(Refused):
    """Another process writes to this store."""

    code = "store-locked"

    def __init__(self, path: str) -> None:
        sentence = f"{path} is locked: another broker is running on this store"
        rule = "one broker per store"
        super().__init__(sentence, field="storePathRootDir", value=path, rule=rule)


class StoreUnavailable(Unavailable):
    """The disk did not take the bytes (full, or an I/O error): ask again, nothing was promised."""

    code = "store-unavailable"
    _is_full = False

    def __init__(self, operation: str, path: str, reason: str, *, is_full: bool = False) -> None:
        super().__init__(
            f"cannot {operation} {path}: {reason}", field="store", value=path, rule=reason
        )
        self._is_full = is_full

    def __reduce__(self) -> tuple[Any, ...]:
        """The cause stays behind, but not what it says."""
        make, args, fields = super().__reduce__()
        return make, args, fields | {"_is_full": True} if self.is_full else fields

    @property
    def is_full(self) -> bool:
        """Was space or quota missing?  A client cannot see this: the wire does not carry it."""
        cause = self.__cause__
        return self._is_full or (
            isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
        )


class DiskFull(Unavailable):
    """The disk is so full that sends are refused, to leave room for accepted messages.

    used_ratio: 0 to 1.  refused_at, taken_below: the values of the two keys, in percent.
    """

    code = "disk-full"

    def __init__(self, used_ratio: float, refused_at: int, taken_below: int) -> None:
        super().__init__(
            f"the disk is {used_ratio:.1%} full: sends are refused",
            field="diskSpaceWarningLevelRatio",
            value=refused_at,
            rule=f"from diskSpaceWarningLevelRatio={refused_at} on,"
            f" until it is below diskSpaceCleanForciblyRatio={taken_below}",
        )


class FlushFailed(Unavailable):
    """A sync failed or took too long; the request may or may not survive a crash.

    is_final: True if the disk has failed, and the broker ends; False if it is only slow.  The
    wire does not carry it.
    """

    code = "flush-failed"
    response_code = 10
    is_final = True

    def __init__(self, sentence: str, *, is_final: bool = True, **about: Any) -> None:
        super().__init__(sentence, **about)
        self.is_final = is_final


class NotMaster(Unavailable):
    """This broker only keeps a copy; value is the address of the one to ask, if it is known."""

    code = "not-master"
    was_never_sent = False
    """Does the client ask another broker next?"""

    def __init__(self, address: str, reason: str = "") -> None:
        place = f"it is {address}" if address else reason or "ask the other broker"
        sentence = f"this broker is not the master; {place}"
        super().__init__(sentence, field="master", value=address, rule="ask the master")


class BrokerClosing(Unavailable):
    """The broker is shutting down."""

    code = "broker-closing"

    def __init__(self) -> None:
        super().__init__("the broker is shutting down")


class Overloaded(Unavailable):
    """A named limit is reached."""

    code = "overloaded"
    response_code = 2

    def __init__(self, limit: str, value: int) -> None:
        rule = "try again later, or raise the limit"
        sentence = f"the broker is at its limit {limit}={value}"
        super().__init__(sentence, field=limit, value=value, rule=rule)


class BrokerUnreachable(Unavailable):
    """No answer from the broker: it is down, unreachable, or the deadline passed."""

    code = "broker-unreachable"
    response_code = 10001
    was_never_sent = False
    """Was no connection made?  Then the request has not run."""


def _remade(cls: type[RmqliteError], args: tuple[object, ...]) -> RmqliteError:
    """An error as it was raised, without its fields."""
    error = cls.__new__(cls)
    error.args = args
    return error


def by_code() -> dict[str, type[RmqliteError]]:
    """Every error class by its stable code."""
    classes: list[type[RmqliteError]] = [RmqliteError]
    for cls in classes:
        # The list grows while the loop goes through it.
        classes += cls.__subclasses__()
    return {cls.code: cls for cls in classes}


def restore(code: str, sentence: str, *, field: str, value: str, rule: str) -> RmqliteError:
    """The error that another process raised; an unknown code becomes the root class."""
    cls = by_code().get(code, RmqliteError)
    error = cls.__new__(cls)
    RmqliteError.__init__(error, sentence, field=field, rule=rule)
    # The process that raised it has shortened the value already.
    error.value = value
    return error


def must_be_type(field: str, rule: str, value: object) -> InvalidValue:
    """The error for a value of a wrong type: it names the type, the value may be a secret.

    field: also a part of one, such as "properties['amount']"; the error's field is "properties".
    """
    kind, whole = type(value).__name__, field.partition("[")[0]
    return InvalidValue(whole, kind, rule, f"{field} must be {rule}, not {kind}")
