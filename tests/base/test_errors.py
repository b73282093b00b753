"""Every deliberate error: a stable code, a sentence from its fields, and a way back."""

from __future__ import annotations

import copy
import errno
import inspect
import os
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

from rmqlite.kernel.words import errors
from rmqlite.kernel.words.errors import (
    InvalidValue,
    Refused,
    RmqliteError,
    Unavailable,
    by_code,
    restore,
)
from rmqlite.kernel.words.visible import ECHO_CHARS_MAX

WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
SAMPLES = {
    "str": "a\ttext",
    "int": 7,
    "float": 0.5,
    "bool": True,
    "object": 7,
    "Iterable[str]": ("a", "b"),
}
CLASSES = sorted(by_code().values(), key=lambda cls: cls.code)


def test_every_class_has_a_code_of_its_own() -> None:
    """by_code() would silently drop one of two classes with the same code."""
    classes = {
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, RmqliteError)
    }
    assert set(by_code().values()) == classes
    assert all("code" in vars(cls) for cls in classes)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.code)
def test_a_code_is_for_programs_and_says_whether_a_retry_can_help(
    cls: type[RmqliteError],
) -> None:
    """Refused never works unchanged, Unavailable may; nothing stands between the two."""
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", cls.code)
    assert cls.__doc__
    if cls is not RmqliteError:
        assert issubclass(cls, Refused) != issubclass(cls, Unavailable)
        assert cls.can_retry is issubclass(cls, Unavailable)


def test_an_error_says_field_value_and_rule() -> None:
    """A caller can mend the request without reading our source."""
    error = InvalidValue("queue_id", 9, "0 to 3")
    assert str(error) == "queue_id must be 0 to 3, not '9'"
    assert (error.field, error.value, error.rule) == ("queue_id", "9", "0 to 3")
    explained = InvalidValue("port", 9, "free on bindAddress=:: (in use); or 0")
    assert str(explained) == "port must be free on bindAddress=:: (in use), not '9'; or 0"


def test_a_long_value_is_shortened() -> None:
    """A body of 4 MiB belongs neither in a log line nor in gRPC's metadata."""
    error = InvalidValue("body", "x" * 10_000, "short")
    assert error.value == "x" * ECHO_CHARS_MAX + "… (10,000 characters)"
    assert str(error) == f"body must be short, not {error.value!r}"


def test_a_value_that_is_not_long_is_repeated_whole() -> None:
    """So that it can be looked for."""
    name = "x" * ECHO_CHARS_MAX
    assert errors.TopicUnknown(name).value == name
    assert name in str(errors.TopicUnknown(name))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.code)
def test_an_error_is_restored_as_it_was_raised(cls: type[RmqliteError]) -> None:
    """A client catches the same class that the broker raised."""
    error = restore(cls.code, "a sentence", field="f", value="v", rule="r")
    assert type(error) is cls
    assert str(error) == "a sentence"
    assert (error.field, error.value, error.rule) == ("f", "v", "r")


@pytest.mark.one_of(2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.code)
def test_an_error_leaves_a_process_whole(cls: type[RmqliteError], way: str) -> None:
    """One that does not unpickle breaks a pool of processes for good."""
    arguments = inspect.signature(cls).parameters.values()
    named = {
        each.name: SAMPLES[str(each.annotation)]
        for each in arguments
        if each.kind is not each.VAR_KEYWORD
    }
    keyword = {each.name for each in arguments if each.kind == each.KEYWORD_ONLY}
    positional = [value for name, value in named.items() if name not in keyword]
    made: Any = cls  # each class has arguments of its own
    error = made(*positional, **{name: named[name] for name in keyword & named.keys()})
    error.add_note("of the caller")
    for each in (error, restore(cls.code, "a sentence", field="f", value="v", rule="r")):
        back = WAYS[way](each)
        assert type(back) is cls
        assert (str(back), back.args, vars(back)) == (str(each), each.args, vars(each))


@pytest.mark.parametrize("way", WAYS)
def test_a_full_disk_stays_one_without_its_cause(way: str) -> None:
    """As any error of Python, an error that leaves a process has no cause."""
    error = errors.StoreUnavailable("write to", "commitlog", "no space")
    error.__cause__ = OSError(errno.ENOSPC, "no space")
    assert WAYS[way](error).is_full


def test_an_unknown_code_becomes_the_root() -> None:
    """A newer broker may know errors that an older client does not."""
    error = restore("from-the-future", "a sentence", field="f", value="v", rule="r")
    assert type(error) is RmqliteError
    assert str(error) == "a sentence"


def test_a_config_error_names_the_line_only_where_there_is_one() -> None:
    """A value given in code has no line."""
    assert str(errors.ConfigInvalid("a.conf", 7, "k", "v", "r")) == "a.conf:7: k='v': r"
    assert str(errors.ConfigInvalid("a.conf", 0, "k", "v", "r")) == "a.conf: k='v': r"


def test_a_full_disk_names_how_full_and_both_thresholds() -> None:
    """What an operator needs: free space, or change a key."""
    error = errors.DiskFull(0.9137, 90, 85)
    assert str(error) == "the disk is 91.4% full: sends are refused"
    assert (error.field, error.value) == ("diskSpaceWarningLevelRatio", "90")
    assert error.rule.endswith("until it is below diskSpaceCleanForciblyRatio=85")


@pytest.mark.parametrize(
    ("number", "is_full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)]
)
def test_an_unavailable_store_knows_whether_space_was_the_reason(
    number: int, is_full: bool
) -> None:
    """A full disk gets better by itself or with a deletion, a broken one does not."""
    cause = OSError(number, os.strerror(number))
    with pytest.raises(errors.StoreUnavailable) as raised:
        raise errors.StoreUnavailable("write to", "commitlog", os.strerror(number)) from cause
    assert raised.value.is_full is is_full


def test_who_knows_without_a_cause_that_space_was_the_reason_says_so() -> None:
    """A disk of the tests has no errno; and the far side of the wire does not know."""
    error = errors.StoreUnavailable("write to", "commitlog", "told to fail", is_full=True)
    assert error.is_full
    far = restore(error.code, str(error), field=error.field, value=error.value, rule=error.rule)
    assert isinstance(far, errors.StoreUnavailable)
    assert not far.is_full
