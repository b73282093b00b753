"""The repairs of one failed message, each with its question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rmqlite.client import AdminClient, ChangedId, DeadLetter, DeadLetterFilter, RedriveSpec
from rmqlite.kernel.words.names import is_system_group, retry_topic
from rmqlite.views.failed_messages import origin_text
from rmqlite.views.jobs import readers_text


@dataclass(frozen=True, slots=True)
class Repair:
    """do: makes the call, and returns a sentence about the outcome.

    look: asks the broker for a sentence that belongs to the question; it changes nothing.
    """

    question: str
    do: Callable[[AdminClient], str]
    look: Callable[[AdminClient], str] | None = None


def redrive(letter: DeadLetter) -> Repair:
    """Send a dead letter back to its group; the question says if it was redriven before."""
    # No group has failed a dead letter of the schedule.
    group = "" if is_system_group(letter.group) else f"group {letter.group} only"
    where = group or letter.origin_topic or "its topic"
    return _redrive(letter, f"Send {_named(letter)} again to {where}?")


def publish(letter: DeadLetter) -> Repair:
    """Publish a dead letter to its original topic; the question names who will get it."""
    topic = letter.claimed_topic or letter.origin_topic
    return _redrive(
        letter, f"Publish {_named(letter)} to topic {origin_text(letter)}, for everybody?", topic
    )


def _redrive(letter: DeadLetter, question: str, to_topic: str = "") -> Repair:
    again = bool(letter.redriven_by)
    before = f" It was redriven before, by job {letter.redriven_by}." if again else ""
    wanted = DeadLetterFilter(ids=(letter.offset_message_id,))
    spec = RedriveSpec(letter.group, wanted, to_topic, again=again)

    def do(admin: AdminClient) -> str:
        return f"redrive job {admin.redrives.start(spec).job_id} started"

    def look(admin: AdminClient) -> str:
        return f"It is read by {readers_text(admin.redrives.preview(spec).topics)}."

    return Repair(f"{question}{before}", do, look if to_topic else None)


def retry_now(letter: DeadLetter) -> Repair:
    """Give a retry that waits to its group at once."""

    def do(admin: AdminClient) -> str:
        topic = retry_topic(letter.group)
        return _outcome(admin.schedule.fire(letter.message_id, topic=topic), "given now")

    return Repair(f"Give {_named(letter)} to {letter.group} now?", do)


def cancel(letter: DeadLetter) -> Repair:
    """Cancel a waiting retry."""

    def do(admin: AdminClient) -> str:
        topic = retry_topic(letter.group)
        return _outcome(admin.schedule.cancel(letter.message_id, topic=topic), "cancelled")

    question = f"Cancel the retry of {_named(letter)}? {letter.group} never gets it."
    return Repair(question, do)


def _named(letter: DeadLetter) -> str:
    """The letter's id, and its keys, which mean more to a person."""
    keys = f" ({' '.join(letter.keys)})" if letter.keys else ""
    return f"message {letter.message_id}{keys}"


def _outcome(changed: tuple[ChangedId, ...], done: str) -> str:
    (answer,) = changed
    if answer.count:
        return f"{answer.message_id}: {done}"
    return f"{answer.message_id}: {answer.outcome.name.lower().replace('_', ' ')}"


REPAIRS: Final[dict[str, Callable[[DeadLetter], Repair]]] = {
    "redrive": redrive,
    "publish": publish,
    "now": retry_now,
    "cancel": cancel,
}
"""redrive and publish are for dead letters, the others are for waiting retries."""
