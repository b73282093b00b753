"""What a message must be before the broker accepts it, whichever way it comes in.

An accepted message keeps what its sender asked for, and can be delivered: its delay is understood,
its property string leaves room for all that the broker adds later, and its body is what its sys
flag says.  The compiled form has none of these rules: it leaves every message that they could
refuse to the plain form.
"""

from __future__ import annotations

from typing import Final

from rmqlite.compression import COMPRESSED, why_unreadable
from rmqlite.errors import InvalidValue, MessageTooLarge
from rmqlite.limits import SENT_PROPERTIES_BYTES_MAX
from rmqlite.message import BODY_RULE, DELAY, TIMER_ASKED
from rmqlite.property_string import PropertyString, java_int
from rmqlite.store.records.drafts import Draft
from rmqlite.store.records.record import INNER_BATCH, NEED_UNWRAP

DELAY_PAIR: Final = f"{DELAY}\x01".encode()
_TIMER_MARKS: Final = (b"TIMER_DEL", b"__STARTDELIVERTIME")
"""Each name of TIMER_ASKED begins with one of them."""
_DELAY_RULE: Final = "a whole number from -2147483648 to 2147483647: the delay level"
_TIMER_RULE: Final = (
    "left out: delivery at any instant is not supported yet; delay the message by a level (DELAY)"
)
_INNER_RULE: Final = "without the bits 0x40 and 0x80: inner batches are not supported"
_BATCH_RULE: Final = "without the bit 0x1: messages of a batch must not be compressed"


def check_draft(draft: Draft, *, is_alone: bool = True, is_failed: bool = False) -> None:
    """Raises InvalidValue, MessageTooLarge for a message that must not be stored.

    is_alone: False for a message of a batch.  is_failed: a consumer sends a message again that
    it has failed: its properties were accepted when it was sent first, and the broker's own
    additions are in them.
    """
    if not draft.body:
        raise InvalidValue("body", "", BODY_RULE)
    own = draft.properties
    level_of(own)
    if not is_failed:
        check_sent_properties(own)
        _check_timers(own)
    if draft.sys_flag & (COMPRESSED | INNER_BATCH | NEED_UNWRAP):
        _check_body(draft, is_alone=is_alone)


def level_of(properties: bytes) -> int:
    """The delay level that a property string asks for; 0 for none.

    RocketMQ refuses what Java's Integer.parseInt() refuses, and so does this: otherwise the
    message would be delivered at once.  Raises InvalidValue.
    """
    if DELAY_PAIR not in properties:
        return 0
    text = PropertyString(properties).get(DELAY)
    if text is None:
        return 0
    level = java_int(text)
    if level is None:
        raise InvalidValue(DELAY, text.decode("utf-8", "replace"), _DELAY_RULE)
    return max(0, level)


def check_sent_properties(properties: bytes) -> None:
    """Raises MessageTooLarge for a property string without room for what the broker adds."""
    size = len(properties)
    if size > SENT_PROPERTIES_BYTES_MAX:
        rule = (
            f"at most {SENT_PROPERTIES_BYTES_MAX} bytes as a property string: the broker adds"
            " to it when it delays, retries or redrives the message"
        )
        raise MessageTooLarge("properties", size, rule)


def _check_timers(properties: bytes) -> None:
    """A delivery time that is ignored would be a promise broken in silence."""
    if not any(mark in properties for mark in _TIMER_MARKS):
        return
    own = PropertyString(properties)
    for name in TIMER_ASKED:
        if own.get(name) is not None:
            raise InvalidValue(name, own.text(name), _TIMER_RULE)


def _check_body(draft: Draft, *, is_alone: bool) -> None:
    """RocketMQ's clients lose a whole pull if they cannot read one message of it."""
    if draft.sys_flag & (INNER_BATCH | NEED_UNWRAP):
        raise InvalidValue("sysFlag", draft.sys_flag, _INNER_RULE)
    if not is_alone:
        # All of a batch is made in one step, and no client of RocketMQ compresses one.
        raise InvalidValue("sysFlag", draft.sys_flag, _BATCH_RULE)
    why = why_unreadable(draft.body, draft.sys_flag)
    if why:
        size, flag = len(draft.body), draft.sys_flag
        raise InvalidValue("body", f"{size} bytes", f"compressed as sysFlag {flag} says: {why}")
