"""What RocketMQ 4.9 demands of a store directory before it starts on it.

Written from the reference (§1.3, §1.5, §2.1, §2.3, §3) and from nothing of ours: no module
of the store is imported, so that a mistake there is not repeated here.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

MESSAGE = 0xDAA320A7
BLANK = 0xCBD43194
PRE_BLANK = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
FASTJSON_BARE_KEYS = re.compile(r"\{(-?\d+:[^{}]*?)\n\t*\}")
TOPIC_FIELDS = {
    "order",
    "perm",
    "readQueueNums",
    "topicFilterType",
    "topicName",
    "topicSysFlag",
    "writeQueueNums",
}


def violations(
    root: Path,
    *,
    log_file_bytes: int,
    queue_file_bytes: int,
    index_slots: int,
    index_entries: int,
    is_closed: bool = True,
) -> list[str]:
    """Every rule that a store breaks, one sentence each; is_closed: it was stopped cleanly."""
    return [
        *_names_and_lengths(root / "commitlog", log_file_bytes),
        *_log(root / "commitlog", log_file_bytes),
        *_queues(root, log_file_bytes, queue_file_bytes),
        *_indexes(root / "index", 40 + 4 * index_slots + 20 * index_entries, index_entries),
        *_small_files(root, is_closed=is_closed),
        *_tables(root / "config"),
    ]


def records(folder: Path, file_bytes: int) -> Iterator[tuple[int, bytes]]:
    """(physical offset, bytes) as RocketMQ's recovery walks them; up to the first that is none."""
    for path in sorted(folder.iterdir()):
        data, at = path.read_bytes(), 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, at)
            if magic == BLANK:
                break
            if magic != MESSAGE or not 91 <= size <= file_bytes - at:
                return
            yield int(path.name) + at, data[at : at + size]
            at += size
        else:
            return


def _names_and_lengths(folder: Path, file_bytes: int) -> Iterator[str]:
    expected = None
    for path in sorted(folder.iterdir()):
        if not re.fullmatch(r"\d{20}", path.name) or not path.is_file():
            yield f"{path}: not the name of a data file"
            continue
        if path.stat().st_size != file_bytes:
            yield f"{path}: {path.stat().st_size} bytes, not {file_bytes}"
        if expected is not None and int(path.name) != expected:
            yield f"{path}: does not follow the file before"
        if int(path.name) % file_bytes:
            yield f"{path}: does not begin at a multiple of {file_bytes}"
        expected = int(path.name) + file_bytes


def _log(folder: Path, file_bytes: int) -> Iterator[str]:
    end = None
    for offset, data in records(folder, file_bytes):
        if end is not None and offset != end:
            place = folder / f"{end - end % file_bytes:020d}"
            left = file_bytes - end % file_bytes
            blank = place.read_bytes()[end % file_bytes :][:8]
            if blank != struct.pack(">iI", left, BLANK) or offset != end + left:
                yield f"{place} at {end % file_bytes}: no blank of {left} bytes before {offset}"
        if file_bytes - offset % file_bytes - len(data) < 8:
            yield f"record at {offset}: leaves no room for a blank"
        yield from _record(offset, data)
        end = offset + len(data)
    # Nothing that RocketMQ could take for a record may stand where it would append.
    if end is not None and end % file_bytes:
        rest = (folder / f"{end - end % file_bytes:020d}").read_bytes()[end % file_bytes :]
        if struct.unpack_from(">iI", rest)[1] not in (0, BLANK):
            yield f"at {end}: bytes behind the last record"


def _record(offset: int, data: bytes) -> Iterator[str]:
    crc, queue_id = struct.unpack_from(">ii", data, 8)
    sys_flag = struct.unpack_from(">i", data, 36)[0]
    at = 48 + (20 if sys_flag & 0x10 else 8) + 8 + (20 if sys_flag & 0x20 else 8) + 12
    (body_length,) = struct.unpack_from(">i", data, at)
    body = data[at + 4 : at + 4 + body_length]
    at += 4 + body_length
    topic = data[at + 1 : at + 1 + data[at]]
    at += 1 + data[at]
    (properties_length,) = struct.unpack_from(">h", data, at)
    if at + 2 + properties_length != len(data):
        yield f"record at {offset}: its lengths do not add up to {len(data)}"
    if struct.unpack_from(">q", data, 28)[0] != offset:
        yield f"record at {offset}: says it is elsewhere"
    if body and zlib.crc32(body) & 0x7FFFFFFF != crc:
        yield f"record at {offset}: the body's CRC"
    if queue_id < 0 or not topic:
        yield f"record at {offset}: topic {topic!r}, queue {queue_id}"


def _place(data: bytes) -> tuple[str, str, int]:
    """Topic, queue id, queue offset."""
    sys_flag = struct.unpack_from(">i", data, 36)[0]
    at = 48 + (20 if sys_flag & 0x10 else 8) + 8 + (20 if sys_flag & 0x20 else 8) + 12
    at += 4 + struct.unpack_from(">i", data, at)[0]
    topic = data[at + 1 : at + 1 + data[at]].decode()
    queue_id, queue_offset = struct.unpack_from(">i4xq", data, 12)
    return topic, str(queue_id), queue_offset


def _queues(root: Path, log_file_bytes: int, file_bytes: int) -> Iterator[str]:
    stored = dict(records(root / "commitlog", log_file_bytes))
    oldest = min((int(path.name) for path in (root / "commitlog").iterdir()), default=0)
    pointed: set[int] = set()
    for folder in sorted((root / "consumequeue").glob("*/*")):
        if not folder.name.isdigit():
            yield f"{folder}: not a queue id"
            continue
        yield from _names_and_lengths(folder, file_bytes)
        yield from _queue(folder, stored, oldest, pointed)
    for offset, data in stored.items():
        is_committed = struct.unpack_from(">i", data, 36)[0] & 0xC in (0, 8)
        if is_committed and offset not in pointed:
            yield f"record at {offset}: no queue entry"


def _queue(folder: Path, stored: dict[int, bytes], oldest: int, pointed: set[int]) -> Iterator[str]:
    is_over = is_begun = False
    for path, at, raw in _entries(folder):
        offset, size, _ = struct.unpack(">qiq", raw)
        if raw == PRE_BLANK and not is_begun:
            continue
        is_over, is_begun = is_over or size == 0, True
        if is_over:
            if any(raw):
                yield f"{path} at {at}: an entry behind the queue's end"
        elif offset >= oldest:
            pointed.add(offset)
            if len(stored.get(offset, b"")) != size:
                yield f"{path} at {at}: points at no record of {size} bytes at {offset}"
            elif _place(stored[offset]) != (*folder.parts[-2:], (int(path.name) + at) // 20):
                yield f"{path} at {at}: the record at {offset} belongs elsewhere"


def _entries(folder: Path) -> Iterator[tuple[Path, int, bytes]]:
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        yield from ((path, at, data[at : at + 20]) for at in range(0, len(data), 20))


def _indexes(folder: Path, file_bytes: int, entries: int) -> Iterator[str]:
    paths = sorted(folder.iterdir()) if folder.exists() else []
    for path in paths:
        if not re.fullmatch(r"\d{17}", path.name):
            yield f"{path}: not yyyyMMddHHmmssSSS"
        if path.stat().st_size != file_bytes:
            yield f"{path}: {path.stat().st_size} bytes, not {file_bytes}"
        count = struct.unpack_from(">i", path.read_bytes()[:40], 36)[0]
        if not 0 <= count <= entries:
            yield f"{path}: {count} entries"


def _small_files(root: Path, *, is_closed: bool) -> Iterator[str]:
    if (root / "checkpoint").stat().st_size != 4096:
        yield "checkpoint: not 4096 bytes"
    if not (root / "lock").is_file():
        yield "lock: no file"
    if is_closed and (root / "abort").exists():
        yield "abort: there after a clean stop"


def _tables(folder: Path) -> Iterator[str]:
    wanted = {"delayOffset.json": r"\{\n\t\"offsetTable\":\{(\d+:\d+(,\d+:\d+)*\n\t)?\}\n\}"}
    for name, shape in wanted.items():
        path = folder / name
        if path.exists() and not re.fullmatch(shape, path.read_text("utf-8")):
            yield f"{path}: not as fastjson writes it"
    path = folder / "consumerOffset.json"
    if path.exists():
        text = path.read_text("utf-8")
        rest = re.sub(r'\t\t"[^"]+@[^"]+":\{\d+:\d+(,\d+:\d+)*\n\t\t\},?\n', "", text)
        if rest not in ('{\n\t"offsetTable":{\n\t}\n}', '{\n\t"offsetTable":{}\n}'):
            yield f"{path}: not as fastjson writes it: {rest!r}"
    path = folder / "topics.json"
    if path.exists():
        text = path.read_text("utf-8")
        if not text.startswith('{\n\t"dataVersion":{\n\t\t"counter":'):
            yield f"{path}: no dataVersion first"
        for row in re.findall(r'\t\t"[^"]+":\{\n((?:\t\t\t[^\n]*\n)+)\t\t\}', text):
            fields = re.findall(r'\t\t\t"(\w+)":', row)
            if set(fields) != TOPIC_FIELDS or fields != sorted(fields):
                yield f"{path}: a topic's fields are {fields}"
