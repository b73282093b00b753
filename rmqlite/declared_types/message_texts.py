"""The texts of a message that a user hands over: a property string must be able to hold them.

Its separators are 0x01 and 0x02, and its bytes are UTF-8.  Its keys stand in one value, with blanks
between them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Final

from rmqlite.errors import InvalidValue
from rmqlite.limits import KEY_BYTES_MAX, MESSAGE_ID_BYTES_MAX, TAGS_BYTES_MAX, check_length
from rmqlite.property_string import KEY_END, PAIR_END

_SURROGATES = re.compile("[\ud800-\udfff]")
_UNFIT = re.compile(r"[\s\x01\x02\ud800-\udfff]")
_TEXT_RULE: Final = "UTF-8 text without control characters 0x01 and 0x02"


def check_texts(tags: str, message_id: str, keys: Sequence[str]) -> None:
    """Raises InvalidValue."""
    for name, text, bytes_max in (
        ("tags", tags, TAGS_BYTES_MAX),
        ("message_id", message_id, MESSAGE_ID_BYTES_MAX),
    ):
        if not _is_text(text):
            raise InvalidValue(name, text, _TEXT_RULE)
        check_length(name, text, bytes_max)
    for key in keys:
        if not key or _UNFIT.search(key):
            raise InvalidValue("keys", key, f"tokens without blanks, {_TEXT_RULE}")
        check_length("keys", key, KEY_BYTES_MAX)


def check_properties(properties: Mapping[str, str], reserved: Set[str]) -> None:
    """Raises InvalidValue, or TypeError for what is no text."""
    for key, value in properties.items():
        if key in reserved:
            raise InvalidValue("properties", key, "a name that RocketMQ does not reserve")
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError
        if not key or not value:
            raise InvalidValue("properties", f"{key}={value}", "text keys and values, none empty")
        if not _is_text(key) or not _is_text(value):
            raise InvalidValue("properties", f"{key}={value}", _TEXT_RULE)


def _is_text(text: str) -> bool:
    """Can a property string hold it?  ASCII text is not searched for surrogates."""
    if KEY_END in text or PAIR_END in text:
        return False
    return text.isascii() or not _SURROGATES.search(text)
