"""The configuration: read as RocketMQ's file, refused with the line where it means nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rmqlite.kernel.config.config import KEYS, BrokerConfig, load_config, parse_config
from rmqlite.kernel.config.values import AS_IT_IS, WITHOUT_MEANING
from rmqlite.kernel.words.errors import ConfigInvalid
from rmqlite.kernel.words.levels import DEFAULT_LEVELS, parse_levels


def refusal(text: str) -> ConfigInvalid:
    with pytest.raises(ConfigInvalid) as raised:
        parse_config(text, "broker.conf")
    return raised.value


def test_an_empty_file_is_the_defaults() -> None:
    """Nothing has to be configured to start."""
    assert parse_config("") == BrokerConfig()


def test_a_key_is_known_by_its_former_name() -> None:
    """A file that an older broker printed names every key."""
    assert parse_config("bulkDedupWindow=5").dedup_hours == 5
    assert "line 1" in str(refusal("dedupWindow=5\nbulkDedupWindow=5"))


def test_the_defaults_are_rocketmqs_but_for_durability() -> None:
    """Promise P1: an acknowledged message is on disk unless somebody asked otherwise."""
    config = BrokerConfig()
    assert config.flush_disk_type == "SYNC_FLUSH"
    assert config.bind_address == "127.0.0.1"
    assert (config.listen_port, config.max_message_bytes) == (10911, 4 * 1024 * 1024)
    assert config.mapped_file_size_commit_log == 1024**3
    assert config.levels == parse_levels(DEFAULT_LEVELS)
    assert config.store_path == Path.home() / "store"
    assert (config.disk_max_used_ratio, config.disk_clean_forcibly_ratio) == (75, 85)
    assert (config.disk_warning_ratio, config.clean_forcibly) == (90, True)
    assert (config.max_hash_slots, config.max_index_entries) == (5_000_000, 20_000_000)


def test_a_file_is_java_properties() -> None:
    """Comments by # and !, blank lines, blanks around the sign, any line end."""
    config = parse_config(
        "# a comment\n! another = one\n\n  listenPort = 9876 \r\n\tbrokerName=b-1\r"
        "messageDelayLevel = 1s 5s \nautoCreateTopicEnable=false"
    )
    assert config.listen_port == 9876
    assert config.broker_name == "b-1"
    assert config.message_delay_level == "1s 5s"
    assert config.levels.delays_ms == (1_000, 5_000)
    assert config.auto_create_topic is False


def test_a_value_may_contain_the_sign() -> None:
    """Only the first = separates."""
    assert parse_config("storePathRootDir=/data/a=b").store_path == Path("/data/a=b")


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("listenport", "listenPort"),
        ("listen_port", "listenPort"),
        ("storePathRoot", "storePathRootDir"),
        ("messageDelayLevels", "messageDelayLevel"),
        ("maxMesageSize", "maxMessageSize"),
        ("MAXMESSAGESIZE", "maxMessageSize"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(key: str, nearest: str) -> None:
    """RocketMQ ignores it, and the operator finds out in production."""
    error = refusal(f"# first line\n{key}=1")
    assert (error.source, error.line, error.field, error.value) == ("broker.conf", 2, key, "1")
    assert f"did you mean {nearest}?" in error.rule


def test_a_key_like_no_other_is_refused_without_a_guess() -> None:
    """A wrong guess is worse than none."""
    assert refusal("xyzzy=1").rule == "no such key; rmqlite broker --print-config lists them all"


@pytest.mark.parametrize("key", sorted(WITHOUT_MEANING))
def test_a_key_of_rocketmq_without_meaning_here_is_refused_with_the_reason(key: str) -> None:
    """A key that changes nothing must not seem to work."""
    error = refusal(f"{key}=1")
    assert WITHOUT_MEANING[key] in error.rule
    assert error.line == 1


@pytest.mark.parametrize(("key", "value"), AS_IT_IS.items())
def test_a_key_may_ask_for_what_is_so_in_any_case(key: str, value: str) -> None:
    """As enablePropertyFilter=true, which RocketMQ needs for SQL92; its opposite would not hold."""
    assert parse_config(f"{key}={value}") == BrokerConfig()
    opposite = "false" if value == "true" else "true"
    error = refusal(f"{key}={opposite}")
    assert (error.field, error.rule) == (key, f"{value}: {WITHOUT_MEANING[key]}")
    assert refusal(f"{key}={value}\n{key}={value}").rule == "line 1 has this key already"


def test_no_key_is_both_known_and_without_meaning() -> None:
    """And every attribute has a key of its own."""
    assert not set(KEYS.values()) & set(WITHOUT_MEANING)
    assert len(set(KEYS.values())) == len(KEYS) == len(BrokerConfig.model_fields)


def test_a_key_given_twice_is_refused() -> None:
    """Which of the two was meant?"""
    error = refusal("listenPort=1\n\nlistenPort=1")
    assert (error.line, error.field) == (3, "listenPort")
    assert error.rule == "line 1 has this key already"


def test_name_servers_are_read_as_rocketmq_reads_them() -> None:
    """Also the form that ends with a separator."""
    config = parse_config("namesrvAddr=a.example.com:9876;[2001:db8::1]:9877;")
    assert config.name_server_addresses == ("a.example.com:9876", "[2001:db8::1]:9877")
    assert config.is_in_cluster
    assert parse_config("brokersAllowed=10.0.0.7").is_in_cluster
    assert not BrokerConfig().is_in_cluster


def test_a_line_without_a_value_is_refused() -> None:
    """Java would take it for a key with an empty value."""
    error = refusal("\nlistenPort 10911")
    assert (error.line, error.rule) == (2, "a line is key=value")


def test_a_backslash_is_refused() -> None:
    """Java would read on in the next line, or drop it; neither is a level or a path."""
    assert refusal("messageDelayLevel=1s \\\n 5s").line == 1


@pytest.mark.parametrize(
    ("line", "unit"),
    [
        ("flushIntervalCommitLog=10s", "milliseconds"),
        ("flushDelayOffsetInterval=4m", "milliseconds"),
        ("maxMessageSize=4M", "bytes"),
        ("maxMessageSize=4 MiB", "bytes"),
        ("maxMessageSize=1.5k", "bytes"),
        ("fileReservedTime=72h", "hours"),
        ("maxSendMessages=4k", "messages"),
    ],
)
def test_a_number_with_a_unit_is_refused_with_the_keys_unit(line: str, unit: str) -> None:
    """Guessing between 10s and 10 ms is how timeouts go wrong."""
    assert refusal(line).rule == f"a plain number, the key is in {unit}"


@pytest.mark.parametrize(
    "line",
    [
        "listenPort=",
        "listenPort=abc",
        "listenPort=-1",
        "listenPort=65536",
        "metricsPort=65536",
        "metricsPort=off",
        "listenPort=1.0",
        "listenPort=1_000",
        "listenPort=\uff11",
        "listenPort=0x1F",
        "listenPort=" + "9" * 5_000,
        "diskMaxUsedSpaceRatio=9",
        "diskMaxUsedSpaceRatio=96",
        "diskSpaceWarningLevelRatio=0.9",
        "diskSpaceWarningLevelRatio=101",
        "diskSpaceCleanForciblyRatio=0",
        "cleanFileForciblyEnable=no",
        "maxHashSlotNum=0",
        "maxHashSlotNum=100000001",
        "maxIndexNum=1",
        "maxIndexNum=80000001",
        "brokerId=1",
        "brokerRole=MASTER",
        "inSyncReplicas=2",
        "inSyncReplicas=3",
        "masterAddress=host",
        "masterAccount=standby",
        "flushDiskType=sync_flush",
        "flushDiskType=",
        "autoCreateTopicEnable=yes",
        "autoCreateTopicEnable=True",
        "autoCreateTopicEnable=1",
        "deleteWhen=4",
        "deleteWhen=24",
        "deleteWhen=04;",
        "deleteWhen=04,16",
        "namesrvAddr=9876",
        "namesrvAddr=a:b",
        "namesrvAddr=a:0",
        "namesrvAddr=a:65536",
        "namesrvAddr=a:1;a:1",
        "namesrvAddr=a:1,b:2",
        "namesrvAddr=::1:9876",
        "namesrvAddr=" + ";".join([f"a:{port}" for port in range(1, 18)]),
        "registerNameServerPeriod=9999",
        "registerNameServerPeriod=60001",
        "namesrvAccount=no such key",
        "brokerIP1=localhost",
        "brokerIP1=256.0.0.1",
        "brokerIP1=fe80::1%eth0",
        "brokerName=",
        "brokerName=a b",
        "brokerClusterName=größe",
        "bindAddress=",
        "storePathRootDir=",
        "storePathRootDir=a\x00b",
        "messageDelayLevel=",
        "messageDelayLevel=1s  5s",
        "messageDelayLevel=1S",
        "maxParkedPolls=0",
        "mappedFileSizeCommitLog=2147483648",
        "mappedFileSizeConsumeQueue=0",
    ],
)
def test_a_value_outside_its_rule_is_refused_with_line_and_key(line: str) -> None:
    """The operator sees the place, not a stack."""
    key = line.partition("=")[0]
    error = refusal("\n" + line)
    assert (error.line, error.field) == (2, key)
    assert error.rule
    assert str(error).startswith(f"broker.conf:2: {key}=")


def test_the_first_wrong_line_is_reported_first() -> None:
    """A file is mended from top to bottom."""
    assert refusal("deleteWhen=x\nlistenPort=x\nbindAddress=").line == 1


@pytest.mark.parametrize(
    ("text", "line", "key", "rule"),
    [
        (
            "maxMessageSize=4194305",
            1,
            "maxMessageSize",
            "at most maxSendBytes, that is 4194304",
        ),
        ("brokerRole=SLAVE", 0, "masterAddress", "the master's, with brokerRole=SLAVE"),
        ("brokerRole=SYNC_MASTER", 0, "inSyncReplicas", "2 with brokerRole=SYNC_MASTER"),
        ("maxSendBytes=1000", 1, "maxSendBytes", "at least maxMessageSize, that is 4194304"),
        ("maxPullBytes=1000", 1, "maxPullBytes", "at least maxMessageSize, that is 4194304"),
        (
            "defaultTopicQueueNums=2000",
            1,
            "defaultTopicQueueNums",
            "at most maxTopicQueues, that is 1024",
        ),
        ("maxTopicQueues=3", 1, "maxTopicQueues", "at least defaultTopicQueueNums, that is 4"),
        (
            "diskSpaceCleanForciblyRatio=91",
            1,
            "diskSpaceCleanForciblyRatio",
            "at most diskSpaceWarningLevelRatio, that is 90",
        ),
        (
            "diskMaxUsedSpaceRatio=95",
            1,
            "diskMaxUsedSpaceRatio",
            "at most diskSpaceWarningLevelRatio, that is 90",
        ),
        (
            "diskSpaceWarningLevelRatio=80",
            1,
            "diskSpaceWarningLevelRatio",
            "at least diskSpaceCleanForciblyRatio, that is 85",
        ),
    ],
)
def test_two_keys_that_cannot_both_hold_are_refused(
    text: str, line: int, key: str, rule: str
) -> None:
    """The line said last is named, never a default that nobody wrote."""
    error = refusal(text)
    assert (error.line, error.field, error.rule) == (line, key, rule)


@pytest.mark.parametrize(
    ("text", "line", "key", "rule"),
    [
        (
            "mappedFileSizeCommitLog=4259847",
            1,
            "mappedFileSizeCommitLog",
            "at least maxMessageSize + 65544, that is 4259848",
        ),
        (
            "mappedFileSizeCommitLog=1048576\nmaxMessageSize=1048576",
            2,
            "maxMessageSize",
            "at most mappedFileSizeCommitLog - 65544, that is 983032",
        ),
        (
            "maxMessageSize=1\nmappedFileSizeCommitLog=1",
            2,
            "mappedFileSizeCommitLog",
            "at least maxMessageSize + 65544, that is 65545",
        ),
    ],
)
def test_a_new_store_has_room_for_the_largest_message(
    text: str, line: int, key: str, rule: str
) -> None:
    """A store that has log files already keeps their length, so it is not asked of one."""
    config = parse_config(text, "broker.conf")
    with pytest.raises(ConfigInvalid) as caught:
        config.check_new_store()
    error = caught.value
    assert (error.source, error.line) == ("broker.conf", line)
    assert (error.field, error.rule) == (key, rule)


def test_the_smallest_log_file_that_holds_the_largest_message_is_allowed() -> None:
    """The relation is exact: one byte less is refused, see above."""
    config = parse_config("mappedFileSizeCommitLog=4259848")
    config.check_new_store()
    assert config.max_message_bytes == 4_194_304


def test_values_that_are_replaced_leave_the_others_as_they_were_set() -> None:
    """What is only a default stays one, and an error names the line as before."""
    config = parse_config("listenPort=1\nmappedFileSizeCommitLog=7", "broker.conf")
    changed = config.with_values({"listen_port": 2})
    assert changed.listen_port == 2
    assert changed.model_fields_set == {"listen_port", "mapped_file_size_commit_log"}
    assert changed.refusal("mapped_file_size_commit_log", "no").line == 2
    with pytest.raises(ConfigInvalid, match="listenPort"):
        config.with_values({"listen_port": -1})


@pytest.mark.parametrize(("given", "taken"), [(1, 20), (20, 20), (21, 40), (6_000_000, 6_000_000)])
def test_a_queue_file_holds_whole_entries(given: int, taken: int) -> None:
    """RocketMQ rounds up the same way, so both find the same files."""
    text = f"mappedFileSizeConsumeQueue={given}"
    assert parse_config(text).mapped_file_size_consume_queue == taken


def test_the_largest_key_index_file_is_one_that_rocketmq_can_map() -> None:
    """Java maps at most 2 GiB at once, and RocketMQ counts the bytes in 32 bits."""
    config = parse_config("maxHashSlotNum=100000000\nmaxIndexNum=80000000")
    assert 40 + 4 * config.max_hash_slots + 20 * config.max_index_entries < 2**31


def test_delete_hours_are_the_hours_of_the_key() -> None:
    """Two digits each, separated by semicolons."""
    assert parse_config("deleteWhen=04;16;23").delete_hours == (4, 16, 23)


def test_an_address_is_written_in_its_shortest_form() -> None:
    """The same broker must not have two offset message ids."""
    assert parse_config("brokerIP1=2001:0db8::0001").broker_ip == "2001:db8::1"


def test_a_config_is_built_in_code_by_attribute_name() -> None:
    """Tests and the demo have no file."""
    config = BrokerConfig(store_path=Path("/data"), listen_port=0, message_delay_level="1s")
    assert (config.store_path, config.listen_port) == (Path("/data"), 0)
    assert config.levels.max_level == 1


@pytest.mark.parametrize(
    ("values", "field", "rule"),
    [
        ({"listen_port": 65_536}, "listenPort", "0 to 65535"),
        ({"listen_port": True}, "listenPort", "a whole number"),
        ({"listen_port": 1.0}, "listenPort", "a whole number"),
        ({"listen_prt": 1}, "listen_prt", "did you mean listen_port?"),
        ({"flush_disk_type": "SYNC"}, "flushDiskType", "SYNC_FLUSH or ASYNC_FLUSH"),
        ({"max_message_bytes": 2**30}, "maxMessageSize", "at most maxSendBytes"),
        ({"store_path": 7}, "storePathRootDir", "the path of a file or folder"),
        ({"auto_create_topic": 2}, "autoCreateTopicEnable", "true or false"),
        ({"brokerIP1": None}, "brokerIP1", "an IP address"),
    ],
)
def test_a_wrong_value_in_code_is_the_same_error_without_a_line(
    values: dict[str, Any], field: str, rule: str
) -> None:
    """One error for one mistake, wherever it is made."""
    with pytest.raises(ConfigInvalid) as raised:
        BrokerConfig(**values)
    assert (raised.value.field, raised.value.line) == (field, 0)
    assert rule in raised.value.rule


def test_a_config_does_not_change() -> None:
    """A new one is made instead, so nobody sees half an edit."""
    config = BrokerConfig()
    with pytest.raises(ValidationError):
        config.listen_port = 1


def test_a_file_is_loaded_and_errors_name_it(tmp_path: Path) -> None:
    """The path as the operator gave it."""
    path = tmp_path / "b.conf"
    path.write_text("\ufefflistenPort=1\n", "utf-8")
    assert load_config(path).listen_port == 1
    path.write_text("listenPort=x\n")
    with pytest.raises(ConfigInvalid) as raised:
        load_config(str(path))
    assert (raised.value.source, raised.value.line) == (str(path), 1)


def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path: Path) -> None:
    """Missing, a folder, or not text: one kind of error, with the reason."""
    binary = tmp_path / "binary"
    binary.write_bytes(b"listenPort=\xff\xfe")
    for path, reason in [
        (tmp_path / "none", "No such file"),
        (tmp_path, "directory"),
        (binary, "UTF-8"),
    ]:
        with pytest.raises(ConfigInvalid, match=reason):
            load_config(path)
