"""Dead letters on their way back: what is sent again, as what, and what cannot be.

A letter goes to the topic it was sent to first, as a new message: its attempts start anew,
nothing that retry or the schedule wrote on it goes along, and it says what it was.  Its
message id is made from its place, so the broker takes each letter once within its window;
what was redriven before that is found in the log, where its id still stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from rmqlite.client.body import COMPRESSED, inflated
from rmqlite.errors import InvalidValue, RmqliteError
from rmqlite.levels import LEVELS_MAX
from rmqlite.message import (
    REAL_TOPIC,
    REDRIVE_ID_PREFIX,
    REDRIVE_PROPERTIES,
    REDRIVEN_FROM,
    REDRIVEN_MESSAGE_ID,
    REDRIVEN_TIMES,
    RESERVED_PROPERTIES,
    RETRY_TOPIC,
    UNIQ_KEY,
    StoredMessage,
)
from rmqlite.names import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_GROUP, check_sendable
from rmqlite.spark.jobs.dead_letters import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SENT_COLUMNS: Final = ("unique_key",)
"""What keys_sent() reads of a log."""
SINK_COLUMNS: Final = (
    *("topic", "body", "tags", "keys", "properties", "delay_level", "message_key"),
)
"""What the bulk sink takes."""
SENT_BEFORE: Final = "it was redriven before"
"""The reason that is none to worry about."""
_UNREADABLE: Final = "its content is lost: the log had no sound record when it came due"
_NO_ORIGIN: Final = "its properties do not say where it was sent to: name a topic with --to-topic"
_OWN_TOPIC: Final = "it was sent to a retry or dead-letter topic: name another with --to-topic"
_AGAIN: Final = "it has died again after it was redriven (--skip-redriven)"


def redrive_rows(
    dead: DataFrame,
    *,
    to_topic: str = "",
    delay_level: int = 0,
    skip_redriven: bool = False,
    sent: DataFrame | None = None,
) -> DataFrame:
    """What would be sent for dead letters, a row for each: SINK_COLUMNS and what tells of them.

    dead: the columns COLUMNS of dead_letters, from the log or from an export; a letter that
    is there twice is one.  sent: message keys that are known to have been sent (column
    message_key).  refused: why a letter is not sent, null for one that is; redriven_before:
    how often it was.  Raises InvalidValue, PermissionMissing.
    """
    if to_topic:
        check_sendable(to_topic)
    if not 0 <= delay_level <= LEVELS_MAX:
        raise InvalidValue("delay_level", delay_level, f"0, which is now, to {LEVELS_MAX}")
    _check_columns(dead)
    named = dead.select(*COLUMNS).withColumn("message_key", _key())
    named = named.dropDuplicates(["message_key"])
    is_sent: Column = F.lit(False)
    if sent is not None:
        known = sent.select("message_key", F.lit(True).alias("is_sent")).distinct()
        named = named.join(known, "message_key", "left")
        is_sent = F.coalesce("is_sent", F.lit(False))
    destination = F.lit(to_topic) if to_topic else F.col("origin_topic")
    told = named.select(
        "*",
        is_sent.alias("was_sent"),
        destination.alias("destination"),
        _times().alias("redriven_before"),
        _judged(destination).alias("judged"),
    )
    return _as_sent(told, delay_level, skip_redriven)


def keys_sent(log: DataFrame) -> DataFrame:
    """The message keys of all letters that were redriven into a log; log: SENT_COLUMNS.

    Whatever became of the message since, waiting or dead again: its id tells that it was sent.
    """
    is_redrive = F.col("unique_key").startswith(REDRIVE_ID_PREFIX)
    # Of a letter that one of the broker's jobs has sent knowingly again its job follows.
    key = F.regexp_extract("unique_key", f"^{REDRIVE_ID_PREFIX}[^:]+:[0-9]+:[0-9]+", 0)
    return log.where(is_redrive).select(key.alias("message_key")).distinct()


def _as_sent(told: DataFrame, delay_level: int, skip_redriven: bool) -> DataFrame:
    refused = F.coalesce(
        F.when(F.col("was_sent"), F.lit(SENT_BEFORE)),
        F.when(_is_unreadable(), F.lit(_UNREADABLE)),
        F.when(F.col("destination").isNull(), F.lit(_NO_ORIGIN)),
        F.when(_is_own("destination"), F.lit(_OWN_TOPIC)),
        F.when(F.lit(skip_redriven) & (F.col("redriven_before") > 0), F.lit(_AGAIN)),
        F.col("judged.refused"),
    )
    return told.select(
        F.col("destination").alias("topic"),
        F.coalesce("judged.body", "body").alias("body"),
        "tags",
        "keys",
        _properties().alias("properties"),
        F.lit(delay_level).alias("delay_level"),
        "message_key",
        F.substring("topic", len(DLQ_PREFIX) + 1, 127).alias("group"),
        F.col("failure_reason").alias("died_of"),
        "redriven_before",
        refused.alias("refused"),
    )


def _key() -> Column:
    return F.concat(F.lit(REDRIVE_ID_PREFIX), _place())


def _place() -> Column:
    return F.concat_ws(":", "topic", "queue_id", "queue_offset")


def _properties() -> Column:
    """The user's own, and where the message comes from."""
    reserved = sorted(RESERVED_PROPERTIES | REDRIVE_PROPERTIES)
    users = F.map_filter(
        F.coalesce("properties", F.create_map().cast("map<string,string>")),
        lambda name, _: ~name.isin(*reserved),
    )
    # The place of a letter is what it is found by; the id is the one that its producer knows.
    first_id = F.coalesce(_property(REDRIVEN_MESSAGE_ID), "unique_key", "origin_message_id")
    own = F.create_map(
        *(F.lit(REDRIVEN_FROM), _place()),
        *(F.lit(REDRIVEN_TIMES), (_times() + 1).cast("string")),
    )
    with_id = F.create_map(F.lit(REDRIVEN_MESSAGE_ID), first_id)
    nothing = F.create_map().cast("map<string,string>")
    return F.map_concat(users, own, F.when(first_id.isNull(), nothing).otherwise(with_id))


def _times() -> Column:
    return F.coalesce(F.expr(f"try_cast(properties['{REDRIVEN_TIMES}'] AS int)"), F.lit(0))


def _property(name: str) -> Column:
    return F.element_at("properties", name)


def _is_unreadable() -> Column:
    """Has the schedule found nothing that it could deliver?  Then nothing tells of a message."""
    return (
        (F.col("topic") == DLQ_PREFIX + SCHEDULE_GROUP)
        & (F.octet_length(F.coalesce("body", F.lit(b""))) == 0)
        & _property(REAL_TOPIC).isNull()
        & _property(RETRY_TOPIC).isNull()
    )


def _is_own(name: str) -> Column:
    return F.col(name).startswith(DLQ_PREFIX) | F.col(name).startswith(RETRY_PREFIX)


def _judged(destination: Column) -> Column:
    """The body as its producer sent it, if that compressed it; and what forbids the sending.

    A message is sent without RocketMQ's mark of a compressed body.
    """
    is_compressed = F.col("sys_flag").bitwiseAND(COMPRESSED) != 0
    # The bytes of the others need not go to Python and back.
    body = F.when(is_compressed, F.col("body"))
    # With Arrow it would need pandas, which nothing else here does.
    judge = F.udf(judged, _JUDGED, useArrow=False)
    return judge(destination, body, "sys_flag", "topic", "queue_id", "queue_offset", "unique_key")


_JUDGED: Final = T.StructType(
    [T.StructField("body", T.BinaryType()), T.StructField("refused", T.StringType())]
)


def judged(
    destination: str | None,
    body: bytes | bytearray | None,
    sys_flag: int,
    topic: str,
    queue_id: int,
    queue_offset: int,
    unique_key: str | None,
) -> tuple[bytes | None, str | None]:
    """A compressed body inflated, and why the letter cannot be sent; runs on executors."""
    place = (topic, queue_id, queue_offset, 0, 0)
    properties = {UNIQ_KEY: unique_key} if unique_key else {}
    rest: tuple[Any, ...] = (0, sys_flag, 0, "0.0.0.0:0", 0, "0.0.0.0:0", 0, 0)
    try:
        if destination is not None:
            check_sendable(destination)
        if body is None:
            return None, None
        return inflated(StoredMessage(*place, bytes(body), properties, *rest)).body, None
    except RmqliteError as error:
        return None, str(error)


def _check_columns(dead: DataFrame) -> None:
    missing = [name for name in COLUMNS if name not in dead.columns]
    if missing:
        rule = f"the columns of dead letters: {', '.join(COLUMNS)}"
        raise InvalidValue("dead", f"a table without {missing[0]}", rule)
