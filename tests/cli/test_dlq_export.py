"""rmqlite dlq export: every dead letter with its body, in files that are complete or not there."""

from __future__ import annotations

import csv
import io
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from rmqlite.cli.dlq.export import COLUMNS
from rmqlite.extras import EXTRAS
from rmqlite.features.dead_letters.requests import DeadLetterFilter, DeadLettersQuery
from rmqlite.kernel.words.errors import BrokerClosing
from tests.cli.conftest import Run
from tests.support.fake_broker import FakeBroker
from tests.support.fake_dead_letters import HOSTILE, NOW_MS, has_letters, record

BODIES = (b"plain", b"\xff\x00\xfe", HOSTILE.encode(), b"", b'two "lines"\r\nof it, yes')


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_every_letter_is_a_line_of_json(run: Run, broker: FakeBroker) -> None:
    """All pages, all bodies, in the order in which they died, and ASCII only."""
    has_letters(broker, *[record(n, body) for n, body in enumerate(BODIES)], page=2)
    result = run("dlq", "export", "billing")
    trees = [json.loads(line) for line in result.stdout.splitlines()]
    bodies = [
        bytes.fromhex(each["body"]) if each["body_encoding"] == "hex" else each["body"].encode()
        for each in trees
    ]
    assert tuple(bodies) == BODIES
    assert [each["body_encoding"] for each in trees] == ["utf-8", "hex", "utf-8", "utf-8", "utf-8"]
    assert all([tuple(each) == tuple(COLUMNS) for each in trees])
    assert result.stdout.isascii()
    assert trees[1]["queue_offset"] == 1
    assert trees[1]["keys"] == ["order-1"]
    assert trees[1]["properties"]["TAGS"] == "A"
    assert result.stderr.startswith("exported 5 dead letters, ")
    assert not broker.asked["Pull"]
    assert not broker.asked["CommitOffsets"]


def test_csv_is_read_back_as_it_was(run: Run, broker: FakeBroker, tmp_path: Path) -> None:
    """Quotes, commas and line ends within a cell; the end of the file's name says it is CSV."""
    has_letters(broker, *[record(n, body) for n, body in enumerate(BODIES)])
    assert run("dlq", "export", "billing", "-o", str(tmp_path / "x.csv")).exit_code == 0
    rows = rows_of((tmp_path / "x.csv").read_bytes().decode())
    assert tuple(rows[0]) == tuple(COLUMNS)
    bodies = [
        bytes.fromhex(each["body"]) if each["body_encoding"] == "hex" else each["body"].encode()
        for each in rows
    ]
    assert tuple(bodies) == BODIES
    assert rows[0]["first_failure_ms"] == str(NOW_MS - 3_600_000)
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []


@pytest.mark.parametrize("text", ["=cmd|'/c calc'!A1", "+1", "-1", "@SUM(A1)", "'quoted"])
def test_a_cell_of_csv_is_no_formula(run: Run, broker: FakeBroker, text: str) -> None:
    """A spreadsheet would calculate what a sender wrote; one ' less is what it was."""
    has_letters(broker, record(0, text.encode(), FAILURE_REASON=text, TAGS=text))
    (row,) = rows_of(run("dlq", "export", "billing", "--format", "csv").stdout)
    assert (row["body"], row["reason"], row["tags"]) == (f"'{text}",) * 3


def test_csv_has_nothing_that_a_terminal_would_interpret(run: Run, broker: FakeBroker) -> None:
    """It goes to one as it is; the body of such a letter is in hex, the other cells escaped."""
    has_letters(broker, record(0, HOSTILE.encode(), FAILURE_REASON=HOSTILE, KEYS=HOSTILE))
    text = run("dlq", "export", "billing", "--format", "csv").stdout
    assert "".join(text.split("\n")).isprintable()
    (row,) = rows_of(text)
    assert row["reason"] == "\\x1b]52;c;cm0gLXJm\\x07\\x9b31m\\u202e<script>"
    assert (row["body_encoding"], bytes.fromhex(row["body"])) == ("hex", HOSTILE.encode())


def test_joiners_of_other_scripts_stay_text(run: Run, broker: FakeBroker) -> None:
    """Persian and emoji need what cannot be seen."""
    text = "\u0645\u06cc\u200c\u062e\u0648 \U0001f469\u200d\U0001f4bb"
    has_letters(broker, record(0, text.encode()))
    (row,) = rows_of(run("dlq", "export", "billing", "--format", "csv").stdout)
    assert (row["body_encoding"], row["body"]) == ("utf-8", text)


def test_parquet_has_bodies_as_bytes_and_times_as_times(
    run: Run, broker: FakeBroker, tmp_path: Path
) -> None:
    """What a program reads without asking what a column means."""
    has_letters(broker, *[record(n, body) for n, body in enumerate(BODIES)], page=2)
    path = tmp_path / "x.parquet"
    assert run("dlq", "export", "billing", "-o", str(path)).exit_code == 0
    table = parquet.read_table(path)
    assert tuple(table.column("body").to_pylist()) == BODIES
    assert table.column("last_failure")[0].as_py().timestamp() * 1000 == NOW_MS - 60_000
    assert table.column("keys").to_pylist()[1] == ["order-1"]
    assert ("TAGS", "A") in table.column("properties").to_pylist()[0]


def test_an_empty_export_has_its_columns(run: Run, broker: FakeBroker, tmp_path: Path) -> None:
    """A program that reads it is not surprised; the exit code says that there was nothing."""
    has_letters(broker)
    for name in ("x.csv", "x.parquet", "x.jsonl"):
        assert run("dlq", "export", "billing", "-o", str(tmp_path / name)).exit_code == 1
    assert (tmp_path / "x.csv").read_text().strip() == ",".join(COLUMNS)
    assert parquet.read_table(tmp_path / "x.parquet").num_rows == 0
    assert (tmp_path / "x.jsonl").read_text() == ""


def test_without_the_extra_parquet_says_what_to_install(
    run: Run, broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, and no file."""
    has_letters(broker, record(0, b"x"))
    monkeypatch.setitem(EXTRAS["arrow"], "pyarrow", ((99,), (100,)))
    result = run("dlq", "export", "billing", "-o", str(tmp_path / "x.parquet"))
    assert result.exit_code == 1
    assert "pip install" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.glob("x.*"))


def test_what_is_interrupted_leaves_the_file_that_was_there(
    run: Run, broker: FakeBroker, tmp_path: Path
) -> None:
    """Half an export looks like a whole one."""
    has_letters(broker, *[record(n, b"x") for n in range(4)], page=2)
    path = tmp_path / "x.jsonl"
    path.write_text("yesterday's")
    list_dead = broker.answers["ListDeadLetters"]

    def failing(query: DeadLettersQuery) -> Any:
        if query.cursor:
            raise BrokerClosing
        return list_dead(query)

    broker.answers["ListDeadLetters"] = failing
    result = run("dlq", "export", "billing", "-o", str(path))
    assert result.exit_code == 3
    assert path.read_text() == "yesterday's"
    assert not list(tmp_path.glob("*.tmp"))


def test_a_filter_is_asked_of_the_broker(run: Run, broker: FakeBroker) -> None:
    """The same options as show has."""
    has_letters(broker, record(0, b"x"))
    run("dlq", "export", "billing", "--tag", "A", "--reason", "r", "--open")
    wanted = DeadLetterFilter(tag="A", reason="r")
    expected = DeadLettersQuery("billing", wanted, is_open=True, max_letters=1_000)
    assert broker.asked["ListDeadLetters"] == [expected]


def test_letters_that_retention_took_meanwhile_are_counted(run: Run, broker: FakeBroker) -> None:
    """What is missing is said."""
    records = [record(n, b"x") for n in range(3)]
    has_letters(broker, *records)
    read_queue = broker.answers["ListDeadLetters"]
    has_letters(broker, records[0], records[2])
    broker.answers["ListDeadLetters"] = read_queue
    result = run("dlq", "export", "billing")
    assert [json.loads(line)["queue_offset"] for line in result.stdout.splitlines()] == [0, 2]
    assert "left out: 1 dead letter that retention removed meanwhile" in result.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("-o", "-", "--format", "parquet"), "the name of a file, for --format parquet"),
        (("-o", "/"), "the name of a file"),
    ],
)
def test_an_output_that_cannot_be_is_refused(
    run: Run, broker: FakeBroker, options: tuple[str, ...], sentence: str
) -> None:
    """Before anything is asked."""
    has_letters(broker)
    result = run("dlq", "export", "billing", *options)
    assert (result.exit_code, broker.asked) == (2, {})
    assert sentence in result.stderr


def test_a_body_is_written_as_its_producer_had_it(run: Run, broker: FakeBroker) -> None:
    """Inflated where that can be done; else as it was stored, and it says so."""
    zlib_flag, lz4_flag = 0x1, 0x101
    has_letters(
        broker,
        record(0, zlib.compress(b"long" * 100), sys_flag=zlib_flag),
        record(1, b"lz4?", sys_flag=lz4_flag),
    )
    first, second = map(json.loads, run("dlq", "export", "billing").stdout.splitlines())
    assert (first["body"], first["body_size"]) == ("long" * 100, 400)
    assert (second["body"], second["body_is_compressed"]) == ("lz4?", True)
    assert not first["body_is_compressed"]
    assert run("dlq", "peek", "billing:0:0", "--raw").stdout_bytes == b"long" * 100
