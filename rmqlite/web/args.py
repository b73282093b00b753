"""Reads the fields that a browser has sent; InvalidValue names the wrong field."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, TypeVar
from urllib.parse import parse_qsl, unquote

from rmqlite.features.changes.requests import PendingFilter
from rmqlite.features.dead_letters.requests import DeadLetterFilter
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.words.clock import local_ms
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import INSTANT_MS_MAX, INSTANT_MS_MIN, instant_ms, wait_ms
from rmqlite.kernel.words.limits import INT32_MAX, SEARCH_BYTES_MAX
from rmqlite.views.levels import TIMER

FIELDS_MAX: Final = 1_200
"""The most fields of a form or a query: a thousand ids, and the fields that go with them."""
_NUMBER_CHARS_MAX: Final = 15
_TEXT_CHARS_MAX: Final = SEARCH_BYTES_MAX
_MOMENT_RULE: Final = (
    "a time of the broker's clock such as 2026-11-20 10:00, one with a zone such as"
    " 2026-11-20T10:00+01:00, one from now such as +10m or -2h, or milliseconds since 1970"
)

E = TypeVar("E", bound=enum.IntEnum)
Fields = dict[str, str | tuple[str, ...]]
"""Fields by name; a tuple is a field that was sent several times."""


class Args:
    """The fields of a query string or of a form; both have the same encoding."""

    def __init__(self, encoded: str) -> None:
        try:
            pairs = parse_qsl(encoded, keep_blank_values=True, max_num_fields=FIELDS_MAX)
        except ValueError as error:
            raise InvalidValue("form", f"{len(encoded)} characters", str(error)) from error
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)

    def text(self, name: str) -> str:
        """The field without blanks around it; empty if it is missing."""
        value = self._values.get(name, [""])[-1].strip()
        if len(value) > _TEXT_CHARS_MAX:
            raise InvalidValue(name, value, f"at most {_TEXT_CHARS_MAX} characters")
        return value

    def ids(self, name: str) -> tuple[str, ...]:
        """Every value of the field, each once, without blanks around it."""
        given = [each.strip() for each in self._values.get(name, [])]
        return tuple(dict.fromkeys([each for each in given if each]))

    def verbatim(self, name: str) -> str:
        """The field with its blanks, for a secret: no error repeats it."""
        return self._values.get(name, [""])[-1]

    def required(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise InvalidValue(name, value, "given")
        return value

    def number(self, name: str, default: int = 0, *, at_most: int = INT32_MAX) -> int:
        value = self.text(name).replace(",", "")
        if not value:
            return default
        is_number = value.isascii() and value.isdigit() and len(value) <= _NUMBER_CHARS_MAX
        if not is_number or int(value) > at_most:
            raise InvalidValue(name, value, f"a whole number, 0 to {at_most}")
        return int(value)

    def decimal(self, name: str) -> float:
        """A number such as 0.5; 0 if the field is missing."""
        value = self.text(name).replace(",", "") or "0"
        whole, _, part = value.partition(".")
        is_number = f"{whole}{part}".isascii() and f"{whole}{part}".isdigit()
        if not is_number or len(value) > _NUMBER_CHARS_MAX:
            raise InvalidValue(name, value, "a number such as 0.5 or 20")
        return float(value)

    def is_on(self, name: str) -> bool:
        """Is a box ticked?"""
        return self.text(name) not in ("", "0", "no")

    def one_of(self, name: str, words: Sequence[str]) -> str:
        """The field, which must be one of these words; the first word if it is missing."""
        value = self.text(name) or words[0]
        if value not in words:
            raise InvalidValue(name, value, " or ".join(words))
        return value

    def member(self, name: str, kind: type[E]) -> E:
        """The member of an enumeration that the field names in lower case."""
        return kind[self.one_of(name, [each.name.lower() for each in kind]).upper()]

    def quoted_ids(self, name: str) -> tuple[str, ...]:
        """The ids of a field that text.quoted() wrote, each once."""
        given = self._values.get(name, [])
        return tuple(dict.fromkeys([unquote(each, errors="surrogatepass") for each in given]))

    def moment_ms(self, name: str, now_ms: int) -> int | None:
        """The field as a time; None if it is missing."""
        value = self.text(name)
        if not value:
            return None
        if value.isascii() and value.isdigit() and len(value) <= _NUMBER_CHARS_MAX:
            return instant_ms(name, int(value))
        if value[0] in "+-":
            try:
                length_ms = wait_ms(name, value[1:])
            except InvalidValue as error:
                raise InvalidValue(name, value, _MOMENT_RULE) from error
            return max(0, now_ms + (length_ms if value[0] == "+" else -length_ms))
        found = local_ms(value)
        if found is None or not INSTANT_MS_MIN <= found <= INSTANT_MS_MAX:
            raise InvalidValue(name, value, _MOMENT_RULE)
        return found

    def letter_filter(self, now_ms: int, *names: str) -> DeadLetterFilter:
        """The filter of failed messages; names: only of these fields."""
        if self.is_on("chosen") and not self.ids("id"):
            # Without an id the filter would match every dead letter.
            raise InvalidValue("id", "", "at least one chosen dead letter")
        fields = {each: self.text(each) for each in names or LETTER_FIELDS}
        is_timed = "since" in fields
        return DeadLetterFilter(
            topic=fields["topic"],
            tag=fields["tag"],
            key=fields["key"],
            reason=fields["reason"],
            failure_kind=fields["kind"],
            since_ms=(self.moment_ms("since", now_ms) or 0) if is_timed else 0,
            until_ms=self.moment_ms("until", now_ms) if is_timed else None,
            ids=self.ids("id"),
            job_id=fields.get("job", ""),
        )

    def pending_filter(self, now_ms: int) -> PendingFilter:
        return PendingFilter(
            levels=self._levels(),
            topic=self.text("topic"),
            due_from_ms=self.moment_ms("from", now_ms) or 0,
            due_until_ms=self.moment_ms("until", now_ms),
            key=self.text("key"),
            ids=self.ids("id"),
            origin_topic=self.text("origin"),
            tag=self.text("tag"),
            reason=self.text("reason"),
            failure_kind=self.text("kind"),
        )

    def _levels(self) -> tuple[int, ...]:
        value = self.text("level")
        if value == TIMER:
            return (TIMERS,)
        return (self.number("level"),) if value else ()

    def given(self, *names: str) -> Fields:
        """These fields as they were sent, without the empty ones, for a link or a form."""
        given: Fields = {name: self.text(name) for name in names if self.text(name)}
        if "id" in names and len(self.ids("id")) > 1:
            given["id"] = self.ids("id")
        return given


def instants(wanted: DeadLetterFilter) -> Fields:
    """The times of a filter as instants: they mean the same however long somebody thinks."""
    given: Fields = {}
    if wanted.since_ms:
        given["since"] = str(wanted.since_ms)
    if wanted.until_ms is not None:
        given["until"] = str(wanted.until_ms)
    return given


RETRY_FIELDS: Final = ("kind", "reason", "topic", "tag", "key", "id")
LETTER_FIELDS: Final = (*RETRY_FIELDS, "job", "since", "until")
PENDING_FIELDS: Final = (
    *("level", "topic", "from", "until", "key", "id"),
    *("origin", "tag", "reason", "kind"),
)
