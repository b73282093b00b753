"""rmqlite dlq import: send the dead letters of a file that dlq export wrote, each once.

It is how a body is repaired: export, edit the bodies, import.  The broker makes the messages as
its redrive does, and counts letters that it still has as redriven.  So a file may be imported again
after a crash.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rmqlite.cli.broker_view import connected
from rmqlite.cli.dlq.export import letter_in, row_in
from rmqlite.cli.dlq.job import place_of, print_topics
from rmqlite.cli.dlq.redrive import Rate, ToTopic
from rmqlite.cli.options import NOT_ALL, ChangeOptions, with_options
from rmqlite.cli.output.documents import Document, fields_of, many, prints
from rmqlite.cli.output.progress import counting
from rmqlite.cli.output.terminal import (
    is_confirmed,
    note,
    print_json,
    print_tall_table,
    printable,
)
from rmqlite.client import (
    IMPORTED_DEAD_LETTERS_MAX,
    ImportAnswer,
    ImportedDeadLetter,
    ImportRequest,
    ReadersOfTopic,
    RedriveOutcome,
)
from rmqlite.kernel.words.clock import elapsed_s, pause_s
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.views.jobs import counts_text
from rmqlite.views.messages import letters_text

if TYPE_CHECKING:
    from rmqlite.client import AdminClient

_REASON: Final = Document(
    "RefusedReason", "Such as a place, or a line.", **fields_of(str, "reason example"), letters=int
)
_IMPORTED: Final = Document(
    "ImportedLetters",
    "The outcomes of the letters of a file.",
    **fields_of(int, "sent already refused"),
    dry_run=bool,
    topics=list[ReadersOfTopic],
    reasons=many(_REASON),
)
_REASONS_MAX: Final = 20
_CALL_BYTES_MAX: Final = 1 << 20
"""A call ends with the letter whose body makes all of them together longer than this."""


class _Import:
    """The letters of a file, and counts of their outcomes."""

    def __init__(self, file: Path, to_topic: str, rate: int, *, dry_run: bool) -> None:
        self.sent = 0
        self.already = 0
        self.refused = 0
        self._topics: tuple[ReadersOfTopic, ...] = ()
        self._reasons: dict[str, dict[str, Any]] = {}
        self._file = file
        self._to_topic = to_topic
        self._dry_run = dry_run
        # A rate makes small calls, so that messages leave evenly.
        is_slow = rate and not dry_run
        self._at_once = min(IMPORTED_DEAD_LETTERS_MAX, max(1, rate // 10)) if is_slow else 100
        self._rate = rate if is_slow else 0

    def run(self, admin: AdminClient) -> None:
        """Send all letters, or ask what would become of them.  Raises the client's errors."""
        began_s = elapsed_s()
        done = 0
        with counting("looking" if self._dry_run else "sent") as report:
            for group, letters in self._calls():
                if self._rate:
                    pause_s(max(0.0, began_s + done / self._rate - elapsed_s()))
                request = ImportRequest(
                    group, letters, self._to_topic, not self._to_topic, self._dry_run
                )
                self._take(group, admin.redrives.import_letters(request))
                done += len(letters)
                report(self.sent)

    def report(self, *, as_json: bool) -> None:
        """Print the counts, and the reasons of refused letters."""
        reasons = list(self._reasons.values())
        if as_json:
            counts = {"sent": self.sent, "already": self.already, "refused": self.refused}
            about = {"dry_run": self._dry_run, "topics": self._topics, "reasons": reasons}
            print_json(_IMPORTED.tree(**counts, **about))
            return
        if self._dry_run:
            print_topics(self._topics)
        sys.stdout.write(f"{counts_text(self, 'would be sent' if self._dry_run else 'sent')}\n")
        if reasons:
            rows = [
                ((f"{row['letters']:,}", printable(row["example"])), printable(row["reason"]))
                for row in reasons
            ]
            print_tall_table(("REFUSED", "SUCH AS"), rows)

    def _calls(self) -> Iterator[tuple[str, tuple[ImportedDeadLetter, ...]]]:
        """The letters of each call, with their group."""
        several: list[ImportedDeadLetter] = []
        known, size = "", 0
        for group, letter in self._letters():
            own = len(letter.body) + len(letter.properties)
            is_full = len(several) == self._at_once or size + own > _CALL_BYTES_MAX
            if several and (group != known or is_full):
                yield known, tuple(several)
                several, size = [], 0
            known = group
            several.append(letter)
            size += own
        if several:
            yield known, tuple(several)

    def _letters(self) -> Iterator[tuple[str, ImportedDeadLetter]]:
        """The letters that can be sent, with their groups; the other ones are counted."""
        with self._file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = row_in(line)
                    letter = None if row["redriven_by"] else letter_in(row)
                except RmqliteError as error:
                    self._refuse(f"line {number:,}", str(error))
                    continue
                if letter is None:
                    self.already += 1
                else:
                    yield row["group"], letter

    def _take(self, group: str, answer: ImportAnswer) -> None:
        for each in answer.letters:
            if each.outcome is RedriveOutcome.SENT:
                self.sent += 1
            elif each.outcome is RedriveOutcome.ALREADY:
                self.already += 1
            else:
                self._refuse(place_of(group, each), each.why)
        self._topics = ReadersOfTopic.summed([*self._topics, *answer.topics])

    def _refuse(self, example: str, why: str) -> None:
        """Count a letter that cannot be sent, under its reason."""
        self.refused += 1
        if why not in self._reasons and len(self._reasons) >= _REASONS_MAX:
            why = "other reasons"
        row = self._reasons.setdefault(why, _REASON.tree(reason=why, letters=0, example=example))
        row["letters"] += 1


@prints(lambda: _IMPORTED)
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
    """Send the dead letters of FILE back to their groups, each once: to repair their bodies.

    Export them, edit their bodies in the file, import it: those that the broker still has count
    as redriven. Also for those that it no longer has. Without new bodies use dlq redrive. Those
    that were redriven before are left out. Exit code 1: one was refused, or none sent.
    """
    how.check_can_ask()
    with connected(how.endpoint, note=how.note) as admin:
        # A file without a letter asks nothing: fail anyway if the broker is away.
        admin.broker_status()
        if how.dry_run or not how.yes:
            would = _Import(file, to_topic or "", rate, dry_run=True)
            would.run(admin)
            if how.dry_run or not how.as_json:
                would.report(as_json=how.as_json)
            if how.dry_run or not _confirmed(would.sent, how.endpoint):
                is_all_well = how.dry_run and would.sent and not would.refused
                raise typer.Exit(0 if is_all_well else NOT_ALL)
        done = _Import(file, to_topic or "", rate, dry_run=False)
        try:
            done.run(admin)
        except (RmqliteError, KeyboardInterrupt):
            note(f"{letters_text(done.sent)} sent; the same command sends the rest")
            raise
    done.report(as_json=how.as_json)
    if done.refused or not done.sent:
        raise typer.Exit(NOT_ALL)


def _confirmed(letters: int, endpoint: str) -> bool:
    if not letters:
        note("nothing was sent")
        return False
    question = f"send {letters_text(letters)} to the broker at {endpoint}?"
    return is_confirmed(question, "nothing was sent")
