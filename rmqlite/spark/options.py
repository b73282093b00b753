"""Reads and checks the options of spark.read and spark.readStream.

Every option is text, and upper and lower case do not matter in its name.  An unknown option or
a wrong value is refused, with the name of the option, before anything is read.

Who driver and tasks are for a broker (an account, and certificates for tls://host:port) stands in
options, or else in the driver's environment.  A task may have another environment: it gets them
with the options that Spark sends to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from rmqlite.kernel.words.clock import utc_ms
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import check_not_long_ago
from rmqlite.kernel.words.limits import INT64_MAX
from rmqlite.kernel.words.visible import did_you_mean
from rmqlite.spark.arrow.partitions import EARLIEST, LATEST, BrokerOptions, Offsets, ReadOptions

if TYPE_CHECKING:
    from rmqlite.client.credentials import Credentials


_FIELDS: Final = {
    "accessKey": ("access_key", "access_key"),
    "secretKey": ("secret_key", "secret"),
    "tlsCa": ("tls_ca", "ca"),
    "tlsCertificate": ("tls_certificate", "certificate"),
    "tlsSecretKey": ("tls_secret_key", "private_key"),
}
"""Option -> the field of the options, and of the credentials.

Spark hides the values of options with "secret" or "accessKey" in their names in its plans
(spark.redaction.regex).
"""
CREDENTIALS: Final = {name: in_options for name, (in_options, _) in _FIELDS.items()}
_O = TypeVar("_O", bound=BrokerOptions)
SLICE_BYTES_MAX: Final = 1 << 30
Option = tuple[str, Callable[[str, str], Any]]
"""The field that an option sets, and the function that reads its text, given its name."""
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_BYTES = re.compile(r"([0-9]{1,12})([kmg]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_WILDCARDS: Final = frozenset("*?[")
_WORDS: Final = {"earliest": EARLIEST, "-2": EARLIEST, "latest": LATEST, "-1": LATEST}
_MOMENT_RULE: Final = (
    "milliseconds since 1970, or a time such as 2026-11-20 10:00, in UTC unless it has a zone"
)
_OFFSETS_RULE: Final = (
    'earliest, latest, or JSON such as {"topic": {"0": 23, "1": -1}}; -2 is earliest, -1 latest'
)


def credentials_of(options: BrokerOptions) -> Credentials | None:
    """The credentials of the options.  Raises InvalidValue if one option of a pair is missing."""
    given = {found: getattr(options, name) for name, found in _FIELDS.values()}
    if not any(given.values()):
        return None
    # Import it here: only a reading of a broker needs gRPC.
    from rmqlite.client.credentials import Credentials, are_paired

    are_paired(given["access_key"], given["secret"], ("accessKey", "secretKey"))
    are_paired(given["certificate"], given["private_key"], ("tlsCertificate", "tlsSecretKey"))
    return Credentials(**given)


def options_of(credentials: Credentials | None) -> dict[str, str]:
    """The inverse: the options, without the empty ones."""
    given = {option: getattr(credentials, name, "") for option, (_, name) in _FIELDS.items()}
    return {option: text for option, text in given.items() if text}


def with_credentials(options: _O) -> _O:
    """The options for all tasks: what they lack comes from the environment of this process.

    Raises InvalidValue and ConfigInvalid.
    """
    if not options.endpoint:
        return options
    from rmqlite.client.credentials import with_environment

    found = with_environment(credentials_of(options))
    given = {name: getattr(found, in_found) for name, in_found in _FIELDS.values()}
    return replace(options, **given)


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """The options of spark.read or spark.readStream as a value.  Raises InvalidValue."""
    parsed = ReadOptions(**fields_of(options, _OPTIONS, "this format"))
    _check(parsed)
    return parsed


def fields_of(options: Mapping[str, str], known: Mapping[str, Option], what: str) -> dict[str, Any]:
    """The fields that options set, read from their texts; what: has these options.

    Raises InvalidValue.
    """
    by_lower_name = {name.lower(): name for name in known}
    given: dict[str, Any] = {}
    for typed, text in options.items():
        name = by_lower_name.get(typed.lower())
        if name is None:
            raise InvalidValue("option", typed, f"an option of {what}{hint(typed, known)}")
        field, read = known[name]
        if field in given:
            raise InvalidValue("option", name, "given once: topic or topics, not both")
        given[field] = read(name, text.strip())
    return given


def hint(name: str, known: Mapping[str, object]) -> str:
    """What may have been meant by a name, behind the rule: one of these."""
    return did_you_mean(name, known, f"; these are {', '.join(known)}")


def written(options: ReadOptions) -> dict[str, str]:
    """The options as text, also the secret, as users spell them; the inverse of parse_options."""
    found = {}
    for name, (field, _) in _OPTIONS.items():
        value = getattr(options, field)
        if name != "topic" and value != _DEFAULTS[field]:
            found[name] = as_text(value)
    return found


def _check(options: ReadOptions) -> None:
    if bool(options.path) == bool(options.endpoint):
        rule = "a store's folder (path) or a broker's host:port (endpoint), one of them"
        raise InvalidValue("path", options.path or "", rule)
    for low, high in (
        ("startingTimestamp", "endingTimestamp"),
        ("startingPhysicalOffset", "endingPhysicalOffset"),
    ):
        begin, end = getattr(options, _OPTIONS[low][0]), getattr(options, _OPTIONS[high][0])
        if begin is not None and end is not None and begin > end:
            raise InvalidValue(high, end, f"{low} or more, which is {begin}")
    if options.starting_offsets is not None and options.starting_timestamp_ms is not None:
        rule = "left out if startingOffsets is given"
        raise InvalidValue("startingTimestamp", options.starting_timestamp_ms, rule)
    credentials_of(options)


STAMPS: Final = ""
"""Beside the topics of a checkpoint's offsets: no topic has this name."""


def to_spark(offsets: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    """Queue offsets as Spark stores them in its checkpoint, sorted: it compares them as text."""
    tree: dict[str, dict[str, int]] = {}
    for topic, queue_id in sorted(offsets):
        tree.setdefault(topic, {})[str(queue_id)] = offsets[topic, queue_id]
    return tree


def parse_offsets(name: str, text: str) -> int | Offsets:
    """The value of startingOffsets or endingOffsets.  Raises InvalidValue."""
    known = _WORDS.get(text.lower())
    if known is not None:
        return known
    try:
        tree = json.loads(text)
        rows = [
            (str(topic), int(queue_id), offset)
            for topic, queues in tree.items()
            for queue_id, offset in queues.items()
        ]
    except (ValueError, AttributeError) as error:
        raise InvalidValue(name, text, _OFFSETS_RULE) from error
    for topic, queue_id, offset in rows:
        if type(offset) is not int or not EARLIEST <= offset <= INT64_MAX or queue_id < 0:
            raise InvalidValue(name, f"{topic} {queue_id}: {offset}", _OFFSETS_RULE)
    return tuple(sorted(rows))


def as_it_is(_name: str, text: str) -> str:
    return text


def folder(name: str, text: str) -> str:
    """The value of path, which may also be written as file:///x.  Raises InvalidValue."""
    scheme, has_scheme, _ = text.partition(":/")
    if not has_scheme or not scheme.isalnum():
        return text
    parts = urlsplit(text)
    if scheme != "file" or parts.netloc not in ("", "localhost"):
        rule = "a store's folder on a disk of every machine; an object store has its archive"
        raise InvalidValue(name, text, rule)
    return unquote(parts.path)


def endpoint_text(name: str, text: str) -> str:
    """The value of endpoint.  Raises InvalidValue."""
    host, _, port = text.removeprefix("tls://").rpartition(":")
    if not host or not port.isdigit():
        rule = "a host, a colon and a port, such as 127.0.0.1:8081, with tls:// before it for TLS"
        raise InvalidValue(name, text, rule)
    return text


def _topics(name: str, text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    if not names:
        raise InvalidValue(name, text, "one topic, or several with commas between")
    for each in names:
        if not _WILDCARDS.isdisjoint(each):
            raise InvalidValue(name, each, "a topic's name; topicPattern takes * and ?")
    return names


def _ids(name: str, text: str) -> tuple[int, ...]:
    return tuple(_number(name, each.strip()) for each in text.split(","))


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:20]) <= INT64_MAX):
        raise InvalidValue(name, text, "a whole number, 0 or more")
    return int(text)


def _moment(name: str, text: str) -> int:
    """Milliseconds since 1970, from them or from a time in words."""
    moment_ms = _number(name, text) if text.isdigit() else utc_ms(text)
    if moment_ms is None:
        raise InvalidValue(name, text, _MOMENT_RULE)
    check_not_long_ago(name, moment_ms)
    return moment_ms


def _count(name: str, text: str) -> int:
    count = _number(name, text)
    if count < 1:
        raise InvalidValue(name, text, "1 or more")
    return count


def _batch_rows(name: str, text: str) -> int:
    count = _count(name, text)
    if count > 1_000_000:
        raise InvalidValue(name, text, "1 to 1000000")
    return count


def _bytes(name: str, text: str) -> int:
    matched = _BYTES.fullmatch(text)
    size = int(matched[1]) * _UNITS[matched[2].lower()] if matched else 0
    if not 1 <= size <= SLICE_BYTES_MAX:
        raise InvalidValue(name, text, "1 byte to 1 GiB, such as 128m")
    return size


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidValue(name, text, "true or false")
    return text.lower() == "true"


_OPTIONS: Final[dict[str, Option]] = {
    "path": ("path", folder),
    "endpoint": ("endpoint", endpoint_text),
    "columns": ("columns", as_it_is),
    "topic": ("topics", _topics),
    "topics": ("topics", _topics),
    "topicPattern": ("topic_pattern", as_it_is),
    "queueIds": ("queue_ids", _ids),
    "startingOffsets": ("starting_offsets", parse_offsets),
    "endingOffsets": ("ending_offsets", parse_offsets),
    "startingTimestamp": ("starting_timestamp_ms", _moment),
    "endingTimestamp": ("ending_timestamp_ms", _moment),
    "startingPhysicalOffset": ("starting_physical_offset", _number),
    "endingPhysicalOffset": ("ending_physical_offset", _number),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "verifyCrc": ("verify_crc", _flag),
    "sliceBytes": ("slice_bytes", _bytes),
    "batchRows": ("batch_rows", _batch_rows),
    "maxPartitions": ("max_partitions", _count),
    "rowsPerPartition": ("rows_per_partition", _count),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", _count),
    "group": ("group", as_it_is),
    **{name: (field, as_it_is) for name, field in CREDENTIALS.items()},
}
_DEFAULTS: Final = {field.name: field.default for field in fields(ReadOptions)}


def option_names() -> tuple[str, ...]:
    """The names of all options of a reader."""
    return tuple(_OPTIONS)


def as_text(value: object) -> str:
    """The value of an option as Spark takes it, which is text; offsets become JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return json.dumps(to_spark({tuple(queue): offset for *queue, offset in value}))
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
