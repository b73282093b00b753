"""The commands of rmqlite pipeline over real files: what they print, write and exit with."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner, Result

from rmqlite.cli.main import app
from rmqlite.kernel.words.errors import Refused, StoreDamaged
from rmqlite.kernel.words.message import (
    FAILURE_REASON,
    ORIGIN_MESSAGE_ID,
    REDRIVEN_BY,
    REDRIVEN_FROM,
    RETRY_TOPIC,
    UNIQ_KEY,
)
from rmqlite.spark.jobs.running import error_in
from rmqlite.spark.tables import collected
from rmqlite.spark.tables import write as write_table
from tests.support.documents_printed import check_document
from tests.support.looking import untouched
from tests.support.repairs import overwrite
from tests.support.stores import StoreUnderTest, new_record, scheduled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")


def run(*words: object) -> Result:
    result = CliRunner().invoke(app, ["pipeline", *map(str, words)], env={"COLUMNS": "80"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    check_document(["pipeline", *map(str, words)], result.stdout)
    return result


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreUnderTest]:
    """Four wait a second, three of them are delivered 3 ms late, one waits on at level 3."""
    store = StoreUnderTest(tmp_path / "store", log_file_bytes=1 << 16)
    waiting = store.append(*[scheduled(f"later {n}", 1) for n in range(3)])
    store.append(scheduled("much later", 3))
    store.clock.forward(1_003)
    store.deliver(1, *waiting)
    store.persist()
    store.sync()
    yield store
    store.close()


def test_promises_that_held_are_exit_code_0(store: StoreUnderTest, tmp_path: Path) -> None:
    """What was read is said beside the output; no store is changed by being looked at."""
    with untouched(store.root):
        result = run("reconcile", "--path", store.root, "--output", tmp_path / "wrong.csv")
    assert result.exit_code == 0
    assert result.stderr.startswith(f"reading {store.root}: physical offsets 0 to ")
    assert "The promises held: each exactly once, none early, none missing." in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["1", "3", "0", "0", "0", "0", "0", "0", "0"] in lines
    assert ["3", "0", "0", "0", "1", "0", "0", "0", "0"] in lines
    assert max(map(len, result.stdout.splitlines())) <= 80
    # A file without offenders is an answer, too.
    assert csv.read_csv(tmp_path / "wrong.csv").num_rows == 0


def test_a_log_that_lost_its_end_is_not_audited(store: StoreUnderTest) -> None:
    """387 of 2,071 records were gone, and the answer was that the promises held."""
    store.close()
    path = store.log_files()[-1]
    os.truncate(path, 300)
    result = run("reconcile", "--path", store.root)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: {path} is damaged at byte ")
    assert "as config/storeProgress.json says" in result.stderr
    store.open()


def test_an_audit_of_what_a_power_cut_left_is_exit_code_5(
    store: StoreUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """The promises held for all that was acknowledged; what else there was nobody knows."""
    path, end = store.log_files()[-1], store.store.end
    store.append(scheduled("never synced", 1))
    store.crash()
    overwrite(path, end, bytes(store.store.end - end))
    result = run("reconcile", "--path", store.root, "--json")
    assert result.exit_code == 5
    (warning,) = json.loads(result.stdout)["snapshot"]["warnings"]
    assert f"{path} is damaged at byte {end}: expected a record at {end}" in warning
    assert warning in caplog.text
    store.open()


def test_an_audit_reads_no_body_that_has_changed(store: StoreUnderTest) -> None:
    """A job answers for the records, so it compares their bodies with their CRC."""
    store.sync()
    path = store.log_files()[-1]
    overwrite(path, path.read_bytes().index(b"much later"), b"M")
    result = run("reconcile", "--path", store.root)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"error: {path} is damaged at byte " in result.stderr
    assert "CRC" in result.stderr


def test_a_promise_that_broke_is_exit_code_4(
    store: StoreUnderTest, tmp_path: Path, is_long: bool
) -> None:
    """The offender is named, and written; with --long, programs read the same."""
    twice = store.append(scheduled("twice", 1))
    store.clock.forward(1_000)
    store.deliver(1, *twice, *twice)
    store.sync()
    target = tmp_path / "wrong.parquet"
    result = run("reconcile", "--path", store.root, "--output", target)
    assert result.exit_code == 4
    assert "PROMISES BROKEN: 1 duplicates." in result.stdout
    row = parquet.read_table(target).to_pylist()[0]
    assert (row["what"], row["level"], row["completions"]) == ("duplicate", 1, 2)
    if not is_long:
        return
    as_json = run("reconcile", "--path", store.root, "--json")
    tree = json.loads(as_json.stdout)
    assert (as_json.exit_code, tree["held"], tree["totals"]["duplicates"]) == (4, False, 1)
    assert [row["end_offset"] for row in tree["offenders"]] == [row["end_offset"]]


def test_lateness_is_printed_written_and_drawn(store: StoreUnderTest, tmp_path: Path) -> None:
    """The table as a folder, the plot as a PNG."""
    plot = tmp_path / "late.png"
    target = tmp_path / "table"
    words = ("--path", store.root, "--plot", plot, "--output", target, "--format", "csv")
    result = run("lateness", *words)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["1", "3", "3.0", "3.0", "3.0", "3", "0.0", "0"] in lines
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert [path for path in target.iterdir() if path.suffix == ".csv"]


@pytest.mark.long
def test_retries_know_what_nobody_has_read(store: StoreUnderTest, tmp_path: Path) -> None:
    """The store's table of offsets says that the group has not read its retry topic."""
    properties = {RETRY_TOPIC: "orders", ORIGIN_MESSAGE_ID: "A" * 32}
    again = new_record("x", "%RETRY%workers", reconsume_times=1, properties=properties)
    store.append(again)
    store.sync()
    result = run("retries", "--path", store.root, "--plot", tmp_path / "r.png")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert ["workers", "orders", "1", "0", "1", "0", "0", "0"] in lines
    # REACHED is SUCCEEDED, FAILED and IN HAND; then DEAD, WAITING, CANCELLED and the rate.
    assert "The outcome of each retry: workers, messages of orders" in result.stdout
    assert ["1", "1", "0", "0", "1", "0", "0", "0", "-"] in lines
    assert "no message was failed" in run("retries", "--path", empty(tmp_path)).stderr


def test_retries_and_redrives_of_some_groups(store: StoreUnderTest, is_long: bool) -> None:
    """dlq-export had --group alone; and a mistyped group must not look as if nothing failed."""
    for group in ("billing", "shop", "shop2"):
        place = f"%DLQ%{group}:0:0"
        said = {RETRY_TOPIC: "orders", REDRIVEN_FROM: place, UNIQ_KEY: f"redrive:{place}"}
        store.append(new_record("x", f"%RETRY%{group}", reconsume_times=1, properties=said))
    store.sync()
    for job, table in (("retries", "groups"), ("redrives", "redrives")):
        words = (job, "--path", store.root, "--json", "--group", "shop")
        if is_long or job == "retries":
            rows = json.loads(run(*words, "-g", "billing").stdout)[table]
            assert sorted(row["consumer_group"] for row in rows) == ["billing", "shop"]
        assert "group must be a consumer group of" in run(*words, "--group", "shpo").stderr
        assert "--group must be" in run(*words, "--group", "a b").stderr


@pytest.mark.long
def test_every_failure_is_in_a_line_of_reasons(store: StoreUnderTest) -> None:
    """By kind, and what is not shown is counted: on the terminal and in JSON."""
    for number, reason in enumerate(["no answer within 3 s", "no answer within 40 s", "", "full"]):
        told = {ORIGIN_MESSAGE_ID: f"{number:032}"} | ({FAILURE_REASON: reason} if reason else {})
        store.append(new_record("x", "%DLQ%workers", reconsume_times=1, properties=told))
    store.sync()
    result = run("retries", "--path", store.root, "--reasons", 1)
    for line in ("workers         2  no answer within # s", "workers         2  (2 other kinds)"):
        assert line in result.stdout
    tree = json.loads(run("retries", "--path", store.root, "--reasons", 1, "--json").stdout)
    assert [tuple(row.values()) for row in tree["reasons"]] == [
        ("workers", "no answer within # s", 2, 1),
        ("workers", None, 2, 2),
    ]


@pytest.mark.long
def test_costs_are_written_and_drawn_if_asked_for(store: StoreUnderTest, tmp_path: Path) -> None:
    """The table on the terminal is always there; --table says what --output and --plot get."""
    properties = {RETRY_TOPIC: "orders", ORIGIN_MESSAGE_ID: "A" * 32}
    store.append(new_record("x", "%DLQ%workers", reconsume_times=1, properties=properties))
    store.sync()
    target, plot = tmp_path / "costs.csv", tmp_path / "costs.png"
    words = ("--table", "costs", "--output", target, "--plot", plot)
    result = run("retries", "--path", store.root, *words)
    assert result.exit_code == 0
    (row,) = csv.read_csv(target).to_pylist()
    assert (row["consumer_group"], row["dead"], row["records"]) == ("workers", 1, 1)
    size = f"{row['record_bytes']} bytes"
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["workers", "orders", "1", "0", "1", *size.split(), "0ms"] in lines
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_redrives_are_counted_and_written_letter_by_letter(
    store: StoreUnderTest, tmp_path: Path, is_long: bool
) -> None:
    """A program that asks for one job gets only that one; with --long, by the time, too."""
    for number, job in enumerate(["night", "night", "noon"]):
        place = f"%DLQ%workers:0:{number}"
        said = {REDRIVEN_FROM: place, REDRIVEN_BY: job, UNIQ_KEY: f"redrive:{place}"}
        topic = "%DLQ%workers" if number == 1 else "%RETRY%workers"
        store.append(new_record("x", topic, reconsume_times=number, properties=said))
    store.sync()
    target, plot = tmp_path / "letters.json", tmp_path / "r.png"
    words = ("redrives", "--path", store.root)
    result = run(*words, "--output", target, "--plot", plot)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[:2] + line[4:] for line in lines if "workers" in line and len(line) > 7] == [
        ["night", "workers", "2", "0", "1", "1", "0.0"],
        ["noon", "workers", "1", "0", "1", "0", "-"],
    ]
    assert ["night", "workers", "1", "(no", "reason)"] in lines
    letters = [json.loads(line) for line in target.read_text().splitlines()]
    assert {each["redriven_from"][-1]: each["state"] for each in letters} == {
        "0": "waiting",
        "1": "dead",
        "2": "waiting",
    }
    assert plot.read_bytes().startswith(b"\x89PNG")
    (row,) = json.loads(run(*words, "--job", "noon", "--json").stdout)["redrives"]
    assert row["redriven_by"] == "noon"
    at_ms = row["sent_timestamp_ms"]
    times = [("--since", at_ms + 1), ("--until", at_ms)] if is_long else []
    for nothing in (("--job", "never"), *times):
        assert "no dead letter was redriven" in run(*words, *nothing).stderr


def test_a_target_that_was_missed_is_exit_code_1(
    store: StoreUnderTest, tmp_path: Path, is_long: bool
) -> None:
    """3 ms late is in time within 3 ms, and late within 2; programs read the same."""
    plot = tmp_path / "slo.png"
    words = ("slo", "--path", store.root, "--plot", plot, "--within")
    met = run(*words, "3ms", "--output", tmp_path / "slo.csv")
    assert met.exit_code == 0
    assert met.stdout.endswith("The target was met by every topic on every day.\n")
    assert csv.read_csv(tmp_path / "slo.csv").to_pylist()[0]["in_time"] == 3
    missed = run(*words[:3], "--within", "2ms")
    assert missed.exit_code == 1
    assert missed.stdout.endswith("TARGET MISSED by 1 of 1 topics and days.\n")
    assert max(map(len, missed.stdout.splitlines())) <= 80
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert run(*words, "2ms", "--topic", "order").exit_code == 1
    if not is_long:
        return
    tree = json.loads(run(*words, "2ms", "--in-time", 0, "--json").stdout)
    assert (tree["is_met"], tree["rows"][0]["late"]) == (True, 3)
    nothing = run(*words, "2ms", "--until", 1_000_000_000_000)
    assert (nothing.exit_code, "nothing was due" in nothing.stderr) == (0, True)


def empty(folder: Path) -> Path:
    store = StoreUnderTest(folder / "empty")
    store.send("x")
    store.sync()
    store.close()
    return store.root


def test_a_forecast_is_bars_and_tables(store: StoreUnderTest, tmp_path: Path) -> None:
    """Nine seconds from the snapshot's time on; a table has each topic and level."""
    plot = tmp_path / "f.png"
    result = run("forecast", "--path", store.root, "--plot", plot, "--bucket", "30s")
    assert result.exit_code == 0
    assert result.stdout.startswith("1 pending, as of ")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["orders", "0", "1", "0", "1", "at"] in [line[:6] for line in lines]
    assert plot.read_bytes().startswith(b"\x89PNG")
    tree = json.loads(run("forecast", "--path", store.root, "--json").stdout)
    assert [(row["state"], row["level"]) for row in tree["rows"]] == [("due", 3)]
    assert tree["rows"][0]["due_timestamp_ms"] == tree["now_ms"]


@pytest.mark.long
def test_a_forecast_between_two_times_says_what_comes_before(
    store: StoreUnderTest, tmp_path: Path
) -> None:
    """The hour of a sale, by the broker's clock."""
    due_ms = store.clock.now_ms() - 1_003 + 10_000
    words = ("forecast", "--path", store.root, "--plot", tmp_path / "f.png")
    result = run(*words, "--from", due_ms, "--until", due_ms + 60_000)
    lines = [line.split() for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert ["TOPIC", "OVERDUE", "BEFORE", "THEN", "LATER", "MOST", "IN", "1M"] in lines
    assert ["orders", "0", "0", "1", "0", "1", "at"] in [line[:7] for line in lines]
    before = run(*words, "--from", due_ms + 1, "--hours", 1)
    assert ["orders", "0", "1", "0", "0", "-"] in [
        line.split() for line in before.stdout.splitlines()
    ]


def test_what_is_no_store_is_one_line(tmp_path: Path) -> None:
    """Ours, and the exit code says whether asking again may help."""
    result = run("lateness", "--path", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    away = run("lateness", "--endpoint", "127.0.0.1:1")
    assert (away.exit_code, away.stderr.count("\n")) == (3, 1)


def test_a_failure_on_an_executor_is_the_error_that_it_was() -> None:
    """The last error of ours in the trace, whatever Spark and Java say round it."""
    trace = (
        "[STAGE] failed\n  File x\nrmqlite.kernel.words.errors.StoreUnavailable: first\n\n"
        "The above exception was the cause:\n"
        "rmqlite.kernel.words.errors.StoreDamaged: log is damaged\n\tat org"
    )
    error = error_in(trace)
    assert isinstance(error, StoreDamaged)
    assert str(error) == "log is damaged"
    other = error_in("[PATH_ALREADY_EXISTS] Path x already exists.\nmore")
    assert isinstance(other, Refused)
    assert str(other) == "Spark: Path x already exists."
    # The end was Spark's code of the error, or a line that only says where it happened.
    coded = error_in("[PATH_NOT_FOUND] Path does not exist: /x. SQLSTATE: 42K03")
    assert str(coded) == "Spark: Path does not exist: /x."
    inner = "java.lang.X: instantiating 'B':\n\tat org\nCaused by: a.BException: no such number"
    assert str(error_in(inner)) == "Spark: no such number"
    assert "did not start" in str(error_in("[X] Java gateway process exited before sending its"))


def test_a_table_is_never_written_over_another(spark: SparkSession, tmp_path: Path) -> None:
    """One file where the name says so; what has that name already stays."""
    table = spark.createDataFrame([(1, "a"), (2, None)], "number int, word string")
    target = tmp_path / "x.json"
    assert write_table(table, str(target)) == str(target)
    assert [json.loads(line) for line in target.read_text().splitlines()] == collected(table)
    with pytest.raises(Refused, match="a file that does not exist yet"):
        write_table(table, str(target))
    assert list(tmp_path.iterdir()) == [target]
