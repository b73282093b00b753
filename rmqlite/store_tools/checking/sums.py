"""Compares all bytes of a log with its checksums; finds changed bytes and wrong checksums.

The bytes come once and in order.  If a chain does not fit, either the bytes before it have
changed or the chain itself has: if the next chain fits all bytes up to there, the one before
was wrong.  Bytes without a checksum are counted: RocketMQ wrote them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqlite.kernel.store.commit_log import CHECKSUMS, CommitLog
from rmqlite.kernel.store.log.checksums import BLOCK_BYTES, Mark, Point, encode_mark, mark_position
from rmqlite.store_tools.checking.finding import Finding

CHECKSUM: Final = "checksum"
WRONG_SUM: Final = "wrong-checksum"
BROKEN_MARK: Final = "broken-mark"
_SUM_BYTES: Final = 4
_MAGIC: Final = encode_mark(Mark(0, 0, 0))[:8]
_MAGIC_BYTES_EQUAL_MIN: Final = 5
"""Eight bytes are taken for a damaged mark if this many of them are right."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The stored chain of the bytes before a position, and the place where it is stored."""

    position: int
    chain: int
    path: Path
    place: int


@dataclass(frozen=True, slots=True)
class UnsoundSpan:
    """The bytes from first, which is right, to the claim, which their chain does not fit."""

    first: Point
    claim: Claim
    found: int


class SumsCheck:
    """Receives all bytes of one log file after another."""

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
        """persisted: from the table at `progress`.  trusted_end: behind it nothing was promised,
        and the walk finds the log's end.  marked_end: opening mends the marks of files behind.
        """
        self._log = log
        self._persisted = persisted
        self._progress = progress
        self._trusted_end = trusted_end
        self._marked_end = marked_end
        self._is_live = is_live
        self.bytes_without = 0
        """The number of bytes that no checksum covers."""
        self.spans: list[UnsoundSpan] = []
        """Changed bytes, in order; the reader may remove them."""
        self.wrong: list[tuple[int, Finding]] = []
        """Wrong checksums, each with the physical offset up to which it counts."""
        self._groups: list[list[Claim]] = []
        self._point = self._right = Point(0, 0)
        self._odd: UnsoundSpan | None = None
        """The last span, while the next chain can still show that its claim is wrong."""
        self._straight = 0
        self._summed_end = 0

    def begin_file(self, start: int) -> None:
        """Begin with the bytes of the file that begins at start."""
        self._groups = list(self._claims(start))
        self._point = self._right = Point(start, 0)
        self._odd = None
        self._summed_end = self._groups[-1][0].position if self._groups else start

    @property
    def summed_end(self) -> int:
        """The end of the bytes of this file that have checksums."""
        return self._summed_end

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the file."""
        at = 0
        while self._groups and self._groups[0][0].position <= self._point.position + len(data) - at:
            group = self._groups.pop(0)
            upto = at + group[0].position - self._point.position
            self._advance(data[at:upto])
            at = upto
            self._compare(group)
        self._advance(data[at:] if at else data)

    def end_file(self, content_end: int) -> None:
        """End this file; content_end: the end of its records and its blank's head."""
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
        """Compare all claims about the chain at one position."""
        position, chain = self._point
        if self._odd is not None and any(each.chain == self._straight for each in group):
            # The bytes fit without the previous claim: that claim is wrong.
            odd, self._odd = self._odd, None
            self._report_wrong(odd.claim, odd.found)
            self._point = Point(position, self._straight)
            chain = self._straight
        if any(each.chain == chain for each in group):
            for each in group:
                if each.chain != chain:
                    self._report_wrong(each, chain)
            self._right = self._point
            if self._odd is not None:
                self.spans.append(self._odd)
                self._odd = None
            return
        if self._odd is not None:
            self.spans.append(self._odd)
        self._odd = UnsoundSpan(self._right, group[0], chain)
        self._straight = chain
        self._point = self._right = Point(position, group[0].chain)

    def _report_wrong(self, claim: Claim, chain: int) -> None:
        start = claim.position - 1 - (claim.position - 1) % self._log.segment_bytes
        text = (
            f"says that bytes 0 to {claim.position - start} of {self._log.path_at(start).name} have"
            f" the checksum {claim.chain:#010x}, they have {chain:#010x}"
        )
        found = Finding(
            claim.path,
            claim.place,
            WRONG_SUM,
            text,
            expected=f"{chain:#010x}",
            found=f"{claim.chain:#010x}",
        )
        self.wrong.append((claim.position, found))

    def _look_at_mark(self, start: int) -> None:
        """Report a broken mark, in a file without a sound one."""
        log = self._log
        place = mark_position(log.segment_bytes)
        there = log.read_raw(start + place, len(_MAGIC))
        if sum(a == b for a, b in zip(there, _MAGIC, strict=False)) >= _MAGIC_BYTES_EQUAL_MIN:
            text = "the synced mark is broken: it does not fit its CRC"
            is_mended = start + log.segment_bytes > self._marked_end
            found = Finding(
                log.path_at(start),
                place,
                BROKEN_MARK,
                text,
                opening_mends=is_mended,
                is_leftover=is_mended,
            )
            self.wrong.append((start, found))

    def _claims(self, start: int) -> Iterator[list[Claim]]:
        """Every claim about the file that begins at start, by position; the surest one first."""
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
    """The table with the checksums of the log file that begins at start."""
    path = log.path_at(start)
    return path.parent.with_name(CHECKSUMS) / path.name


def span_finding(log: CommitLog, span: UnsoundSpan) -> Finding:
    """The finding for changed bytes that no damaged record covers."""
    begin, end = span.first.position, span.claim.position
    at = begin % log.segment_bytes
    text = (
        f"{end - begin} bytes, up to byte {at + end - begin}, have changed since they were written:"
        f" their checksum is {span.found:#010x}, not {span.claim.chain:#010x}"
    )
    return Finding(
        log.path_at(begin),
        at,
        CHECKSUM,
        text,
        expected=f"{span.claim.chain:#010x}",
        found=f"{span.found:#010x}",
        size=end - begin,
    )
