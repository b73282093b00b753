"""What a writer takes: options, columns and levels, refused before any task runs."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import types

from rmqlite.features.bulk.requests import BulkMatch
from rmqlite.kernel.words.errors import DelayUnknown, InvalidName, InvalidValue, PermissionMissing
from rmqlite.kernel.words.levels import DEFAULT_LEVELS, parse_levels
from rmqlite.spark.sink.rows import SinkOptions

ENDPOINT = "127.0.0.1:10911"
KINDS: dict[str, Any] = {
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "double": types.DoubleType(),
    "timestamp": types.TimestampType(),
    "timestamp_ntz": types.TimestampNTZType(),
    "array<string>": types.ArrayType(types.StringType()),
    "map<string,string>": types.MapType(types.StringType(), types.StringType()),
}


def parsed(**options: str) -> SinkOptions:
    return SinkOptions.parse({"endpoint": ENDPOINT} | options)


def schema(**columns: str) -> types.StructType:
    return types.StructType([types.StructField(n, KINDS[kind]) for n, kind in columns.items()])


def test_options_are_read_whatever_their_case() -> None:
    """Spark keeps them without regard to it."""
    options = parsed(
        TOPIC="orders",
        delay="10m",
        MATCH="Longer",
        batchsize="7",
        inFlight="2",
        JobID="night",
        onInvalid="collect",
        refusedPath="/tmp/refused",
        maxPerSecond="9",
        retryTimeout="5",
        checkpointLocation="Spark's own",
    )
    assert options == SinkOptions(
        endpoint=ENDPOINT,
        topic="orders",
        delay="10m",
        match=BulkMatch.LONGER,
        batch_size=7,
        in_flight=2,
        job_id="night",
        is_collecting=True,
        refused_path="/tmp/refused",
        max_per_second=9,
        retry_ms=5,
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delayLevl": "3"}, "did you mean delayLevel?"),
        ({"path": "/x"}, "an option of the sink"),
        ({"endpoint": "here"}, "a host, a colon and a port"),
        ({"endpoint": ""}, "a host"),
        ({"delayLevel": "three"}, "a whole number"),
        ({"delayLevel": "-1"}, "0 to"),
        ({"delay": "soon"}, "a whole number and a unit"),
        ({"deliverAt": "tomorrow"}, "milliseconds since 1970"),
        ({"deliverAt": "1700000000000", "delay": "10m"}, "left out if deliverAt is given"),
        ({"delay": "10m", "delayLevel": "3"}, "left out if delay is given"),
        ({"match": "near"}, "exact or longer"),
        ({"batchSize": "0"}, "1 to"),
        ({"inFlight": "65"}, "1 to 64"),
        ({"jobId": "a b"}, "without blanks"),
        ({"onInvalid": "ignore"}, "fail or collect"),
        ({"onInvalid": "collect"}, "a folder for the refused rows"),
        ({"refusedPath": "/x"}, "empty unless onInvalid=collect"),
        ({"topic": "a b"}, "only letters"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, str], said: str) -> None:
    """Its name, its value, and what would do."""
    with pytest.raises((InvalidValue, InvalidName)) as raised:
        parsed(**options)
    assert said in str(raised.value)


def test_an_endpoint_is_needed_and_the_brokers_own_topics_are_not_for_sending() -> None:
    """Neither would be found out before the first task."""
    with pytest.raises(InvalidValue, match="host:port"):
        SinkOptions.parse({})
    with pytest.raises(PermissionMissing):
        parsed(topic="SCHEDULE_TOPIC_XXXX")


@pytest.mark.parametrize(
    "columns",
    [
        {"topic": "string", "body": "binary"},
        {
            "topic": "string",
            "body": "string",
            "tags": "string",
            "keys": "array<string>",
            "properties": "map<string,string>",
            "delay_level": "bigint",
            "delay": "string",
            "message_key": "bigint",
        },
    ],
)
def test_these_columns_are_taken(columns: dict[str, str]) -> None:
    """Everything that a message has."""
    parsed().check_columns(schema(**columns))


@pytest.mark.parametrize(
    ("options", "columns", "said"),
    [
        ({}, {"topic": "string", "body": "binary", "delay_levle": "int"}, "mean delay_level?"),
        ({}, {"topic": "string", "body": "binary", "colour": "int"}, "a column of the sink"),
        ({}, {"topic": "string", "body": "double"}, "of type binary or string"),
        ({}, {"topic": "string", "bdy": "binary"}, "did you mean body?"),
        ({}, {"topic": "string", "tags": "string"}, "column body must be given"),
        ({}, {"body": "binary"}, "a column topic, or the option topic"),
        (
            {"delay": "1m"},
            {"topic": "string", "body": "binary", "delay": "string"},
            "left out if the option",
        ),
        (
            {},
            {"topic": "string", "body": "binary", "deliver_at": "timestamp_ntz"},
            "of type timestamp or bigint",
        ),
        ({"dedupColumn": "id"}, {"topic": "string", "body": "binary", "idd": "int"}, "idd"),
        (
            {"dedupColumn": "id"},
            {"topic": "string", "body": "binary"},
            "column id must be given",
        ),
        ({"dedupColumn": "id"}, {"topic": "string", "body": "binary", "id": "double"}, "string"),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    options: dict[str, str], columns: dict[str, str], said: str
) -> None:
    """A misspelt delay would send everything at once."""
    with pytest.raises(InvalidValue) as raised:
        parsed(**options).check_columns(schema(**columns))
    assert said in str(raised.value)


def test_the_brokers_table_has_what_options_ask() -> None:
    """One question to the broker, instead of a million refused rows."""
    table = parse_levels(DEFAULT_LEVELS)
    for options in ({"delayLevel": "18"}, {"delay": "10m"}, {"delay": "11m", "match": "longer"}):
        parsed(**options).check_levels(table)
    with pytest.raises(InvalidValue, match="1 to 18"):
        parsed(delayLevel="19").check_levels(table)
    with pytest.raises(DelayUnknown):
        parsed(delay="11m").check_levels(table)
    with pytest.raises(InvalidValue, match="at most 2h"):
        parsed(delay="3h", match="longer").check_levels(table)
