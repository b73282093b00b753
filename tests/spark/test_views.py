"""A log in SQL: a view of each topic, and a table that gets its options in each query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.spark import reading
from rmqlite.spark.reading import create_views, read_log, read_log_by_topic
from tests.support.stores import StoreUnderTest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreUnderTest]:
    """Three messages of one topic, an hour later two of another one."""
    store = StoreUnderTest(tmp_path / "store")
    store.send("a", "b", "c")
    store.clock.forward(3_600_000)
    store.send("d", "e", topic="%DLQ%billing")
    store.sync()
    yield store
    store.close()


def counted(spark: SparkSession, query: str) -> list[tuple[str, int]]:
    return [(row[0], row[1]) for row in spark.sql(query).collect()]


def test_every_topic_is_a_view(spark: SparkSession, store: StoreUnderTest) -> None:
    """With the columns that were named; the views can be joined."""
    names = create_views(spark, path=str(store.root), columns=("topic", "body"))
    assert {"orders", "%DLQ%billing"} <= set(names)
    assert spark.table("orders").columns == ["topic", "body"]
    query = "SELECT topic, count(*) FROM {} GROUP BY topic"
    assert counted(spark, query.format("orders")) == [("orders", 3)]
    assert counted(spark, query.format("`%DLQ%billing`")) == [("%DLQ%billing", 2)]
    both = "SELECT a.topic, count(*) FROM orders a CROSS JOIN `%DLQ%billing` GROUP BY 1"
    assert counted(spark, both) == [("orders", 6)]


def test_views_stay_as_they_were_made(spark: SparkSession, store: StoreUnderTest) -> None:
    """Two questions, minutes apart, are about the same messages."""
    create_views(spark, path=str(store.root), columns=("topic",), topicPattern="ord*")
    store.send("f")
    store.sync()
    assert spark.table("orders").count() == 3
    assert create_views(spark, path=str(store.root), topicPattern="ord*") == ("orders",)
    assert spark.table("orders").count() == 4


def test_views_that_cannot_be_made_are_refused(
    spark: SparkSession, store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would take one view for another, or work for hours."""
    store.send("x", topic="Orders")
    store.sync()
    with pytest.raises(InvalidValue, match="another name than Orders also in lower case"):
        create_views(spark, path=str(store.root))
    with pytest.raises(InvalidValue, match="did you mean orders"):
        create_views(spark, path=str(store.root), topic="ordrs")
    monkeypatch.setattr(reading, "VIEWS_MAX", 1)
    with pytest.raises(InvalidValue, match="a pattern of at most 1 topics"):
        create_views(spark, path=str(store.root))


def test_a_table_gets_its_options_in_each_query(spark: SparkSession, store: StoreUnderTest) -> None:
    """A query that needs a log twice needs two tables: Spark gives the options of the first place
    of a table to all its places.  Without options the error says what is missing.
    """
    path, later = f"path = '{store.root}'", "startingTimestamp = '2023-11-14 23:00'"
    for table in ("log", "log_again"):
        spark.sql(f"CREATE TABLE {table} USING rmqlite")
    try:
        every = f"SELECT topic, count(*) FROM log WITH ({path}) GROUP BY 1 ORDER BY 1"
        assert counted(spark, every) == [("%DLQ%billing", 2), ("orders", 3)]
        assert counted(spark, every.replace(path, f"{path}, {later}")) == [("%DLQ%billing", 2)]
        one = f"SELECT topic, count(*) FROM {{}} WITH ({path}, topic = '{{}}') GROUP BY 1"
        letters = one.format("log_again", "%DLQ%billing")
        union = f"{one.format('log', 'orders')} UNION ALL {letters}"
        assert counted(spark, union) == [("orders", 3), ("%DLQ%billing", 2)]
        with pytest.raises(Exception, match=r"path must be a store's folder"):
            spark.sql("SELECT count(*) FROM log").collect()
    finally:
        for table in ("log", "log_again"):
            spark.sql(f"DROP TABLE {table}")


def test_a_session_that_pushes_filters_down_gets_right_answers(
    spark: SparkSession, store: StoreUnderTest
) -> None:
    """Spark 4.3 would take the filters of one query for the next one; see test_source.py."""
    create_views(spark, path=str(store.root), columns=("topic", "queue_offset"))
    spark.conf.set(PUSHDOWN, "true")
    try:
        log = "SELECT topic, count(*) FROM orders WHERE queue_offset {} GROUP BY 1"
        assert counted(spark, log.format("= 1")) == [("orders", 1)]
        assert counted(spark, log.format(">= 0")) == [("orders", 3)]
        assert spark.table("orders").count() == 3
    finally:
        spark.conf.unset(PUSHDOWN)


def test_a_filter_on_a_topic_reads_that_topic_alone(
    spark: SparkSession, store: StoreUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark gives filters that it pushes down to all reads of a load, so none are taken; a filter
    in SQL read the whole log, at three times the cost of the option topic.
    """
    store.send("f", topic="other")
    store.sync()
    topics = ("orders", "%DLQ%billing", "orders")
    columns = ("queue_offset", "topic", "body")
    log = read_log_by_topic(spark, topics, path=str(store.root), columns=columns)
    plain = read_log(spark, path=str(store.root), columns=columns)
    log.createOrReplaceTempView("pruned")
    whole = sorted(plain.collect())
    for where, scans, is_wanted in (
        ("topic = 'orders'", 1, lambda row: row.topic == "orders"),
        ("topic = '%DLQ%billing' AND body = 'd'", 1, lambda row: row.body == b"d"),
        ("topic = 'other'", 1, lambda row: row.topic == "other"),
        ("topic = 'nothing'", 1, lambda _: False),
        ("topic IN ('orders', 'other')", 2, lambda row: row.topic[0] == "o"),
        ("topic LIKE '%DLQ%'", 2, lambda row: row.topic[0] == "%"),
        ("true", 3, lambda _: True),
        ("topic <> 'orders'", 2, lambda row: row.topic != "orders"),
    ):
        found = spark.sql(f"SELECT * FROM pruned WHERE {where}")
        assert sorted(found.collect()) == [row for row in whole if is_wanted(row)], where
        capsys.readouterr()
        found.explain()
        assert capsys.readouterr().out.count("BatchScan") == scans, where
    both = log.where("topic = 'orders'").unionByName(log.where("topic = 'other'"))
    assert sorted(row["topic"] for row in both.collect()) == ["orders"] * 3 + ["other"]
    assert log.count() == len(whole) == 6


def test_topics_that_cannot_be_pruned_are_refused(
    spark: SparkSession, store: StoreUnderTest
) -> None:
    """Before Spark plans anything."""
    path = str(store.root)
    with pytest.raises(InvalidValue, match="did you mean orders"):
        read_log_by_topic(spark, ("ordrs",), path=path)
    with pytest.raises(InvalidValue, match="topicPattern must be left out beside these topics"):
        read_log_by_topic(spark, ("orders",), path=path, topicPattern="o*")
    with pytest.raises(InvalidValue, match="columns must be topic, and others"):
        read_log_by_topic(spark, ("orders",), path=path, columns=("body",))
