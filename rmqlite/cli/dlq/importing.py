"""rmqlite dlq import: send the dead letters of a file that dlq export wrote, each once.

A letter's message id is made of its place, the same as in the broker's redrive.  The broker
stores a message id once under its topic, so a file may be imported again after a crash.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rmqlite.cli.dlq.export_rows import message_of, row_in
from rmqlite.cli.job.redrive_jobs import counts_text
from rmqlite.cli.letter_options import Rate, ToTopic
from rmqlite.cli.options import NOT_ALL, ChangeOptions, with_options
from rmqlite.cli.output.letter_text import letters_text
from rmqlite.cli.output.progress import counting
from rmqlite.cli.output.terminal import (
    is_confirmed,
    note,
    print_json,
    print_table,
    print_two_line_table,
    printable,
)
from rmqlite.clock import elapsed_s, pause_s
from rmqlite.errors import RmqliteError
from rmqlite.message import REDRIVE_ID_PREFIX, Message

_REASONS_MAX: Final = 20


class _Import:
    """The letters of a file, and counts of their outcomes."""

    def __init__(self, file: Path, to_topic: str) -> None:
        self.sent = 0
        self.already = 0
        self.refused = 0
        self.topics: Counter[str] = Counter()
        self._reasons: dict[str, dict[str, Any]] = {}
        self._file = file
        self._to_topic = to_topic

    def messages(self) -> Iterator[Message]:
        """The messages of letters that can be sent; the other letters are counted."""
        with self._file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = row_in(line)
                    message = None if row.get("redriven_by") else message_of(row, self._to_topic)
                except RmqliteError as error:
                    self.refuse(f"line {number:,}", str(error))
                    continue
                if message is None:
                    self.already += 1
                else:
                    yield message

    def refuse(self, example: str, why: str) -> None:
        """Count a letter that cannot be sent, under its reason."""
        self.refused += 1
        if why not in self._reasons and len(self._reasons) >= _REASONS_MAX:
            why = "other reasons"
        row = self._reasons.setdefault(why, {"reason": why, "letters": 0, "example": example})
        row["letters"] += 1

    def tell(self, *, as_json: bool, dry_run: bool) -> None:
        """Print the counts, and the reasons of refused letters."""
        reasons = list(self._reasons.values())
        if as_json:
            counts = {"sent": self.sent, "already": self.already, "refused": self.refused}
            print_json(counts | {"dry_run": dry_run, "topics": self.topics, "reasons": reasons})
            return
        if self.topics:
            print_table(("TO TOPIC", "WOULD BE SENT"), sorted(self.topics.items()))
        sys.stdout.write(f"{counts_text(self, 'would be sent' if dry_run else 'sent')}\n")
        if reasons:
            rows = [
                ((f"{row['letters']:,}", printable(row["example"])), printable(row["reason"]))
                for row in reasons
            ]
            print_two_line_table(("REFUSED", "SUCH AS"), rows)


@with_options
def import_letters(
    *,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="JSON lines from dlq export.", exists=True, dir_okay=False
        ),
    ],
    to_topic: ToTopic = None,
    rate: Rate = 0,
    how: ChangeOptions,
) -> None:
    """Send the dead letters of FILE to their original topics, each once.

    It is for letters that the broker no longer has; for others use dlq redrive.  Letters that were
    redriven before are left out.  Exit code 1: one was refused, or none sent.
    """
    if to_topic == "":
        raise typer.BadParameter("--to-topic is empty")
    how.check_can_ask()
    done = _Import(file, to_topic or "")
    if how.dry_run or not how.yes:
        with counting("looking") as tell:
            for message in done.messages():
                done.sent += 1
                done.topics[message.topic] += 1
                tell(done.sent)
        if how.dry_run or not how.as_json:
            done.tell(as_json=how.as_json, dry_run=True)
        if how.dry_run or not _confirmed(done.sent, how.endpoint):
            is_all_well = how.dry_run and done.sent and not done.refused
            raise typer.Exit(0 if is_all_well else NOT_ALL)
        done = _Import(file, to_topic or "")
    _send(done, how.endpoint, rate)
    done.tell(as_json=how.as_json, dry_run=False)
    if done.refused or not done.sent:
        raise typer.Exit(NOT_ALL)


def _confirmed(letters: int, endpoint: str) -> bool:
    if not letters:
        note("nothing was sent")
        return False
    question = f"send {letters_text(letters)} to the broker at {endpoint}?"
    return is_confirmed(question, "nothing was sent")


def _send(done: _Import, endpoint: str, rate: int) -> None:
    """Send in bulk and count the outcomes.  Raises the errors of the client."""
    from rmqlite.client import AdminClient
    from rmqlite.client.producing.bulk import BATCH_MESSAGES, BulkMessage, BulkScheduler, BulkStatus

    def bulk_messages() -> Iterator[BulkMessage]:
        began_s = elapsed_s()
        for number, each in enumerate(done.messages()):
            if rate:
                pause_s(max(0.0, began_s + number / rate - elapsed_s()))
            yield BulkMessage(
                each.topic, each.body, each.message_id, each.tags, each.keys, each.properties
            )

    with AdminClient(endpoint) as admin:
        # Fail at once if the broker is away, not after the retries of a bulk call.
        admin.broker_status()
    # A rate makes small calls, so that messages leave evenly.
    batch = min(BATCH_MESSAGES, max(1, rate // 10)) if rate else BATCH_MESSAGES
    with BulkScheduler(endpoint, batch_messages=batch) as bulk, counting("sent") as tell:
        try:
            for outcome in bulk.schedule(bulk_messages()):
                if outcome.status is BulkStatus.ACCEPTED:
                    done.sent += 1
                    tell(done.sent)
                elif outcome.status is BulkStatus.DUPLICATE:
                    done.already += 1
                else:
                    done.refuse(
                        outcome.message_id.removeprefix(REDRIVE_ID_PREFIX), str(outcome.error)
                    )
        except (RmqliteError, KeyboardInterrupt):
            note(f"{letters_text(done.sent)} sent; the same command sends the rest")
            raise
