"""The options of a reader: every one is read, and what cannot be is refused by its name."""

from __future__ import annotations

import json

import pytest

from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.spark.arrow.partitions import EARLIEST, LATEST
from rmqlite.spark.options import option_names, parse_offsets, parse_options, to_spark, written

AT_MS = 1_763_632_800_123
FULL = {
    "path": "/store",
    "columns": "topic,body",
    "topics": "orders,bills",
    "topicPattern": "o*",
    "queueIds": "0,3",
    "startingOffsets": '{"orders": {"0": 23, "1": -2}}',
    "endingOffsets": "latest",
    "endingTimestamp": "1763700000000",
    "startingPhysicalOffset": "5",
    "endingPhysicalOffset": "500",
    "failOnDataLoss": "false",
    "verifyCrc": "true",
    "sliceBytes": "64m",
    "batchRows": "100",
    "maxPartitions": "3",
    "rowsPerPartition": "1000",
    "maxOffsetsPerTrigger": "50",
    "group": "readers",
    "accessKey": "operator",
    "secretKey": "a secret",
    "tlsCa": "-----BEGIN",
    "tlsCertificate": "-----BEGIN",
    "tlsSecretKey": "-----BEGIN",
}


def test_every_option_has_its_meaning() -> None:
    """Text in, values out."""
    found = parse_options(FULL)
    assert found.topics == ("orders", "bills")
    assert found.queue_ids == (0, 3)
    assert found.starting_offsets == (("orders", 0, 23), ("orders", 1, EARLIEST))
    assert found.ending_offsets == LATEST
    assert found.slice_bytes == 64 << 20
    assert (found.fail_on_data_loss, found.verify_crc) == (False, True)
    assert set(FULL) | {"endpoint", "topic", "startingTimestamp"} == set(option_names())


def test_names_are_written_in_any_case() -> None:
    """Spark hands them on in lower case now and then."""
    lower = {name.lower(): text for name, text in FULL.items()}
    assert parse_options(lower) == parse_options(FULL)


def test_what_is_written_is_read_again() -> None:
    """A job hands its options on as text."""
    found = parse_options(FULL)
    assert parse_options(written(found)) == found


def test_without_options_everything_is_wanted() -> None:
    """Only the place must be said."""
    found = parse_options({"endpoint": "127.0.0.1:10911"})
    assert found.takes_queue("anything", 7)
    assert not found.is_by_topic
    assert written(found) == {"endpoint": "127.0.0.1:10911"}


def test_topics_patterns_and_queues_are_all_to_fit() -> None:
    """Each narrows what the others leave."""
    found = parse_options(FULL)
    assert found.takes_queue("orders", 3)
    assert not found.takes_queue("bills", 3)
    assert not found.takes_queue("orders", 1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topci": "x"}, "did you mean topic?"),
        ({"startingOffset": "x"}, "did you mean startingOffsets?"),
        ({"zzz": "x"}, "these are path, endpoint"),
        ({"endpoint": "here:1"}, "one of them"),
        ({"topic": "a", "topics": "b"}, "given once"),
        ({"topic": "a*"}, "topicPattern takes"),
        ({"topic": " "}, "one topic, or several"),
        ({"startingOffsets": "first"}, "earliest, latest, or JSON"),
        ({"startingOffsets": "[1]"}, "earliest, latest, or JSON"),
        ({"endingOffsets": '{"a": {"0": -3}}'}, "earliest, latest, or JSON"),
        ({"endingOffsets": '{"a": {"0": 1.5}}'}, "earliest, latest, or JSON"),
        ({"queueIds": "1,x"}, "a whole number"),
        ({"startingTimestamp": "today"}, "milliseconds since 1970, or a time such as"),
        ({"endingTimestamp": "1969-12-31 23:59"}, "milliseconds since 1970, 1000000000000 to"),
        ({"endingTimestamp": "1763700000"}, "looks like seconds"),
        ({"startingTimestamp": f"{AT_MS}", "endingTimestamp": f"{AT_MS - 1}"}, "Timestamp or more"),
        (
            {"startingTimestamp": f"{AT_MS}", "startingOffsets": "latest"},
            "left out if startingOffsets",
        ),
        ({"startingPhysicalOffset": "9", "endingPhysicalOffset": "8"}, "or more, which is 9"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"sliceBytes": "2g"}, "1 byte to 1 GiB"),
        ({"batchRows": "0"}, "1 or more"),
        ({"path": "s3a://bucket/store"}, "a store's folder on a disk of every machine"),
        ({"path": "file://host/store"}, "a store's folder on a disk of every machine"),
        ({"batchRows": "9999999"}, "1 to 1000000"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str], told: str) -> None:
    """With the field, the value and the rule."""
    with pytest.raises(InvalidValue) as caught:
        parse_options({"path": "/store", **options})
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "text", ["1763632800123", "2025-11-20 10:00:00.123", "2025-11-20T11:00:00.123+01:00"]
)
def test_a_time_may_be_in_words(text: str) -> None:
    """In UTC, as all columns are, unless it names its zone."""
    parsed = parse_options({"path": "/store", "startingTimestamp": text})
    assert parsed.starting_timestamp_ms == AT_MS


@pytest.mark.parametrize("text", ["file:///a%20store", "file:/a store", "/a store"])
def test_a_folder_may_be_a_uri(text: str) -> None:
    """Spark writes the places of its tables so; "there is no such folder" was the answer."""
    assert parse_options({"path": text}).path == "/a store"


@pytest.mark.parametrize("options", [{}, {"topic": "a"}, {"endpoint": "nowhere"}])
def test_a_place_is_needed(options: dict[str, str]) -> None:
    """A folder or an address, and an address has a port."""
    with pytest.raises(InvalidValue):
        parse_options(options)


def test_offsets_are_the_same_text_whatever_their_order() -> None:
    """Spark compares them as text."""
    rows = {("b", 1): 5, ("a", 10): 3, ("a", 2): 4}
    text = json.dumps(to_spark(rows))
    assert text == '{"a": {"2": 4, "10": 3}, "b": {"1": 5}}'
    assert parse_offsets("startingOffsets", text) == (("a", 2, 4), ("a", 10, 3), ("b", 1, 5))
