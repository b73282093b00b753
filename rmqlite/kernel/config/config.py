"""The broker's configuration: every key, its unit, its default, its relation to others.

Keys are RocketMQ's own names where RocketMQ has the key (reference appendix A), so that an
operator's broker.conf reads as before; our own keys follow the same spelling.  A file is Java
properties.  Nothing is guessed and nothing is ignored: a key that is unknown, given twice or
meaningless here, a value with a unit, and two values that contradict each other are errors
that name the line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from rmqlite.kernel.config.values import (
    AS_IT_IS,
    WITHOUT_MEANING,
    Bytes,
    EntriesBytes,
    Host,
    Hours,
    Limit,
    Messages,
    Milliseconds,
    Name,
    Percent,
    Place,
    PlaceOrNone,
    Port,
    Queues,
    Switch,
    addresses,
    allowed_brokers,
    ip_address,
    level_string,
    master_id,
    matching,
    one_of,
    whole,
)
from rmqlite.kernel.words.errors import ConfigInvalid
from rmqlite.kernel.words.levels import DEFAULT_LEVELS, LevelTable, parse_levels
from rmqlite.kernel.words.limits import TEXTS_BYTES_MAX
from rmqlite.kernel.words.visible import did_you_mean

RECORD_ROOM_BYTES: Final = 65_536 + 8
"""The bytes of a segment beside the body: header, topic and properties, then the end mark."""


def _key(key: str, default: Any) -> Any:
    return Field(default, validation_alias=key, validate_default=True)


@dataclass(frozen=True, slots=True)
class ConfigOrigin:
    """Where values come from, for errors; two equal configurations may have two origins."""

    source: str = field(default="BrokerConfig", compare=False)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)


class BrokerConfig(BaseModel):
    """The configuration of a broker; conf/broker.conf explains every key.

    load_config() builds it from a file; code builds it by attribute names.  Both raise
    ConfigInvalid.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    # The broker's name and addresses.
    bind_address: Host = _key("bindAddress", "127.0.0.1")
    acl_enabled: Switch = _key("aclEnable", False)
    acl_file: Place = _key("aclFile", "conf/plain_acl.yml")
    audit_log_format: Annotated[Literal["text", "json"], one_of("text", "json")] = _key(
        "auditLogFormat", "text"
    )
    allow_unauthenticated: Switch = _key("allowUnauthenticated", False)
    tls_mode: Annotated[
        Literal["disabled", "permissive", "enforcing"],
        one_of("disabled", "permissive", "enforcing"),
    ] = _key("tlsMode", "disabled")
    tls_cert_path: Place = _key("tlsCertPath", "conf/tls/broker.pem")
    tls_key_path: Place = _key("tlsKeyPath", "conf/tls/broker.key")
    tls_trust_cert_path: Place = _key("tlsTrustCertPath", "conf/tls/ca.pem")
    tls_client_auth: Annotated[Literal["none", "require"], one_of("none", "require")] = _key(
        "tlsNeedClientAuth", "none"
    )
    grpc_tls_port: Port = _key("grpcTlsPort", 0)
    listen_port: Port = _key("listenPort", 10911)
    name_server_port: Port = _key("nameServerPort", 9876)
    brokers_allowed: Annotated[str, BeforeValidator(allowed_brokers)] = _key("brokersAllowed", "")
    grpc_port: Port = _key("grpcPort", 8081)
    grpc_workers: Annotated[int, whole("processes", 0, 32)] = _key("grpcWorkers", 0)
    ha_listen_port: Port = _key("haListenPort", 0)
    metrics_port: Port = _key("metricsPort", 0)
    metrics_token_file: PlaceOrNone = _key("metricsTokenFile", "")
    web_port: Port = _key("webPort", 0)
    web_address: Host = _key("webAddress", "127.0.0.1")
    web_access: Annotated[Literal["read", "write"], one_of("read", "write")] = _key(
        "webAccess", "read"
    )
    web_hosts: Annotated[
        str,
        matching("([a-zA-Z0-9.-]{1,253}(;(?!$)|$))*", "host names without ports, ; between two"),
    ] = _key("webHosts", "")
    broker_ip: Annotated[str, BeforeValidator(ip_address)] = _key("brokerIP1", "127.0.0.1")
    broker_name: Name = _key("brokerName", "broker-a")
    cluster_name: Name = _key("brokerClusterName", "DefaultCluster")
    broker_id: Annotated[int, BeforeValidator(master_id)] = _key("brokerId", 0)
    name_servers: Annotated[str, BeforeValidator(addresses)] = _key("namesrvAddr", "")
    register_period_ms: Annotated[int, whole("milliseconds", 10_000, 60_000)] = _key(
        "registerNameServerPeriod", 30_000
    )
    compressed_register: Switch = _key("compressedRegister", False)
    name_server_tls: Switch = _key("namesrvTlsEnable", False)
    name_server_account: Annotated[
        str, matching("[a-zA-Z0-9_.-]{0,128}", "an access key of aclFile")
    ] = _key("namesrvAccount", "")

    # The standby.
    broker_role: Annotated[
        Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"],
        one_of("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    ] = _key("brokerRole", "ASYNC_MASTER")
    in_sync_replicas: Annotated[int, whole("brokers", 1, 2)] = _key("inSyncReplicas", 1)
    master_address: Annotated[
        str, matching(r"|(tls://)?[^\s/;,@]+:[0-9]{1,5}", "HOST:PORT, or tls://HOST:PORT")
    ] = _key("masterAddress", "")
    master_account: Annotated[
        str, matching("[a-zA-Z0-9_.-]{0,128}", "an access key of aclFile")
    ] = _key("masterAccount", "")
    min_in_sync_replicas: Annotated[int, whole("brokers", 1, 2)] = _key("minInSyncReplicas", 1)
    auto_in_sync_replicas: Switch = _key("enableAutoInSyncReplicas", False)
    authority: Annotated[
        str,
        matching(r"|archive|etcds?://[^\s/@]+:\d+/[\w.-]+", "archive, or etcd://HOST:PORT/NAME"),
    ] = _key("authority", "")
    authority_lease_ms: Annotated[int, whole("milliseconds", 2_000, 60_000)] = _key(
        "authorityLeaseMs", 10_000
    )
    ha_master_address: Annotated[str, matching(r"|[^\s/;,@]+:[0-9]{1,5}", "HOST:PORT")] = _key(
        "haMasterAddress", ""
    )

    # The store on disk.
    store_path: Place = _key("storePathRootDir", "~/store")
    mapped_file_size_commit_log: Bytes = _key("mappedFileSizeCommitLog", 1_073_741_824)
    mapped_file_size_consume_queue: EntriesBytes = _key("mappedFileSizeConsumeQueue", 6_000_000)
    # Together at most 2 GiB: RocketMQ maps a key index file as one piece.
    max_hash_slots: Annotated[int, whole("slots", 1, 100_000_000)] = _key(
        "maxHashSlotNum", 5_000_000
    )
    max_index_entries: Annotated[int, whole("entries", 2, 80_000_000)] = _key(
        "maxIndexNum", 20_000_000
    )
    flush_disk_type: Annotated[
        Literal["SYNC_FLUSH", "ASYNC_FLUSH"], one_of("SYNC_FLUSH", "ASYNC_FLUSH")
    ] = _key("flushDiskType", "SYNC_FLUSH")
    flush_interval_ms: Milliseconds = _key("flushIntervalCommitLog", 500)
    sync_flush_timeout_ms: Milliseconds = _key("syncFlushTimeout", 5_000)
    flush_consumer_offset_interval_ms: Milliseconds = _key("flushConsumerOffsetInterval", 5_000)
    flush_delay_offset_interval_ms: Milliseconds = _key("flushDelayOffsetInterval", 10_000)

    # Retention.
    file_reserved_hours: Annotated[int, whole("hours", 1, 876_000)] = _key("fileReservedTime", 72)
    delete_when: Hours = _key("deleteWhen", "04")
    disk_max_used_ratio: Annotated[int, whole("percent", 10, 95)] = _key(
        "diskMaxUsedSpaceRatio", 75
    )
    disk_clean_forcibly_ratio: Percent = _key("diskSpaceCleanForciblyRatio", 85)
    clean_forcibly: Switch = _key("cleanFileForciblyEnable", True)
    disk_warning_ratio: Percent = _key("diskSpaceWarningLevelRatio", 90)
    clean_interval_ms: Milliseconds = _key("cleanResourceInterval", 10_000)

    # The archive.
    archive_url: Annotated[
        str,
        matching(
            r"|(s3|gs|az)://[^\s?#@/][^\s?#@]*|file:///[^\s?#@]+",
            "s3://BUCKET/PREFIX, gs://…, az://… or file:///FOLDER, without an account or a query",
        ),
    ] = _key("archiveUrl", "")
    archive_interval_ms: Milliseconds = _key("archiveIntervalMs", 2_000)
    archive_retention_hours: Annotated[int, whole("hours", 1, 876_000)] = _key(
        "archiveRetention", 168
    )
    archive_bytes_per_s_max: Limit = _key("archiveRateMax", 0)

    # Delays, topics and groups.
    message_delay_level: Annotated[str, BeforeValidator(level_string)] = _key(
        "messageDelayLevel", DEFAULT_LEVELS
    )
    timer_wheel_enable: Switch = _key("timerWheelEnable", True)
    timer_max_delay_s: Annotated[int, whole("seconds", 1, 315_360_000)] = _key(
        "timerMaxDelaySec", 63_072_000
    )
    deliver_batch_max: Messages = _key("deliverBatchMessages", 200)
    deliver_rate_max: Annotated[int, whole("messages per second, 0 is no limit", 0)] = _key(
        "scheduleDeliverRateMax", 0
    )
    auto_create_topic: Switch = _key("autoCreateTopicEnable", True)
    auto_create_group: Switch = _key("autoCreateSubscriptionGroup", True)
    default_topic_queues: Queues = _key("defaultTopicQueueNums", 4)
    topic_queues_max: Queues = _key("maxTopicQueues", 1_024)
    topics_max: Annotated[int, whole("topics")] = _key("maxTopics", 5_000)
    groups_max: Annotated[int, whole("groups")] = _key("maxGroups", 5_000)
    consumer_offsets_max: Annotated[int, whole("offsets")] = _key("maxConsumerOffsets", 100_000)
    leased_messages_max: Annotated[int, whole("messages")] = _key("maxLeasedMessages", 500_000)

    # Transactions and replies.
    transaction_timeout_ms: Milliseconds = _key("transactionTimeOut", 6_000)
    transaction_check_max: Annotated[int, whole("checks")] = _key("transactionCheckMax", 15)
    transaction_check_interval_ms: Milliseconds = _key("transactionCheckInterval", 60_000)
    rejects_transactions: Switch = _key("rejectTransactionMessage", False)
    stores_replies: Switch = _key("storeReplyMessageEnable", True)

    # Limits of calls, of waiting polls, and of members and connections.
    max_message_bytes: Bytes = _key("maxMessageSize", 4_194_304)
    send_messages_max: Messages = _key("maxSendMessages", 500)
    send_bytes_max: Bytes = _key("maxSendBytes", 4_194_304)
    in_flight_bytes_max: Bytes = _key("maxBytesInFlight", 134_217_728)
    bulk_messages_max: Messages = _key("maxBulkMessages", 500)
    dedup_hours: Annotated[int, whole("hours", 1, 876_000)] = _key("dedupWindow", 72)
    bulk_jobs_max: Annotated[int, whole("jobs")] = _key("maxBulkJobs", 1_000)
    redrive_jobs_max: Annotated[int, whole("jobs")] = _key("maxRedriveJobs", 1_000)
    pull_messages_max: Messages = _key("maxPullMessages", 1_024)
    pull_bytes_max: Bytes = _key("maxPullBytes", 8_388_608)
    pull_wait_ms_max: Milliseconds = _key("maxPullWait", 60_000)
    filter_scan_max: Annotated[int, whole("queue entries")] = _key("maxFilterScan", 800)
    parked_polls_max: Annotated[int, whole("polls")] = _key("maxParkedPolls", 100_000)
    group_members_max: Annotated[int, whole("members")] = _key("maxGroupMembers", 1_000)
    members_max: Annotated[int, whole("members")] = _key("maxMembers", 10_000)
    subscription_bytes_max: Bytes = _key("maxSubscriptionBytes", 16_777_216)
    connections_max: Annotated[int, whole("connections")] = _key("maxConnections", 10_000)
    account_requests_per_s_max: Limit = _key("maxAccountRequestsPerSecond", 0)
    account_bytes_per_s_max: Limit = _key("maxAccountBytesPerSecond", 0)
    account_connections_max: Limit = _key("maxAccountConnections", 0)
    account_parked_polls_max: Limit = _key("maxAccountParkedPolls", 0)
    connection_requests_per_s_max: Limit = _key("maxConnectionRequestsPerSecond", 0)
    connection_bytes_per_s_max: Limit = _key("maxConnectionBytesPerSecond", 0)
    client_expiry_ms: Milliseconds = _key("channelExpiredTimeout", 120_000)
    drain_ms_max: Annotated[int, whole("milliseconds", 0)] = _key("shutdownDrainTimeout", 5_000)

    _origin: ConfigOrigin = PrivateAttr(ConfigOrigin())

    @cached_property
    def levels(self) -> LevelTable:
        """messageDelayLevel as a table."""
        return parse_levels(self.message_delay_level)

    @property
    def name_server_addresses(self) -> tuple[str, ...]:
        """namesrvAddr as addresses."""
        return tuple(self.name_servers.split(";")) if self.name_servers else ()

    @property
    def is_in_cluster(self) -> bool:
        """Do other brokers serve the same topics and groups?"""
        return bool(self.name_servers or self.brokers_allowed)

    @property
    def delete_hours(self) -> tuple[int, ...]:
        """The local hours in which files may be deleted, from deleteWhen."""
        return tuple(int(hour) for hour in self.delete_when.split(";"))

    @model_validator(mode="wrap")
    @classmethod
    def _explained(
        cls, values: Any, read: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        origin: ConfigOrigin = info.context or ConfigOrigin()
        try:
            config = read(values)
        except ValidationError as error:
            raise _first_refusal(error, origin) from error
        config._origin = origin
        for relation in _AT_LEAST:
            config._check(relation)
        config._check_roles()
        return config

    def with_values(self, values: Mapping[str, object]) -> Self:
        """A copy with some values replaced, by attribute name.  Raises ConfigInvalid."""
        given = self.model_dump(exclude_unset=True) | dict(values)
        return self.model_validate(given, context=self._origin)

    def check_new_store(self) -> None:
        """Raises ConfigInvalid if a log file would have no room for the largest message.

        An existing store keeps the length of its log files, so only a new one needs this check.
        """
        self._check(_ROOM_IN_LOG)

    def refusal(self, name: str, rule: str) -> ConfigInvalid:
        """The error for an attribute's value that breaks a rule, with the value's origin."""
        origin, key = self._origin, KEYS[name]
        return ConfigInvalid(
            origin.source, origin.lines.get(key, 0), key, getattr(self, name), rule
        )

    def _check_roles(self) -> None:
        role, is_sync = self.broker_role, self.flush_disk_type == "SYNC_FLUSH"
        if role == "SLAVE" and not self.master_address:
            raise self.refusal("master_address", "the master's, with brokerRole=SLAVE")
        if role == "SYNC_MASTER" and self.in_sync_replicas == 1:
            raise self.refusal("in_sync_replicas", "2 with brokerRole=SYNC_MASTER")
        if role == "ASYNC_MASTER" and self.in_sync_replicas == 2:
            raise self.refusal("in_sync_replicas", "1 with brokerRole=ASYNC_MASTER")
        if self.in_sync_replicas == 2 and not is_sync:
            raise self.refusal("in_sync_replicas", "1 with flushDiskType=ASYNC_FLUSH")
        if self.master_account and not self.acl_enabled:
            raise self.refusal(
                "master_account", "empty unless aclEnable=true: it is one of aclFile"
            )

    def _check(self, relation: tuple[str, str, int]) -> None:
        large, small, room = relation
        large_value, small_value = getattr(self, large), getattr(self, small)
        if large_value >= small_value + room:
            return
        plus, minus = (f" + {room}", f" - {room}") if room else ("", "")

        def given(name: str) -> tuple[bool, int]:
            return name in self.model_fields_set, self._origin.lines.get(KEYS[name], 0)

        # Blame the key that stands later in the file: a default is never the mistake.
        if given(large) >= given(small) or large_value <= room:
            raise self.refusal(large, f"at least {KEYS[small]}{plus}, that is {small_value + room}")
        raise self.refusal(small, f"at most {KEYS[large]}{minus}, that is {large_value - room}")


KEYS: Final[Mapping[str, str]] = {
    name: str(field.validation_alias) for name, field in BrokerConfig.model_fields.items()
}
"""Attribute name -> key in the file."""

_ROOM_IN_LOG: Final = ("mapped_file_size_commit_log", "max_message_bytes", RECORD_ROOM_BYTES)
_AT_LEAST: Final = (
    ("send_bytes_max", "max_message_bytes", 0),
    ("pull_bytes_max", "max_message_bytes", 0),
    ("in_flight_bytes_max", "send_bytes_max", TEXTS_BYTES_MAX),
    ("topic_queues_max", "default_topic_queues", 0),
    ("disk_warning_ratio", "disk_clean_forcibly_ratio", 0),
    ("disk_warning_ratio", "disk_max_used_ratio", 0),
)
"""The first must be at least the second plus this, so that a value at its limit fits."""


def load_config(path: Path | str) -> BrokerConfig:
    """The configuration in a file.  Raises ConfigInvalid, also if the file cannot be read."""
    try:
        text = Path(path).read_text("utf-8-sig")
    except OSError as error:
        rule = f"a file that can be read: {error.strerror}"
        if isinstance(error, FileNotFoundError):
            rule += "; rmqlite broker --print-config prints one to begin with"
        raise ConfigInvalid(str(path), 0, "file", path, rule) from error
    except UnicodeDecodeError as error:
        raise ConfigInvalid(str(path), 0, "file", path, "text in UTF-8") from error
    return parse_config(text, str(path))


def parse_config(text: str, source: str = "conf") -> BrokerConfig:
    """The configuration in a text of lines key=value.  Raises ConfigInvalid."""
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    # Not splitlines(): a form feed or U+2028 in a value must not begin a line.
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.strip(" \t\f")
        if not line or line[0] in "#!":
            continue
        key, equals, value = (part.strip(" \t\f") for part in line.partition("="))
        if not equals:
            raise ConfigInvalid(source, number, key, "", "a line is key=value")
        key = "dedupWindow" if key == "bulkDedupWindow" else key  # its name before 0.16
        if key not in _KNOWN and AS_IT_IS.get(key) != value:
            raise ConfigInvalid(source, number, key, value, _why_not(key))
        if key in lines:
            rule = f"line {lines[key]} has this key already"
            raise ConfigInvalid(source, number, key, value, rule)
        if "\\" in value:
            raise ConfigInvalid(source, number, key, value, "no backslash: write it in one line")
        lines[key] = number
        if key in _KNOWN:
            values[key] = value
    return BrokerConfig.model_validate(values, context=ConfigOrigin(source, lines))


_KNOWN: Final = frozenset(KEYS.values())


def _why_not(key: str) -> str:
    if key in AS_IT_IS:
        return f"{AS_IT_IS[key]}: {WITHOUT_MEANING[key]}"
    if key in WITHOUT_MEANING:
        return f"RocketMQ's key has no meaning here: {WITHOUT_MEANING[key]}"
    return "no such key" + did_you_mean(
        key, _KNOWN, "; rmqlite broker --print-config lists them all"
    )


def _first_refusal(error: ValidationError, origin: ConfigOrigin) -> ConfigInvalid:
    # The first in the order of lines, so that an operator mends a file from top to bottom.
    found = min(
        error.errors(include_url=False),
        key=lambda each: origin.lines.get(str(each["loc"][0]) if each["loc"] else "", 0),
    )
    name = str(found["loc"][0]) if found["loc"] else "values"
    key = KEYS.get(name, name)
    cause = found.get("ctx", {}).get("error")
    if found["type"] == "extra_forbidden":
        rule = "no such attribute" + did_you_mean(name, KEYS)
    else:
        rule = str(cause) if isinstance(cause, ValueError) else found["msg"]
    return ConfigInvalid(origin.source, origin.lines.get(key, 0), key, found["input"], rule)
