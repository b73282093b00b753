"""The compiled form beside the plain one: the same answers, and the same bytes on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest

from rmqlite.kernel import compiled
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import TOPIC, create_topic

T = TypeVar("T")
OTHER = "payments"

needs_compiled = pytest.mark.skipif(
    not compiled.is_on, reason="this installation has no compiled form"
)


def damaged(data: bytes, random: Random) -> bytes:
    """The same with 1 to 3 bytes changed, parts cut out, or parts repeated elsewhere."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(changed) or 1)
        kind = random.randrange(3) if changed else 2
        if kind == 0:
            changed[at] = random.randrange(256)
        elif kind == 1:
            del changed[at : at + random.randint(1, 9)]
        else:
            changed[at:at] = data[random.randrange(len(data)) :][: random.randint(1, 40)]
    return bytes(changed)


def bytes_in(folder: Path) -> dict[str, str]:
    """All files, as sums."""
    return {
        str(path.relative_to(folder)): hashlib.md5(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def same_in_both(scenario: Callable[[BrokerUnderTest], T], **config: Any) -> T:
    """Run it on a fresh store with each form; what it returns, and the stores, do not differ."""
    answers: list[T] = []
    stores: list[dict[str, str]] = []
    for is_on in (True, False):
        with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
            patch.setattr(compiled, "is_on", is_on)
            broker = BrokerUnderTest(Path(folder), **config)
            create_topic(broker, TOPIC)
            create_topic(broker, OTHER)
            answers.append(scenario(broker))
            broker.close()
            stores.append(bytes_in(Path(folder)))
    assert answers[0] == answers[1]
    names = sorted(stores[0].keys() | stores[1].keys())
    assert not [name for name in names if stores[0].get(name) != stores[1].get(name)]
    return answers[0]
