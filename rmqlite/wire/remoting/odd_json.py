"""RocketMQ's odd JSON: maps whose keys are bare numbers or objects.

    {"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:7}}      {"brokerAddrs":{0:"…"}}

strict() makes such a text JSON: a bare number becomes a text, and so does an object that is a
key, as one text.  Java reads that form as well.
"""

from __future__ import annotations

import re
from typing import Final

from rmqlite.wire.remoting.limits import ODD_TOKENS_MAX

_TOKEN: Final = re.compile(
    r'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]|-?[0-9]++|[^\s{}\[\],:"]++|"', re.DOTALL
)
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_KEY_PARTS_MAX: Final = 64
"""Tokens in an object that is a key; a message queue has 13."""


class OddKey(ValueError):
    """An object that is a key is too long, or holds another object; or all of it is too long."""


def strict(text: str) -> str:
    """The same as JSON, without blanks; what else is wrong with the text stays wrong."""
    parts: list[str] = []
    inside: list[str] = []
    before = ""
    key_from: int | None = None
    for found in _TOKEN.finditer(text):
        token = found[0]
        if len(parts) >= ODD_TOKENS_MAX:
            raise OddKey(f"more than {ODD_TOKENS_MAX} texts, numbers and signs")
        is_key = bool(inside) and inside[-1] == "{" and before in ("{", ",")
        if key_from is not None and token in ("{", "["):
            raise OddKey("an object or a list in an object that is a key")
        if token in ("{", "["):
            if is_key and token == "{":
                key_from = len(parts)
            inside.append(token)
        elif is_key and _NUMBER.fullmatch(token):
            token = f'"{token}"'
        parts.append(token)
        before = token
        if token in ("}", "]") and inside:
            inside.pop()
            if key_from is not None:
                parts[key_from:] = [_as_text("".join(parts[key_from:]))]
                key_from = None
        elif key_from is not None and len(parts) - key_from > _KEY_PARTS_MAX:
            raise OddKey(f"an object with more than {_KEY_PARTS_MAX} parts that is a key")
    return "".join(parts)


def _as_text(key: str) -> str:
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
