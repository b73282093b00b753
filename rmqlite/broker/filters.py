"""Tag expressions: "*", or "TagA || TagB" (reference §9.5)."""

from __future__ import annotations

from functools import lru_cache

from rmqlite.errors import InvalidValue
from rmqlite.store.record import tags_hash


@lru_cache(maxsize=1024)
def parse_tags(expression: str) -> frozenset[str] | None:
    """The tags that an expression takes; None takes every message.  Raises InvalidValue."""
    text = expression.strip()
    if text in ("", "*"):
        return None
    tags = frozenset(tag.strip() for tag in text.split("||"))
    if "" in tags or "*" in tags:
        raise InvalidValue("expression", expression, '"*", or tags joined by "||"')
    return tags


@lru_cache(maxsize=1024)
def tags_codes(tags: frozenset[str]) -> frozenset[int]:
    """The tags codes that queue entries of such messages have; others may share them."""
    return frozenset(tags_hash(tag) for tag in tags)
