"""What is sent for a dead letter, and which cannot be sent."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from rmqlite.cli.bench.process import BrokerProcess
from rmqlite.cli.main import app
from rmqlite.client import AdminClient, Message, Producer
from rmqlite.errors import InvalidValue, PermissionMissing
from rmqlite.message import RESERVED_PROPERTIES
from rmqlite.spark.jobs.dead_letters import dead_letters, export
from rmqlite.spark.jobs.redrive import SINK_COLUMNS, judged, keys_sent, redrive_rows
from tests.spark.letters import NOON, letter, table

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


def rows_of(spark: SparkSession, *rows: dict[str, Any], **how: Any) -> list[Row]:
    dead = dead_letters(table(spark, *rows))
    return redrive_rows(dead, **how).orderBy("message_key").collect()


def test_a_letter_is_sent_as_the_message_that_it_was(spark: SparkSession) -> None:
    """Body, keys, tags and the user's properties; nothing of retry, which would steer the next."""
    (row,) = rows_of(spark, letter(17), letter(17))
    assert row.asDict() == {
        "topic": "orders",
        "body": b"body 17",
        "tags": "paid",
        "keys": "key-17 all",
        "properties": {
            "region": "eu",
            "REDRIVEN_FROM": "%DLQ%billing:0:17",
            "REDRIVEN_TIMES": "1",
            "REDRIVEN_MESSAGE_ID": "ID17",
        },
        "delay_level": 0,
        "message_key": "redrive:%DLQ%billing:0:17",
        "group": "billing",
        "died_of": "card refused",
        "redriven_before": 0,
        "refused": None,
    }
    assert not RESERVED_PROPERTIES & set(row.properties)
    Message(
        *(row.topic, bytes(row.body), row.tags, row.keys, row.properties),
        message_id=row.message_key,
    )


def test_a_letter_that_died_again_says_how_often_and_what_it_was_first(spark: SparkSession) -> None:
    """So that nobody sends a poisoned message round and round without knowing."""
    again = {
        "RETRY_TOPIC": "orders",
        "REDRIVEN_FROM": "%DLQ%billing:0:17",
        "REDRIVEN_TIMES": "1",
        "REDRIVEN_MESSAGE_ID": "ID17",
    }
    dead = letter(42, unique_key="redrive:%DLQ%billing:0:17", properties=again)
    (row,) = rows_of(spark, dead)
    assert row.refused is None
    assert row.redriven_before == 1
    assert row.message_key == "redrive:%DLQ%billing:0:42"
    assert row.properties["REDRIVEN_FROM"] == "%DLQ%billing:0:42"
    assert row.properties["REDRIVEN_TIMES"] == "2"
    assert row.properties["REDRIVEN_MESSAGE_ID"] == "ID17"
    (row,) = rows_of(spark, dead, skip_redriven=True)
    assert "died again" in row.refused


def test_what_cannot_be_sent_is_told_letter_by_letter(spark: SparkSession) -> None:
    """One strange letter is no reason to keep the others."""
    nowhere = {"region": "eu"}
    rows = rows_of(
        spark,
        letter(0, properties=nowhere),
        letter(1, properties={"RETRY_TOPIC": "%RETRY%billing"}),
        letter(2, properties={"RETRY_TOPIC": "SCHEDULE_TOPIC_XXXX"}),
        letter(3, sys_flag=0x1, body=b"not zlib"),
        letter(4, "SCHEDULE_CONSUMER", body=b"", properties=nowhere, unique_key=None),
        letter(5),
    )
    reasons = {int(row.message_key.rpartition(":")[2]): row.refused for row in rows}
    assert "--to-topic" in reasons[0]
    assert "retry or dead-letter topic" in reasons[1]
    assert "SCHEDULE_TOPIC_XXXX" in reasons[2]
    assert "cannot be inflated" in reasons[3]
    assert "ID3" in reasons[3]
    assert "content is lost" in reasons[4]
    assert reasons[5] is None


def test_a_topic_may_be_named_for_all_letters(spark: SparkSession) -> None:
    """Also for those that do not say where they were sent; a level makes them wait."""
    lost, row = rows_of(
        spark,
        letter(0, properties=None, unique_key=None),
        letter(4, "SCHEDULE_CONSUMER", body=b"", properties={}, unique_key=None),
        to_topic="inspection",
        delay_level=4,
    )
    assert (row.topic, row.delay_level, row.refused) == ("inspection", 4, None)
    assert set(row.properties) == {"REDRIVEN_FROM", "REDRIVEN_TIMES"}
    assert "content is lost" in lost.refused


def test_a_compressed_body_is_sent_as_its_producer_gave_it(spark: SparkSession) -> None:
    """The mark of compression cannot be sent along, and bytes without it are no body."""
    body = b"order " * 100
    packed = letter(0, sys_flag=0x301, body=zlib.compress(body))
    plain = letter(1, body=zlib.compress(body))
    inflated, kept = rows_of(spark, packed, plain)
    assert (bytes(inflated.body), bytes(kept.body)) == (body, zlib.compress(body))


def test_what_was_sent_before_is_found_in_the_log(spark: SparkSession) -> None:
    """The broker remembers ids for a time; the log, as long as it keeps the message."""
    log = table(
        spark,
        letter(0, unique_key="redrive:%DLQ%billing:0:7"),
        letter(1, unique_key="redrive:%DLQ%billing:0:9:r-20261121-094812-3f2a"),
        letter(2),
    )
    first, second, third = rows_of(spark, letter(7), letter(8), letter(9), sent=keys_sent(log))
    assert first.refused == third.refused == "it was redriven before"
    assert second.refused is None


def test_a_destination_that_cannot_be_is_refused_at_once(spark: SparkSession) -> None:
    """Before anything is read."""
    dead = dead_letters(table(spark, letter(0)))
    with pytest.raises(PermissionMissing):
        redrive_rows(dead, to_topic="SCHEDULE_TOPIC_XXXX")
    with pytest.raises(InvalidValue, match="delay_level"):
        redrive_rows(dead, delay_level=65)
    with pytest.raises(InvalidValue, match="sys_flag"):
        redrive_rows(dead.drop("sys_flag"))
    assert redrive_rows(dead).columns[: len(SINK_COLUMNS)] == list(SINK_COLUMNS)


def test_a_letter_is_judged_without_spark() -> None:
    """What runs on executors is a plain function."""
    place = ("%DLQ%billing", 0, 3, None)
    assert judged("orders", None, 0, *place) == (None, None)
    assert judged("orders", zlib.compress(b"x"), 1, *place) == (b"x", None)
    assert "LZ4" in str(judged("orders", b"x", 0x101, *place)[1])
    assert "a b" in str(judged("a b", None, 0, *place)[1])


def test_however_often_it_is_run_each_letter_arrives_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The broker knows what it took, also when it is killed in between; and so does its log."""
    place = str(tmp_path / "dlq")
    lost = letter(9, properties={"region": "eu"}, store_timestamp=NOON)
    export(dead_letters(table(spark, *map(letter, range(5)), lost)), place)
    keys = {"diskSpaceWarningLevelRatio": "100"}
    with BrokerProcess(tmp_path / "broker", keys) as broker:
        with Producer(broker.endpoint, "shop") as producer:
            producer.send(Message("orders", b"creates the topic"))

        def run(*words: str) -> dict[str, Any]:
            command = ["pipeline", "dlq-redrive", "--from", place, "--to", broker.endpoint]
            result = CliRunner().invoke(app, [*command, *words, "--json"])
            assert result.exit_code == 1, result.stderr
            tree: dict[str, Any] = json.loads(result.stdout)
            assert [row["letters"] for row in tree["refused"]] == [1]
            return tree

        def arrived() -> int:
            with AdminClient(broker.endpoint) as admin:
                return sum(each.max_offset - each.min_offset for each in admin.ranges("orders")) - 1

        assert run("--dry-run")["topics"] == [
            {"topic": "orders", "letters": 5, "redriven_before": 0}
        ]
        assert arrived() == 0
        assert run("--no-check-log", "--until", str(NOON + 2))["job"]["accepted"] == 2
        broker.kill()
        broker.start()
        job = run("--no-check-log", "--rate", "1000")["job"]
        assert (job["accepted"], job["duplicates"], arrived()) == (3, 2, 5)
        again = run()
        assert (again["job"], again["sent_before"], arrived()) == (None, 5, 5)
