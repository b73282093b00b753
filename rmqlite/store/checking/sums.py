"""All bytes of a log against its checksums: what changed, and which checksum is the wrong one.

The bytes come in order and once.  Where a chain does not fit, either bytes before it have
changed or the chain itself has: if the next one fits with the bytes straight through, the
one before it was wrong.  Which bytes have no checksum at all is counted: RocketMQ wrote them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqlite.store.checking.finding import Finding
from rmqlite.store.commit_log import CHECKSUMS, CommitLog
from rmqlite.store.log.checksums import BLOCK_BYTES, Mark, Point, encode_mark, mark_position

CHECKSUM: Final = "checksum"
WRONG_SUM: Final = "wrong-checksum"
BROKEN_MARK: Final = "broken-mark"
_SUM_BYTES: Final = 4
_MAGIC: Final = encode_mark(Mark(0, 0, 0))[:8]
_MAGIC_BYTES_EQUAL_MIN: Final = 5
"""So many bytes of a mark's magic number must be right for it to be taken for one."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What chain the bytes before a position have, and where that is written."""

    position: int
    chain: int
    path: Path
    place: int


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes begin <= n < end that give another chain than they should; first is right."""

    first: Point
    claim: Claim
    found: int


class SumsCheck:
    """Fed with all bytes of one log file after another."""

    def __init__(
        self,
        log: CommitLog,
        persisted: Point | None,
        progress: Path,
        trusted_end: int,
        *,
        marked_end: int,
        is_live: bool,
    ) -> None:
        """persisted: from the table at `progress`.  Beyond trusted_end nothing was promised,
        and whoever walks the log has to say whether it reaches farther.  marked_end: opening
        mends the marks of the files behind.
        """
        self._log = log
        self._persisted = persisted
        self._progress = progress
        self._trusted_end = trusted_end
        self._marked_end = marked_end
        self._is_live = is_live
        self.bytes_without = 0
        """How many bytes no checksum covers."""
        self.spans: list[Span] = []
        """Bytes that have changed, in order; who reads them may take them away."""
        self.wrong: list[tuple[int, Finding]] = []
        """Checksums that are wrong themselves, by the physical offset that they are for."""
        self._groups: list[list[Claim]] = []
        self._point = self._right = Point(0, 0)
        self._odd: Span | None = None
        """The last span, while the next chain can still tell that its claim is wrong."""
        self._straight = 0
        self._summed_end = 0

    def begin_file(self, start: int) -> None:
        """The bytes that follow are those of the file that begins there."""
        self._groups = list(self._claims(start))
        self._point = self._right = Point(start, 0)
        self._odd = None
        self._summed_end = self._groups[-1][0].position if self._groups else start

    @property
    def summed_end(self) -> int:
        """Up to where the bytes of this file have checksums."""
        return self._summed_end

    def feed(self, data: bytes) -> None:
        """The next bytes of the file."""
        at = 0
        while self._groups and self._groups[0][0].position <= self._point.position + len(data) - at:
            group = self._groups.pop(0)
            upto = at + group[0].position - self._point.position
            self._advance(data[at:upto])
            at = upto
            self._compare(group)
        self._advance(data[at:] if at else data)

    def end_file(self, content_end: int) -> None:
        """No more of this file is read; what it holds ends there."""
        self.bytes_without += max(0, content_end - max(self._summed_end, self._log.min_offset))
        if self._odd is not None:
            self.spans.append(self._odd)
            self._odd = None

    def _advance(self, data: bytes) -> None:
        if data:
            position, chain = self._point
            self._point = Point(position + len(data), zlib.crc32(data, chain))
            if self._odd is not None:
                self._straight = zlib.crc32(data, self._straight)

    def _compare(self, group: list[Claim]) -> None:
        """All that is said of the chain at one position."""
        position, chain = self._point
        if self._odd is not None and any(each.chain == self._straight for each in group):
            # Without the claim before all is well.
            odd, self._odd = self._odd, None
            self._tell_wrong(odd.claim, odd.found)
            self._point = Point(position, self._straight)
            chain = self._straight
        if any(each.chain == chain for each in group):
            for each in group:
                if each.chain != chain:
                    self._tell_wrong(each, chain)
            self._right = self._point
            if self._odd is not None:
                self.spans.append(self._odd)
                self._odd = None
            return
        if self._odd is not None:
            self.spans.append(self._odd)
        self._odd = Span(self._right, group[0], chain)
        self._straight = chain
        self._point = self._right = Point(position, group[0].chain)

    def _tell_wrong(self, claim: Claim, chain: int) -> None:
        start = claim.position - 1 - (claim.position - 1) % self._log.segment_bytes
        said = (
            f"says that bytes 0 to {claim.position - start} of {self._log.path_at(start).name} have"
            f" the checksum {claim.chain:#010x}, they have {chain:#010x}"
        )
        found = Finding(
            *(claim.path, claim.place, WRONG_SUM, said),
            expected=f"{chain:#010x}",
            found=f"{claim.chain:#010x}",
        )
        self.wrong.append((claim.position, found))

    def _look_at_mark(self, start: int) -> None:
        """There is no sound mark: is there one that is not?"""
        log = self._log
        place = mark_position(log.segment_bytes)
        there = log.read_raw(start + place, len(_MAGIC))
        if sum(a == b for a, b in zip(there, _MAGIC, strict=False)) >= _MAGIC_BYTES_EQUAL_MIN:
            said = "the synced mark is broken: it does not fit its CRC"
            is_mended = start + log.segment_bytes > self._marked_end
            found = Finding(
                *(log.path_at(start), place, BROKEN_MARK, said),
                opening_mends=is_mended,
                is_leftover=is_mended,
            )
            self.wrong.append((start, found))

    def _claims(self, start: int) -> Iterator[list[Claim]]:
        """Every claim about the file that begins there, by position; those to trust first."""
        log = self._log
        end = start + log.segment_bytes
        if self._is_live or start == log.segment_starts[-1]:
            end = min(self._trusted_end, end)
        path = log.path_at(start)
        mark = log.log_end.mark_of(start)
        claims = []
        if mark is not None and mark.is_sure:
            claims.append(Claim(*mark[1:], path, mark_position(log.segment_bytes)))
        if mark is None and not self._is_live:
            self._look_at_mark(start)
        for point in log.sums.points(start, end):
            place = ((point.position - start) // BLOCK_BYTES - 1) * _SUM_BYTES
            claims.append(Claim(*point, sums_path(log, start), place))
        if self._persisted is not None:
            claims.append(Claim(*self._persisted, self._progress, 0))
        by_position: dict[int, list[Claim]] = {}
        for claim in claims:
            if start < claim.position <= end:
                by_position.setdefault(claim.position, []).append(claim)
        for position in sorted(by_position):
            yield by_position[position]


def sums_path(log: CommitLog, start: int) -> Path:
    """The table with the checksums of the log file that begins there."""
    path = log.path_at(start)
    return path.parent.with_name(CHECKSUMS) / path.name


def span_finding(log: CommitLog, span: Span) -> Finding:
    """The finding for bytes that have changed where no record tells it."""
    begin, end = span.first.position, span.claim.position
    at = begin % log.segment_bytes
    said = (
        f"{end - begin} bytes, up to byte {at + end - begin}, have changed since they were written:"
        f" their checksum is {span.found:#010x}, not {span.claim.chain:#010x}"
    )
    return Finding(
        *(log.path_at(begin), at, CHECKSUM, said),
        expected=f"{span.claim.chain:#010x}",
        found=f"{span.found:#010x}",
        size=end - begin,
    )
