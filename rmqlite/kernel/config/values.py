"""The kinds of values of a configuration file, and the keys of RocketMQ that are refused.

An operator's broker.conf may have those; if the broker ignored one, the operator would believe
that it works.  A value that asks for what is so here in any case is no mistake.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator

from rmqlite.kernel.config.addresses import parse_allowed
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import parse_levels
from rmqlite.kernel.words.limits import INT32_MAX
from rmqlite.kernel.words.visible import did_you_mean

QUEUES_MAX: Final = 65_536
"""A request or a table with more queues in one topic is refused: each queue costs some work."""
ADDRESSES_MAX: Final = 16
_ENTRY_BYTES: Final = 20
NO_REPLICAS: Final = "a standby is another broker with brokerRole=SLAVE and masterAddress"
_ONE_FOLDER: Final = "the store lies in one piece under storePathRootDir"
_ONE_THREAD: Final = "there are no thread pools to size: one event loop serves everybody"
_ALWAYS: Final = "that is always on here"

WITHOUT_MEANING: Final[Mapping[str, str]] = {
    "brokerIP2": NO_REPLICAS,
    "haSendHeartbeatInterval": NO_REPLICAS,
    "haHousekeepingInterval": NO_REPLICAS,
    "haTransferBatchSize": NO_REPLICAS,
    "haSlaveFallbehindMax": NO_REPLICAS,
    "slaveReadEnable": NO_REPLICAS,
    "enableDLegerCommitLog": NO_REPLICAS,
    "dLegerGroup": NO_REPLICAS,
    "dLegerPeers": NO_REPLICAS,
    "dLegerSelfId": NO_REPLICAS,
    "storePathCommitLog": _ONE_FOLDER,
    "storePathConsumeQueue": _ONE_FOLDER,
    "storePathIndex": _ONE_FOLDER,
    "storeCheckpoint": _ONE_FOLDER,
    "abortFile": _ONE_FOLDER,
    "sendMessageThreadPoolNums": _ONE_THREAD,
    "pullMessageThreadPoolNums": _ONE_THREAD,
    "adminBrokerThreadPoolNums": _ONE_THREAD,
    "useReentrantLockWhenPutMessage": _ONE_THREAD,
    "sendThreadPoolQueueCapacity": _ONE_THREAD,
    "pullThreadPoolQueueCapacity": _ONE_THREAD,
    "longPollingEnable": _ALWAYS,
    "checkCRCOnRecover": _ALWAYS,
    "messageIndexEnable": _ALWAYS,
    "enablePropertyFilter": _ALWAYS,
    "transientStorePoolEnable": "messages are written to the log at once, never pooled before",
    "warmMapedFileEnable": "files are written, not mapped: there is nothing to warm",
    "enableScheduleAsyncDeliver": "due messages are always delivered in batches",
    "enableConsumeQueueExt": "consume queue extension files are not written",
    "traceTopicEnable": _ALWAYS,
    "recallMessageEnable": _ALWAYS,
    "maxTransferBytesOnMessageInMemory": "the limit of one pull is maxPullBytes",
    "maxTransferCountOnMessageInMemory": "the limit of one pull is maxPullMessages",
    "maxTransferBytesOnMessageInDisk": "the limit of one pull is maxPullBytes",
    "maxTransferCountOnMessageInDisk": "the limit of one pull is maxPullMessages",
}
"""Key -> reason."""

AS_IT_IS: Final[Mapping[str, str]] = {
    "slaveReadEnable": "false",
    "enableDLegerCommitLog": "false",
    "longPollingEnable": "true",
    "checkCRCOnRecover": "true",
    "messageIndexEnable": "true",
    "enablePropertyFilter": "true",
    "transientStorePoolEnable": "false",
    "warmMapedFileEnable": "false",
    "enableScheduleAsyncDeliver": "true",
    "enableConsumeQueueExt": "false",
    "traceTopicEnable": "true",
    "recallMessageEnable": "true",
}
"""Key -> the value that is taken."""


def whole(unit: str, at_least: int = 1, at_most: int = INT32_MAX) -> BeforeValidator:
    rule = f"a whole number, {at_least} to {at_most} {unit}".rstrip()

    def read(value: object) -> int:
        if isinstance(value, str):
            if re.fullmatch(r"[-+]?[0-9.]+\s*[A-Za-z]+", value, re.ASCII):
                in_unit = f"a plain number, the key is in {unit}" if unit else rule
                raise ValueError(in_unit)
            # No limit has more digits.
            if not re.fullmatch(r"-?[0-9]{1,18}", value, re.ASCII):
                raise ValueError(rule)
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(rule)
        if not at_least <= value <= at_most:
            raise ValueError(rule)
        return value

    return BeforeValidator(read)


def one_of(*values: str, why: str = "") -> BeforeValidator:
    def read(value: object) -> object:
        if value not in values:
            hint = f"; {why}" if why else did_you_mean(str(value), values)
            raise ValueError(" or ".join(values) + hint)
        return value

    return BeforeValidator(read)


def _switch(value: object) -> bool:
    if value not in (True, False, "true", "false"):
        raise ValueError("true or false")
    return value in (True, "true")


def matching(pattern: str, rule: str) -> BeforeValidator:
    def read(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII):
            raise ValueError(rule)
        return value

    return BeforeValidator(read)


def master_id(value: object) -> int:
    if value not in (0, "0") or isinstance(value, bool):
        raise ValueError(f"0, the id of a master; {NO_REPLICAS}")
    return 0


def _path(value: object) -> Path:
    text = str(value)
    if not isinstance(value, str | Path) or not text or not text.isprintable():
        raise ValueError("the path of a file or folder")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError("there is no home folder for ~: write a full path") from error


def ip_address(value: object) -> str:
    try:
        if isinstance(value, str) and "%" not in value:
            return str(ipaddress.ip_address(value))
    except ValueError:
        pass
    raise ValueError("an IP address, such as 10.0.0.7: it is stored in every message")


def allowed_brokers(value: object) -> str:
    parse_allowed(str(value))
    return str(value)


def addresses(value: object) -> str:
    """Reads host:port, or several of them with ; between two; no duplicates."""
    rule = f"host:port, ; between two, at most {ADDRESSES_MAX} different ones"
    if isinstance(value, str):
        value = value.removesuffix(";")
    parts = value.split(";") if isinstance(value, str) and value else []
    if not isinstance(value, str) or len(parts) > ADDRESSES_MAX or len({*parts}) < len(parts):
        raise ValueError(rule)
    for part in parts:
        host, _, port = part.rpartition(":")
        if not re.fullmatch(r"[a-zA-Z0-9.-]{1,253}|\[[0-9a-fA-F:.]{2,45}\]", host, re.ASCII):
            raise ValueError(rule)
        if not re.fullmatch(r"[0-9]{1,5}", port, re.ASCII) or not 0 < int(port) < 1 << 16:
            raise ValueError(rule)
    return value


def level_string(value: object) -> str:
    try:
        return parse_levels(str(value)).text
    except InvalidValue as error:
        raise ValueError(error.rule) from error


def _whole_entries(value: int) -> int:
    # RocketMQ rounds the same way, so both find the same files.
    return -(-value // _ENTRY_BYTES) * _ENTRY_BYTES


def _path_or_none(value: object) -> Path | None:
    return None if value in ("", None) else _path(value)


Place = Annotated[Path, BeforeValidator(_path)]
PlaceOrNone = Annotated[Path | None, BeforeValidator(_path_or_none)]
Milliseconds = Annotated[int, whole("milliseconds")]
Bytes = Annotated[int, whole("bytes")]
Messages = Annotated[int, whole("messages")]
Queues = Annotated[int, whole("queues", at_most=QUEUES_MAX)]
Limit = Annotated[int, whole("", 0)]
"""0: there is none."""
Port = Annotated[int, whole("", 0, 65_535)]
Percent = Annotated[int, whole("percent", 1, 100)]
Switch = Annotated[bool, BeforeValidator(_switch)]
Name = Annotated[str, matching("[a-zA-Z0-9_.%|-]{1,127}", "1 to 127 of letters, digits, '_-.%|'")]
Host = Annotated[str, matching(r"[a-zA-Z0-9:.-]{1,253}", "an IP address or a host name")]
Hours = Annotated[
    str,
    matching(
        "([01][0-9]|2[0-3])(;([01][0-9]|2[0-3]))*", "hours of two digits, such as 04 or 04;16"
    ),
]
EntriesBytes = Annotated[
    int, BeforeValidator(_whole_entries), whole("bytes", 1, INT32_MAX - _ENTRY_BYTES)
]
