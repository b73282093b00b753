"""Purging: hide the dead letters of a group that match a filter, or show all of them again.

Only a filter needs a look at the dead letters; without one, or with an end in time alone, the
marker of each queue moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from rmqlite.features.dead_letters.listing import STEP_DEAD_LETTERS, DeadLetters, Shown, count_shown
from rmqlite.features.dead_letters.purge_markers import PurgeMarkers
from rmqlite.features.dead_letters.reading import check_filter, fits
from rmqlite.features.dead_letters.redriven import Redriven
from rmqlite.features.dead_letters.requests import (
    DEAD_LETTERS_MAX,
    EVERY_DEAD_LETTER,
    DeadLetterFilter,
    DeadLettersQuery,
    Purged,
    PurgeRequest,
)
from rmqlite.kernel import Steps
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.pulling import offset_at
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.names import dlq_topic


class Purging:
    """Changes the purge markers of a store."""

    def __init__(
        self,
        parts: BrokerParts,
        markers: PurgeMarkers,
        dead: DeadLetters,
        shown: Shown,
        redriven: Redriven,
    ) -> None:
        self._store = parts.store
        self._dead = dead
        self._markers = markers
        self._shown = shown
        self._redriven = redriven

    def purge(self, request: PurgeRequest) -> Steps[Purged]:
        """Hide a group's dead letters, or show all again, in steps; on disk with the next sync.

        Raises GroupUnknown, InvalidValue, StoreUnavailable.
        """
        group, wanted = request.group, request.filter
        if wanted == EVERY_DEAD_LETTER:
            wanted = replace(wanted, until_ms=request.until_ms)
        check_filter(wanted)
        if request.restore:
            _check_empty(wanted)
        queues = self._dead.queues_of(group)
        if request.restore:
            found = {n: CompletedOffsets([(0, each.min_offset)]) for n, each in queues.items()}
            purged = self._restored(group, queues)
        else:
            found = yield from self._matching(group, wanted, queues)
            purged = self._purged(group, queues, found)
        if not request.dry_run and purged.letters:
            (self._markers.set if request.restore else self._markers.hide)(group, found)
        return purged

    def _matching(
        self, group: str, wanted: DeadLetterFilter, queues: Mapping[int, ConsumeQueue]
    ) -> Steps[dict[int, CompletedOffsets]]:
        """The dead letters that match, by queue id; hidden ones may be among them."""
        if wanted == replace(EVERY_DEAD_LETTER, until_ms=wanted.until_ms):
            found = {}
            for queue_id, (queue, _, end) in self._dead.ranges(group, queues).items():
                if wanted.until_ms is not None:
                    end = min(end, offset_at(self._store, queue, wanted.until_ms))
                found[queue_id] = CompletedOffsets([(0, end)])
            return found
        found = {}
        query = DeadLettersQuery(group, wanted)
        heads = yield from self._dead.heads(query, {group: queues}, None, DEAD_LETTERS_MAX)
        for number, head in enumerate(heads, 1):
            if fits(head, wanted):
                dead_letters = found.setdefault(head.queue_id, CompletedOffsets())
                dead_letters.add(head.queue_offset, head.queue_offset + 1)
            if number % STEP_DEAD_LETTERS == 0:
                yield
        return found

    def _purged(
        self,
        group: str,
        queues: Mapping[int, ConsumeQueue],
        found: Mapping[int, CompletedOffsets],
    ) -> Purged:
        """How many of these dead letters are shown now."""
        dead_letters = open_dead_letters = 0
        for queue_id, hiding in found.items():
            span = queues[queue_id].min_offset, queues[queue_id].max_offset
            hidden = self._shown.hidden(group, queue_id)
            closed = self._shown.closed(group, queue_id)
            dead_letters += count_shown(hidden, *span) - count_shown(hidden.union(hiding), *span)
            open_dead_letters += count_shown(closed, *span) - count_shown(
                closed.union(hiding), *span
            )
        return Purged(dead_letters, open_dead_letters)

    def _restored(self, group: str, queues: Mapping[int, ConsumeQueue]) -> Purged:
        """How many dead letters are hidden now."""
        dead_letters = open_dead_letters = 0
        for queue_id, queue in queues.items():
            span = queue.min_offset, queue.max_offset
            dead_letters += self._shown.hidden(group, queue_id).count_between(*span)
            closed = self._shown.closed(group, queue_id)
            redriven = self._redriven.of(dlq_topic(group), queue_id)
            open_dead_letters += closed.count_between(*span) - redriven.count_between(*span)
        return Purged(dead_letters, open_dead_letters)


def _check_empty(wanted: DeadLetterFilter) -> None:
    for field in fields(wanted):
        value = getattr(wanted, field.name)
        if value != getattr(EVERY_DEAD_LETTER, field.name):
            raise InvalidValue(field.name, value, "left out: restore shows all letters")
