"""RocketMQ's configuration keys that this broker refuses, each with the reason.

An operator's broker.conf may have them; if the broker ignored one, the operator would believe
that it works.  A value that asks for what is so here in any case is no mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NO_REPLICAS: Final = "there are no slaves: each broker has its own messages"
_ONE_FOLDER: Final = "the store lies in one piece under storePathRootDir"
_ONE_THREAD: Final = "there are no thread pools to size: one event loop serves everybody"
_ALWAYS: Final = "that is always on here"

WITHOUT_MEANING: Final[Mapping[str, str]] = {
    "brokerIP2": NO_REPLICAS,
    "haListenPort": NO_REPLICAS,
    "haMasterAddress": NO_REPLICAS,
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
