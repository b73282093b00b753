"""A broker's table of topics, as it goes to a name server in the body of REGISTER_BROKER.

There are two forms: JSON, and a compressed one (cluster reference §1.2).  The compressed form has
neither `order` nor `topicSysFlag`.  A table may have thousands of topics, so both directions work
in steps, between which other work gets its turn.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar

from rmqlite.kernel.config.values import QUEUES_MAX
from rmqlite.kernel.words.names import STORED_NAME_BYTES_MAX
from rmqlite.protocols.remoting.bytes.fields import FieldError
from rmqlite.protocols.remoting.bytes.requests.groups import TableVersionBody
from rmqlite.protocols.remoting.bytes.requests.topics import TopicConfig
from rmqlite.protocols.remoting.bytes.shapes import read_body, write_body

T = TypeVar("T")
TOPICS_MAX: Final = 20_000
"""Topics that one broker registers."""
BODY_BYTES_MAX: Final = 8 << 20
"""A body's length, also after it was inflated."""
VALUE_CHARS_MAX: Final = 16 << 10
"""The length of one topic's JSON, and of each other value in it: they are read as a whole."""
_TOPICS_A_STEP: Final = 100
"""They are read or written within 3 ms."""
_CHARS_A_STEP: Final = 32 << 10
"""Of JSON, read within 3 ms."""
_ENTRY_CHARS: Final = 128
"""What an entry counts beside the length of its value."""
_LEVEL: Final = 6
_I32: Final = Struct(">i")
_WRAPPER: Final = "topicConfigSerializeWrapper"
_TABLE: Final = (_WRAPPER, "topicConfigTable")
_VERSION: Final = (_WRAPPER, "dataVersion")
_OPENED: Final = ((), (_WRAPPER,), _TABLE)
"""The objects whose entries are read one after the other."""
_DECODER: Final = json.JSONDecoder()
_ROW_PARTS: Final = 5
_NUMBER: Final = re.compile("[0-9]{1,9}")


class RegisteredTopic(NamedTuple):
    """The settings of a topic that a route needs."""

    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int = 0


@dataclass(frozen=True, slots=True)
class Registration:
    """version: that of the broker's table; equal versions mean equal tables."""

    version: TableVersionBody
    topics: Mapping[str, RegisteredTopic]


def crc_of(body: bytes) -> int:
    """bodyCrc32 of a body as it is sent, 31 bits; 0 would mean that nobody has to check it."""
    return zlib.crc32(body) & 0x7FFF_FFFF


def encode_plain(registration: Registration) -> Generator[None, None, bytes]:
    """The JSON form."""
    version = write_body(registration.version)
    head = b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":'
    parts = []
    for rows in _in_steps(registration.topics.items()):
        parts.append(",".join([_row(name, topic) for name, topic in rows]))
        yield
    table = ",".join(parts).encode("utf-8", "replace")
    return b"".join([head, version, b',"topicConfigTable":{', table, b"}}}"])


def encode_packed(registration: Registration) -> Generator[None, None, bytes]:
    """The compressed form before zlib.  Raises FieldError for a name with a blank."""
    topics = registration.topics
    parts = [_sized(write_body(registration.version)), _I32.pack(len(topics))]
    for rows in _in_steps(topics.items()):
        for name, topic in rows:
            if " " in name:
                raise FieldError("topicName", name, "a name without blanks")
            read, write, perm, _ = topic
            parts.append(_sized(f"{name} {read} {write} {perm} SINGLE_TAG".encode()))
        yield
    parts.append(_sized(b"[]"))
    return b"".join(parts)


def compressed(packed: bytes) -> bytes:
    """For another thread: a table of 10,000 topics takes 20 ms, without the interpreter's lock."""
    return zlib.compress(packed, _LEVEL)


def inflated(body: bytes) -> bytes:
    """What compressed() packed; for another thread.  Raises FieldError."""
    inflating = zlib.decompressobj()
    try:
        packed = inflating.decompress(body, BODY_BYTES_MAX)
    except zlib.error as error:
        raise FieldError("body", f"{len(body)} bytes", f"a zlib stream ({error})") from None
    if not inflating.eof:
        rule = f"a whole zlib stream of at most {BODY_BYTES_MAX} bytes"
        raise FieldError("body", f"{len(body)} bytes", rule)
    return packed


def decode_packed(packed: bytes) -> Generator[None, None, Registration]:
    """Raises FieldError."""
    texts = _Texts(packed)
    version = read_body(TableVersionBody, texts.next())
    count = texts.number()
    _check_count(count)
    topics: dict[str, RegisteredTopic] = {}
    for places in _in_steps(range(count)):
        topics.update([_split_row(texts.next()) for _ in places])
        yield
    # The filter servers, which nobody has any more.
    texts.next()
    return Registration(version, topics)


def decode_plain(body: bytes) -> Generator[None, None, Registration]:
    """Raises FieldError."""
    if len(body) > BODY_BYTES_MAX:
        raise FieldError("body", f"{len(body)} bytes", f"at most {BODY_BYTES_MAX} bytes")
    version = TableVersionBody()
    topics: dict[str, RegisteredTopic] = {}
    try:
        looked = 0
        for path, text in _entries(body.decode()):
            if path == _VERSION:
                version = read_body(TableVersionBody, text.encode())
            elif path[:-1] == _TABLE:
                row = read_body(TopicConfig, text.encode())
                topic = row.read_queue_nums, row.write_queue_nums, row.perm, row.topic_sys_flag
                topics[path[-1]] = _checked(path[-1], RegisteredTopic(*topic))
            looked += _ENTRY_CHARS + len(text)
            if looked > _CHARS_A_STEP:
                _check_count(len(topics))
                looked = 0
                yield
        _check_count(len(topics))
    except FieldError:
        raise
    except (ValueError, RecursionError) as error:
        rule = f"JSON whose values have at most {VALUE_CHARS_MAX} characters ({error})"
        raise FieldError("body", "a text", rule) from None
    return Registration(version, topics)


class _Texts:
    """Texts with their lengths before them, one after the other.  Raises FieldError."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._at = 0

    def number(self) -> int:
        end = self._at + _I32.size
        if end > len(self._packed):
            raise FieldError("body", f"{len(self._packed)} bytes", "a whole table of topics")
        number: int = _I32.unpack_from(self._packed, self._at)[0]
        self._at = end
        return number

    def next(self) -> bytes:
        length = self.number()
        end = self._at + length
        if not 0 <= length <= VALUE_CHARS_MAX or end > len(self._packed):
            raise FieldError("body", f"a text of {length} bytes", "a whole table of topics")
        text = self._packed[self._at : end]
        self._at = end
        return text


def _split_row(row: bytes) -> tuple[str, RegisteredTopic]:
    parts = row.decode("utf-8", "replace").split(" ")
    if len(parts) != _ROW_PARTS or not all(map(_NUMBER.fullmatch, parts[1:4])):
        rule = "name, readQueueNums, writeQueueNums, perm and the filter's type"
        raise FieldError("topicConfigTable", parts[0], rule)
    name, read, write, perm, _ = parts
    return name, _checked(name, RegisteredTopic(int(read), int(write), int(perm)))


def _checked(name: str, topic: RegisteredTopic) -> RegisteredTopic:
    """Raises FieldError for a topic that RocketMQ cannot have."""
    if not 0 < len(name) <= STORED_NAME_BYTES_MAX or not name.isascii():
        rule = f"names of 1 to {STORED_NAME_BYTES_MAX} ASCII characters"
        raise FieldError("topicConfigTable", name, rule)
    for queues in topic[:2]:
        if not 0 <= queues <= QUEUES_MAX:
            raise FieldError(f"queues of {name}", queues, f"0 to {QUEUES_MAX}")
    return topic


def _entries(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The entries of the objects in _OPENED, each with its path and the JSON of its value."""
    path: list[str] = []
    at, is_first = _after(text, 0, "{"), True
    while True:
        if text[at : at + 1] == "}":
            if not path:
                return
            path.pop()
            at, is_first = _blank(text, at + 1), False
            continue
        if not is_first:
            at = _after(text, at, ",")
        key, end = _value(text, at)
        if not isinstance(key, str):
            raise json.JSONDecodeError("a key is no text", text[at : at + 20], 0)
        at = _after(text, end, ":")
        if (*path, key) in _OPENED and text[at : at + 1] == "{":
            path.append(key)
            at, is_first = _blank(text, at + 1), True
            continue
        _, end = _value(text, at)
        yield (*path, key), text[at:end]
        at, is_first = _blank(text, end), False


def _value(text: str, at: int) -> tuple[Any, int]:
    """The value that begins there, and where it ends."""
    value, length = _DECODER.raw_decode(text[at : at + VALUE_CHARS_MAX])
    return value, at + length


def _after(text: str, at: int, sign: str) -> int:
    at = _blank(text, at)
    if text[at : at + 1] != sign:
        raise json.JSONDecodeError(f"{sign} is missing", text[at : at + 20], 0)
    return _blank(text, at + 1)


def _blank(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\r", "\n"):
        at += 1
    return at


def _check_count(count: int) -> None:
    if not 0 <= count <= TOPICS_MAX:
        raise FieldError("topicConfigTable", f"{count} topics", f"at most {TOPICS_MAX} topics")


def _in_steps(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while some := list(islice(iterator, _TOPICS_A_STEP)):
        yield some


def _row(name: str, topic: RegisteredTopic) -> str:
    quoted = json.dumps(name, ensure_ascii=False)
    read, write, perm, sys_flag = topic
    return (
        f'{quoted}:{{"order":false,"perm":{perm},"readQueueNums":{read},'
        f'"topicFilterType":"SINGLE_TAG","topicName":{quoted},"topicSysFlag":{sys_flag},'
        f'"writeQueueNums":{write}}}'
    )


def _sized(text: bytes) -> bytes:
    return _I32.pack(len(text)) + text
