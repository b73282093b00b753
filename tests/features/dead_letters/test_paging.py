"""Answers in pages: every page once, in order, and none before it is needed."""

from __future__ import annotations

from itertools import islice

from rmqlite.features.cursors import pages
from rmqlite.features.dead_letters.requests import DeadLetterPage, DeadLettersQuery


def test_every_page_is_asked_for_by_the_cursor_of_the_page_before() -> None:
    """An empty page in between is not the end, and the rest of the query stays."""
    answers = {"": "a", "a": "b", "b": ""}
    asked: list[DeadLettersQuery] = []

    def ask(query: DeadLettersQuery) -> DeadLetterPage:
        asked.append(query)
        return DeadLetterPage((), answers[query.cursor], len(asked))

    first = DeadLettersQuery("shop", max_letters=7)
    assert [each.looked_at for each in pages(ask, first)] == [1, 2, 3]
    assert [(each.cursor, each.max_letters) for each in asked] == [("", 7), ("a", 7), ("b", 7)]
    assert [each.looked_at for each in islice(pages(ask, first), 2)] == [4, 5]
    assert len(asked) == 5
