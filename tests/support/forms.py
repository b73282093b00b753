"""The compiled form beside the plain one: the same answers, and the same bytes on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest

from rmqlite import compiled
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import TOPIC, create_topic

T = TypeVar("T")
OTHER = "payments"

needs_compiled = pytest.mark.skipif(
    not compiled.is_on, reason="this installation has no compiled form"
)


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
