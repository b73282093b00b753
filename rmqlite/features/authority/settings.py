"""What broker.conf says about the authority."""

from __future__ import annotations

from typing import Final

from rmqlite.features.archive.objects import ArchiveBucket
from rmqlite.features.authority.bucket import BucketRegister
from rmqlite.features.authority.etcd import EtcdRegister
from rmqlite.features.authority.record import Register
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.words.message import host_text
from rmqlite.protocols.etcd import Etcd
from rmqlite.protocols.grpc.to_master import credentials_of

ARCHIVE: Final = "archive"


def own_address(config: BrokerConfig) -> str:
    """Under which the other broker reaches this one."""
    return host_text(config.broker_ip, config.grpc_port)


def check_authority(config: BrokerConfig) -> None:
    """Raises ConfigInvalid for keys that contradict each other."""
    if not config.authority:
        if config.auto_in_sync_replicas:
            rule = "false without authority: nobody would know that one copy is acknowledged"
            raise config.refusal("auto_in_sync_replicas", rule)
        return
    if config.in_sync_replicas != 2:
        rule = "2 with authority: a standby that may lack messages must not take over by itself"
        raise config.refusal("in_sync_replicas", rule)
    other = config.master_address.removeprefix("tls://")
    if not other:
        raise config.refusal("master_address", "the other broker's, with authority")
    if other == own_address(config):
        raise config.refusal("master_address", "the other broker's: brokerIP1 is this one's")
    if _is_local(config.broker_ip) and not _is_local(other.rpartition(":")[0]):
        rule = "where the other broker reaches this one, with authority"
        raise config.refusal("broker_ip", rule)
    if config.authority == ARCHIVE and not config.archive_url:
        raise config.refusal("authority", "archive only with archiveUrl")


def call_s(config: BrokerConfig) -> float:
    """How long the authority may take for one answer."""
    return config.authority_lease_ms / 6000


def register_of(config: BrokerConfig) -> Register:
    """Raises ConfigInvalid, ExtraMissing, StoreUnavailable."""
    if config.authority == ARCHIVE:
        return BucketRegister(ArchiveBucket(config.archive_url), config.authority_lease_ms)
    scheme, _, rest = config.authority.partition("://")
    endpoints, _, name = rest.partition("/")
    credentials = credentials_of(config) if scheme == "etcds" else None
    etcd = Etcd(endpoints.split(","), name, call_s(config), credentials)
    return EtcdRegister(etcd, config.authority_lease_ms)


def _is_local(host: str) -> bool:
    return host == "localhost" or host.startswith(("127.", "[::1]", "::1"))
