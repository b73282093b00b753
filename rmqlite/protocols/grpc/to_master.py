"""How a standby reaches its master: at masterAddress, the other broker's port of gRPC."""

from __future__ import annotations

import grpc
import grpc.aio

from rmqlite.kernel.config.config import BrokerConfig


def channel_to_master(config: BrokerConfig, answer_bytes_max: int) -> grpc.aio.Channel:
    """A connection of its own; with TLS if masterAddress says so.  Raises ConfigInvalid."""
    address = config.master_address.removeprefix("tls://")
    options = (
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_receive_message_length", answer_bytes_max),
        ("grpc.use_local_subchannel_pool", 1),
        # Each piece of the log in one frame of HTTP/2, not in sixteen.
        ("grpc.http2.max_frame_size", 1 << 20),
    )
    if address == config.master_address:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials_of(config), options=options)


def credentials_of(config: BrokerConfig) -> grpc.ChannelCredentials:
    """Of a broker that calls another server.  Raises ConfigInvalid."""
    try:
        ca = config.tls_trust_cert_path.read_bytes()
        has_own = config.tls_mode != "disabled"
        key = config.tls_key_path.read_bytes() if has_own else None
        certificate = config.tls_cert_path.read_bytes() if has_own else None
    except OSError as error:
        rule = f"certificates in PEM that the other server's is signed with ({error})"
        raise config.refusal("tls_trust_cert_path", rule) from None
    return grpc.ssl_channel_credentials(ca, key, certificate)
