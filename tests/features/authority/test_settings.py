"""EtcdKeys that contradict each other are refused at the start, in a sentence."""

from __future__ import annotations

import pytest

from rmqlite.features.authority.settings import check_authority
from rmqlite.kernel.config.config import parse_config
from rmqlite.kernel.words.errors import ConfigInvalid

GOOD = {
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": "2",
    "masterAddress": "10.0.0.2:8081",
    "brokerIP1": "10.0.0.1",
    "authority": "etcd://10.0.0.3:2379,10.0.0.4:2379/orders",
    "enableAutoInSyncReplicas": "true",
}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"authority": ""}, "enableAutoInSyncReplicas=.*: false without authority"),
        ({"brokerRole": "ASYNC_MASTER", "inSyncReplicas": "1"}, "inSyncReplicas=.*: 2 with"),
        ({"masterAddress": ""}, "masterAddress=.*: the other broker's"),
        ({"masterAddress": "10.0.0.1:8081"}, "brokerIP1 is this one's"),
        ({"brokerIP1": "127.0.0.1"}, "brokerIP1=.*: where the other broker"),
        ({"authority": "archive"}, "authority=.*: archive only with archiveUrl"),
    ],
)
def test_keys_that_contradict_each_other(changed: dict[str, str], sentence: str) -> None:
    """Each would be a standby that takes over what it lacks, or one copy that nobody knows of."""
    check(GOOD)
    with pytest.raises(ConfigInvalid, match=sentence):
        check(GOOD | changed)


@pytest.mark.parametrize("value", ["etcd://a/x", "etcd://a:1", "etcd://u@a:1/x", "zk://a:1/x"])
def test_what_is_no_authority(value: str) -> None:
    """Also an account in the address, which would stand in every log."""
    with pytest.raises(ConfigInvalid, match=r"authority=.*: archive, or etcd://HOST:PORT/NAME"):
        check(GOOD | {"authority": value})


def check(settings: dict[str, str]) -> None:
    text = "\n".join(f"{key}={value}" for key, value in settings.items())
    check_authority(parse_config(text))
