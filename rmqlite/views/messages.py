"""A message for a person to read: its fields by name, its body, and why it failed.

A body is indented JSON, text, or a hex dump.  Nothing interprets it: control characters are shown
escaped.  A long body is cut.  JSON is not decoded: only the blanks between its tokens change, so
that every number, every escape, a key that comes twice and the order of the keys stay as they were
sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from rmqlite.features.dead_letters.requests import DeadLetter, DeadLetterFilter
from rmqlite.kernel.words.compression import COMPRESSION_BITS, is_compressed, readable
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.kernel.words.visible import printable
from rmqlite.views.numbers import counted, time_text, times_text

_DUMPED_BYTES: Final = 16
# Possessive: otherwise a string of four megabytes fills the memory with places to go back to.
_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]|[^\s{}\[\],:"]++')
_OPENING: Final = frozenset("{[")
_CLOSING: Final = frozenset("}]")
_INDENT: Final = "  "
_DEPTH_MAX: Final = 100
"""Deeper lines are indented no further."""

FORM_NAMES: Final = {"json": "JSON", "text": "text", "hex": "hex"}
_LOOK_CHARS: Final = 4_000
_INVISIBLE_SHARE: Final = 0.2
"""A body with a larger share is shown in hex: it is a binary format that happens to be UTF-8."""
NO_REASON: Final = "no reason given"


def where_text(message: StoredMessage) -> str:
    """Topic, queue id and queue offset."""
    return f"{message.topic}/{message.queue_id}@{message.queue_offset}"


def message_facts(message: StoredMessage) -> list[tuple[str, str]]:
    """The fields of a record, by name."""
    return [
        *[("failed", times_text(message.reconsume_times))] * bool(message.reconsume_times),
        ("where", where_text(message)),
        ("message id", message.message_id),
        ("offset id", message.offset_message_id),
        ("stored", f"{time_text(message.store_timestamp_ms)} at {message.store_host}"),
        ("born", f"{time_text(message.born_timestamp_ms)} at {message.born_host}"),
        ("record", f"{message.store_size:,} bytes at physical offset {message.physical_offset}"),
        ("flags", f"flag {message.flag}, sys flag {message.sys_flag:#x}"),
    ]


@dataclass(frozen=True, slots=True)
class BodyView:
    """form: how the body is shown.  forms: all that fit it.  is_cut: lines are its beginning.
    note: how it was inflated, or why it was not.
    """

    form: str
    forms: tuple[str, ...]
    lines: tuple[str, ...]
    is_cut: bool
    size: int
    note: str = ""

    def heading(self, cut: str = "the beginning") -> str:
        """The size and form of the body; cut: the words for a part of it."""
        if not self.size:
            return "no body"
        about = [counted(self.size, "byte"), self.note, FORM_NAMES[self.form], cut * self.is_cut]
        return ", ".join(["body", *[each for each in about if each]])

    @property
    def next_form(self) -> str:
        """The form that comes after this one, in turns."""
        return self.forms[(self.forms.index(self.form) + 1) % len(self.forms)]


def body_view(
    body: bytes,
    form: str = "",
    *,
    chars_max: int | None = None,
    lines_max: int | None = None,
    is_whole: bool = True,
    note: str = "",
) -> BodyView:
    """The body in this form, or in the one that is easiest to read.

    chars_max, lines_max: None for all of it.  is_whole: False if body is only its beginning.
    """
    text, is_text = _text(body, is_whole=is_whole)
    is_document = is_text and is_whole and is_json(text)
    forms = (*["json"] * is_document, "text", "hex")
    if form not in forms:
        form = forms[0] if is_text and not _is_binary(text) else "hex"
    shown, is_cut = _cut(_lines(body, text, form, chars_max), chars_max, lines_max)
    return BodyView(form, forms, shown, is_cut or not is_whole, len(body), note)


def inflated_view(
    message: StoredMessage,
    form: str = "",
    *,
    chars_max: int | None = None,
    lines_max: int | None = None,
) -> BodyView:
    """The same of a message's body, inflated if it is compressed."""
    plain, note = readable_message(message)
    return body_view(plain.body, form, chars_max=chars_max, lines_max=lines_max, note=note)


def _cut(
    lines: Iterable[str], chars_max: int | None, lines_max: int | None
) -> tuple[tuple[str, ...], bool]:
    """The lines up to the limits; and whether there are more."""
    shown: list[str] = []
    left = chars_max
    for line in lines:
        if len(shown) == lines_max:
            return tuple(shown), True
        if left is not None and len(line) > left:
            return (*shown, f"{line[: max(0, left)]}…"), True
        shown.append(line)
        left = None if left is None else left - len(line) - 1
    return tuple(shown), False


def _text(body: bytes, *, is_whole: bool) -> tuple[str, bool]:
    """The body as text, and whether it is text; bytes that are none are escaped."""
    try:
        return body.decode(), True
    except UnicodeDecodeError as error:
        if not is_whole and error.start >= len(body) - 3:
            # The body was cut within a character.
            return body[: error.start].decode(), True
        return body.decode(errors="backslashreplace"), False


def _is_binary(text: str) -> bool:
    look = text[:_LOOK_CHARS]
    invisible = sum([not c.isprintable() and c not in "\n\r\t" for c in look])
    return invisible > len(look) * _INVISIBLE_SHARE


def _lines(body: bytes, text: str, form: str, chars_max: int | None) -> Iterator[str]:
    if form == "json":
        yield from map(_escaped, json_lines(text))
    elif form == "hex":
        yield from dump(body)
    elif body:
        # Escaping never removes a character, so the part that is cut later need not be escaped.
        begin = text if chars_max is None else text[: 2 * chars_max]
        for line in begin.removesuffix("\n").split("\n"):
            yield printable(line.removesuffix("\r"))


def _escaped(line: str) -> str:
    """Invisible characters as JSON itself writes them, so that the line stays JSON."""
    if line.isprintable():
        return line
    return "".join([c if c.isprintable() else _json_escape(c) for c in line])


def _json_escape(character: str) -> str:
    # json.dumps() leaves DEL as it is.
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


def place_text(letter: DeadLetter) -> str:
    """GROUP:QUEUE:OFFSET, which never names another dead letter."""
    return f"{letter.group}:{letter.queue_id}:{letter.queue_offset}"


def origin_text(letter: DeadLetter) -> str:
    """The topic that a message comes from; empty if it is not known.

    "(claimed)": only the client that sent it to the group's retry topic says so.
    """
    if letter.claimed_topic:
        return f"{printable(letter.claimed_topic)} (claimed)"
    return printable(letter.origin_topic)


def reason_line(reason: str) -> str:
    """The first line of a reason; a stack trace is for peek."""
    first, _, more = reason.strip().partition("\n")
    return f"{printable(first.strip())}{' …' if more else ''}" or NO_REASON


def redriven_text(letter: DeadLetter) -> str:
    """The redrives of a dead letter; empty for none."""
    parts = []
    if letter.redriven_by:
        parts.append(f"redriven by job {letter.redriven_by}")
    if letter.redriven_before:
        times = times_text(letter.redriven_before)
        parts.append(f"had been redriven {times} before it died")
    return printable(", ".join(parts))


def attempts_max(letter: DeadLetter, of_group: int | None) -> int | None:
    """The attempts before a message is dead; the sender's limit comes before the group's."""
    limit = letter.max_reconsume_times
    return of_group if limit is None else limit + 1


def attempt_text(letter: DeadLetter, of_group: int | None) -> str:
    """The next attempt of a retry: "3 of 17"; the first delivery was an attempt, too."""
    most = attempts_max(letter, of_group)
    return f"{letter.delivery_attempts + 1}{'' if most is None else f' of {most}'}"


def letters_text(count: int) -> str:
    return counted(count, "dead letter")


def filter_text(wanted: DeadLetterFilter) -> str:
    """A filter for a person: "topic orders, failed before …"; empty without a condition."""
    return ", ".join([f"{name} {value}" for name, value in filter_facts(wanted)])


def filter_facts(wanted: DeadLetterFilter) -> Iterator[tuple[str, str]]:
    """The conditions of a filter, by name."""
    if wanted.topic:
        yield "topic", wanted.topic
    if wanted.tag:
        yield "tag", wanted.tag
    if wanted.key:
        yield "key", wanted.key
    if wanted.reason:
        yield "reason with", repr(wanted.reason)
    if wanted.since_ms:
        yield "failed since", time_text(wanted.since_ms)
    if wanted.until_ms is not None:
        yield "failed before", time_text(wanted.until_ms)
    if wanted.ids:
        yield "id", " or ".join(wanted.ids)
    if wanted.failure_kind:
        yield "reasons of the kind", repr(wanted.failure_kind)
    if wanted.job_id:
        yield "sent by job", wanted.job_id


def is_json(text: str) -> bool:
    """Is it a JSON object or array?  A bare number or word counts as text."""
    if text.lstrip()[:1] not in _OPENING:
        return False
    try:
        # The numbers stay text: Python refuses to convert a huge one.
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refused)
    except (ValueError, RecursionError):
        return False
    return True


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is Python's, not JSON's")


def json_lines(text: str) -> Iterator[str]:
    """The tokens of a JSON text, one value per line."""
    depth = 0
    line = ""
    before = ""
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in _CLOSING:
            depth -= 1
            if before not in _OPENING:
                yield line
                line = _indented(depth)
        elif before in _OPENING:
            yield line
            line = _indented(depth)
        line += f"{token} " if token == ":" else token
        if token in _OPENING:
            depth += 1
        elif token == ",":
            yield line
            line = _indented(depth)
        before = token
    yield line


def _indented(depth: int) -> str:
    return _INDENT * min(depth, _DEPTH_MAX)


def dump(body: bytes) -> Iterator[str]:
    """Lines of sixteen bytes: offset, bytes in hex, and the same bytes as ASCII or dots."""
    for at in range(0, len(body), _DUMPED_BYTES):
        part = body[at : at + _DUMPED_BYTES]
        left, right = part[:8].hex(" "), part[8:].hex(" ")
        plain = "".join([chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part])
        yield f"{at:08x}  {left:<23}  {right:<23}  |{plain}|"


def readable_message(message: StoredMessage) -> tuple[StoredMessage, str]:
    """The message with its body inflated, or unchanged if that fails; and the note."""
    if not is_compressed(message):
        return message, ""
    body, _, note = readable(message.body, message.sys_flag)
    if message.body and body is message.body:
        return message, note
    return replace(message, body=body, sys_flag=message.sys_flag & ~COMPRESSION_BITS), note
