"""rmqlite store export as Parquet and Arrow: the same messages as the lines of JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from rmqlite.extras import EXTRAS
from rmqlite.kernel.words.message import KEYS, UNIQ_KEY, offset_message_id
from rmqlite.spark.arrow.columns import COLUMNS, DEFAULT_NAMES
from tests.support.golden import unpack_golden
from tests.support.looking import run_store, untouched
from tests.support.stores import StoreUnderTest, new_record


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """What fill() makes, and messages with keys and ids."""
    under_test = StoreUnderTest(tmp_path / "store")
    under_test.fill()
    for number in range(6):
        pairs = {KEYS: f"order-{number} all", UNIQ_KEY: f"{number:032X}"}
        under_test.append(new_record(f"k{number}", "keyed", number % 2, properties=pairs))
    under_test.close()
    return under_test.root


def places_in_json(root: Path, *options: object) -> list[int]:
    result = run_store("export", root, *options)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line)["physical_offset"] for line in result.stdout.splitlines()]


def exported(root: Path, output: Path, *options: object) -> pa.Table:
    with untouched(root):
        result = run_store("export", root, "--output", output, *options)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith("exported ")
    return parquet.read_table(output) if output.suffix == ".parquet" else table_of(output)


def table_of(path: Path) -> pa.Table:
    with ipc.open_file(path) as file:
        return file.read_all()


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--topic", "orders"),
        ("--topic", "o*", "--queue", 1),
        ("--scheduled",),
        ("--scheduled", "--topic", "orders", "--queue", 1),
        ("--from-offset", 2, "--to-offset", 4),
        ("--key", "order-3"),
        ("--key", "all", "--limit", 2),
        ("--key", "order"),
        ("--id", f"{4:032X}"),
        ("--id", offset_message_id("10.0.0.2:10911", 0)),
        ("--id", "nobody's"),
        ("--group", "nobody"),
        ("--since", 1_700_000_000_000),
    ],
)
def test_the_filters_take_the_same_messages(
    store: Path, tmp_path: Path, options: tuple[object, ...]
) -> None:
    """Another form of file is no other question."""
    wanted = ("--columns", "physical_offset")
    found = exported(store, tmp_path / "out.parquet", *wanted, *options)
    assert found.column_names == ["physical_offset"]
    assert sorted(found["physical_offset"].to_pylist()) == places_in_json(store, *options)


def test_a_store_of_rocketmqs_becomes_a_table(tmp_path: Path) -> None:
    """All columns, among them a map."""
    root = unpack_golden(tmp_path) / "clean"
    found = exported(root, tmp_path / "out.arrow", "--columns", "*")
    assert found.column_names == [column.name for column in COLUMNS]
    assert found["physical_offset"].to_pylist() == places_in_json(root)


def test_the_end_of_the_name_says_what_it_is(store: Path, tmp_path: Path) -> None:
    """--format says it louder."""
    assert exported(store, tmp_path / "a.parquet").column_names == list(DEFAULT_NAMES)
    assert table_of_named(store, tmp_path / "a.feather") == list(DEFAULT_NAMES)
    assert table_of_named(store, tmp_path / "a.x", "--format", "arrow") == list(DEFAULT_NAMES)


def table_of_named(root: Path, output: Path, *options: object) -> list[str]:
    return list(exported(root, output, *options).column_names)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--format", "parquet"), "--output must be"),
        (("--columns", "topic"), "--columns needs --format parquet or arrow"),
        (("-o", "x.parquet", "--columns", "topci"), "did you mean topic?"),
        (("-o", "x.parquet", "--inflate"), "--inflate needs --format jsonl"),
        (("-o", "x.parquet", "--skip-damaged"), "--skip-damaged needs --format jsonl"),
    ],
)
def test_what_no_table_can_be_is_refused(
    store: Path,
    tmp_path: Path,
    options: tuple[object, ...],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before anything is written."""
    monkeypatch.chdir(tmp_path)
    result = run_store("export", store, *options)
    assert result.exit_code == 2
    assert told in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_damaged_store_leaves_no_half_table(store: Path, tmp_path: Path) -> None:
    """A file is complete or not there."""
    path = sorted((store / "commitlog").iterdir())[0]
    data = bytearray(path.read_bytes())
    data[4] ^= 1
    path.write_bytes(data)
    result = run_store("export", store, "-o", tmp_path / "x.parquet")
    assert result.exit_code != 0
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_without_arrow_it_says_what_to_install(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of JSON need nothing, a table does."""
    monkeypatch.setitem(EXTRAS["arrow"], "pyarrow", ((999,), (1000,)))
    result = run_store("export", store, "-o", tmp_path / "x.parquet")
    told = " ".join(result.stderr.split())
    assert 'pip install "rmqlite[arrow]"' in told
    assert places_in_json(store)
