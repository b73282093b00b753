"""The small tables: RocketMQ's JSON, and its previous generation."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rmqlite.kernel.config.table_shapes import DelayOffsetsTable
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.words.errors import StoreDamaged

G6 = '{\n\t"offsetTable":{1:1,2:3\n\t}\n}'
TEXT = some.text(some.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**63), 2**63 - 1) | TEXT,
    lambda inner: (
        some.lists(inner, max_size=3)
        | some.dictionaries(TEXT, inner, max_size=3)
        | some.dictionaries(some.integers(), inner, max_size=3)
    ),
    max_leaves=15,
)


def with_text_keys(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): with_text_keys(each) for key, each in value.items()}
    if isinstance(value, list):
        return [with_text_keys(each) for each in value]
    return value


def test_a_table_has_the_text_that_rocketmq_writes() -> None:
    """G6: integer keys bare and on the line of their brace."""
    assert tables.encode({"offsetTable": {1: 1, 2: 3}}).decode() == G6


def test_consumer_offsets_have_rocketmqs_shape() -> None:
    """As in a 4.9.8 store: each topic@group on a line of its own."""
    tree: tables.Tree = {"offsetTable": {"%RETRY%g@g": {0: 10}, "orders@g": {0: 604, 1: 603}}}
    assert tables.encode(tree).decode() == (
        '{\n\t"offsetTable":{\n\t\t"%RETRY%g@g":{0:10\n\t\t},\n'
        '\t\t"orders@g":{0:604,1:603\n\t\t}\n\t}\n}'
    )


def test_an_empty_table_is_an_empty_object() -> None:
    """Nothing was delivered yet."""
    assert tables.encode({"offsetTable": {}}) == b'{\n\t"offsetTable":{}\n}'


def test_bare_and_quoted_integer_keys_are_read() -> None:
    """RocketMQ reads both; other tools write the quoted ones."""
    wanted = {"offsetTable": {"1": 1, "-2": 3}}
    assert tables.decode(b'{"offsetTable":{1:1,-2:3}}') == wanted
    assert tables.decode(b'{"offsetTable": { "1" : 1, "-2": 3 } }') == wanted
    assert tables.decode(b'{"offsetTable":{\n1 : 1,\n-2:3\n}}') == wanted


def test_text_that_looks_like_a_bare_key_is_text() -> None:
    """Only what stands outside of quotes is a key."""
    tree = {"a": {1: 2}, "b": "{3:4,5:6}", 'c"{7:': ["\\", "x,8:9"]}
    assert tables.decode(tables.encode(tree)) == with_text_keys(tree)


@given(some.dictionaries(TEXT, VALUES, max_size=4))
def test_a_table_survives_the_way_to_disk_and_back(tree: tables.Tree) -> None:
    """Whatever is in the names: braces, commas, digits before a colon, other scripts."""
    assert tables.decode(tables.encode(tree)) == with_text_keys(tree)


@pytest.mark.parametrize("data", [b"[1]", b"7", b'"x"', b"{", b"\xff", b"nonsense"])
def test_what_is_no_table_is_an_error(data: bytes) -> None:
    """Never an empty table: that would forget every offset."""
    with pytest.raises(ValueError):  # noqa: PT011 - the sentence is the parser's
        tables.decode(data)


def test_the_previous_generation_stays_as_backup(tmp_path: Path) -> None:
    """RocketMQ falls back to it as well."""
    files, path = SystemFiles(), tmp_path / "topics.json"
    files.replace(path, b"one", keep_previous=True)
    files.replace(path, b"two", keep_previous=True)
    assert path.read_bytes() == b"two"
    assert (tmp_path / "topics.json.bak").read_bytes() == b"one"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["topics.json", "topics.json.bak"]


@pytest.mark.parametrize("data", [None, b"", b" \n", b"{torn", b"\xff\xfe"])
def test_the_backup_is_read_when_the_table_is_gone_or_unreadable(
    tmp_path: Path, data: bytes | None
) -> None:
    """RocketMQ deletes a table before it renames the new one."""
    path = tmp_path / "topics.json"
    (tmp_path / "topics.json.bak").write_bytes(b'{"a":1}')
    if data is not None:
        path.write_bytes(data)
    assert tables.load(SystemFiles(), path) == {"a": 1}


def test_no_table_is_none(tmp_path: Path) -> None:
    """A new store has none."""
    assert tables.load(SystemFiles(), tmp_path / "topics.json") is None


def test_two_unreadable_generations_are_damage(tmp_path: Path) -> None:
    """With the path of the newer one and where it stops making sense."""
    path = tmp_path / "topics.json"
    path.write_bytes(b'{"a":1,!')
    (tmp_path / "topics.json.bak").write_bytes(b"[")
    with pytest.raises(StoreDamaged) as caught:
        tables.load(SystemFiles(), path)
    assert caught.value.path == str(path)
    assert caught.value.position == 7


HOSTILE = {
    b'{"a": ' + b"[" * 100_000: "nested at most",
    b'{"a": {"b": 1e999}}': "a.b: a number",
    b'{"a": {"b": NaN}}': "a.b: a number",
    b'{"a": {1: ' + b"9" * 30 + b"}}": "a.1: a number from",
    b'{"a": ' + b"9" * 5_000 + b"}": "JSON",
    b'{"a": "\\ud800"}': "a: whole characters",
    b'{"a": "' + b'\\"' * 200_000: "JSON",
}


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_table_is_damage_with_its_place(tmp_path: Path, data: bytes) -> None:
    """Neither a RecursionError, nor an OverflowError later, nor hours in a regular expression."""
    path = tmp_path / "topics.json"
    path.write_bytes(data)
    with pytest.raises(StoreDamaged, match=r"topics\.json") as caught:
        tables.load(SystemFiles(), path)
    assert HOSTILE[data] in str(caught.value)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ('{"offsetTable":{1:5,2:"x"}}', 22),
        ('{"é":1,"offsetTable":{"10":"x"}}', 28),
        ('{"offsetTable":{1:5,2:}}', 22),
        ('{"offsetTable":{"x":1}}', 20),
        ('{"offsetTable":[]}', 15),
    ],
)
def test_a_wrong_value_is_told_with_its_byte(tmp_path: Path, text: str, position: int) -> None:
    """In the file as it stands, with bare keys and letters of two bytes."""
    path = tmp_path / "delayOffset.json"
    path.write_text(text, "utf-8")
    with pytest.raises(StoreDamaged) as caught:
        tables.load_as(SystemFiles(), path, DelayOffsetsTable)
    assert caught.value.position == position


def test_a_wrong_value_is_not_replaced_by_the_generation_before(tmp_path: Path) -> None:
    """It is not what a crash leaves: somebody has written it, and is told."""
    path = tmp_path / "delayOffset.json"
    path.write_text('{"offsetTable":{"1":-1}}')
    (tmp_path / "delayOffset.json.bak").write_text('{"offsetTable":{"1":1}}')
    with pytest.raises(StoreDamaged, match=r"delayOffset\.json is damaged .*offsetTable\.1: "):
        tables.load_as(SystemFiles(), path, DelayOffsetsTable)
