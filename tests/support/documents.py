"""The pages of the repository (every *.md), taken apart: links, anchors, code.

A page is split into its fences (``` blocks, with their language) and its prose; code spans and
links are read from the prose only.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MADE_BY_TOOLS = {"build", "dist"}

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_SHELL_ENDS = {"|", "||", "&", "&&", ";", ">", ">>", "<"}


@dataclass(frozen=True)
class Page:
    """One page; name is its path below the repository's root."""

    name: str
    text: str

    @classmethod
    def read(cls, path: Path) -> Page:
        return cls(str(path.relative_to(ROOT)), path.read_text("utf-8"))

    @cached_property
    def prose(self) -> str:
        """The page without its fences."""
        return _FENCE.sub("", self.text)

    @cached_property
    def spans(self) -> list[str]:
        """The text of every code span, on one line."""
        return [" ".join(span.split()) for span in _SPAN.findall(self.prose)]

    @cached_property
    def links(self) -> list[str]:
        """The targets of all links that stay in the repository."""
        targets = _LINK.findall(_SPAN.sub("code", self.prose))
        return [target for target in targets if not re.match(r"[a-z]+:", target)]

    @cached_property
    def anchors(self) -> set[str]:
        """GitHub's anchors: a heading in lower case, blanks as hyphens, without punctuation."""
        found: set[str] = set()
        for heading in _HEADING.findall(self.prose):
            plain = re.sub(r"[^\w\- ]", "", _LINK.sub("", heading).lower()).replace(" ", "-")
            anchor, again = plain, 0
            while anchor in found:
                again += 1
                anchor = f"{plain}-{again}"
            found.add(anchor)
        return found

    def fences(self, *languages: str) -> list[str]:
        """The fences of these languages; "" is a fence without one."""
        return [code for language, code in _FENCE.findall(self.text) if language in languages]

    def commands(self) -> Iterator[list[str]]:
        """The words of every call of rmqlite that the page shows, without the first one.

        In a fence with prompts ("$ ") only these lines are commands, the others are output.
        """
        for code in self.fences("", "sh"):
            lines = code.replace("\\\n", " ").splitlines()
            prompted = [line[2:] for line in lines if line.startswith("$ ")]
            for line in prompted or lines:
                yield from _called(line)
        for span in self.spans:
            yield from _called(span)

    def table_after(self, heading: str) -> list[list[str]]:
        """The cells of the first table below a heading, row by row, without its head."""
        below = self.text.split(f"{heading}\n", 1)[1]
        rows = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
        assert rows, f"{self.name} has no table below {heading!r}"
        cells = [row.strip().removeprefix("|").split("|") for row in rows[0].splitlines()[2:]]
        return [[cell.strip() for cell in row] for row in cells]


def pages() -> list[Page]:
    """Every page that is part of the repository."""
    found: list[Path] = []
    for folder, names, files in os.walk(ROOT):
        names[:] = [name for name in names if name[0] != "." and name not in MADE_BY_TOOLS]
        found += [Path(folder, name) for name in files if name.endswith(".md") and name[0] != "."]
    return [Page.read(path) for path in sorted(found)]


def spans_of(text: str) -> list[str]:
    """The code spans of a piece of a page, such as a table's cell."""
    return _SPAN.findall(text)


def _called(line: str) -> Iterator[list[str]]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        words = line.split()
    if len(words) > 1 and Path(words[0]).name == "rmqlite":
        end = next((n for n, word in enumerate(words) if word in _SHELL_ENDS), len(words))
        yield words[1:end]
