"""RocketMQ's Java client over TLS, beside one that speaks plain.

The Go client 2.1.2 and the C++ client of the tests have no TLS.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.conftest import live_broker
from tests.support import toolchains
from tests.support.accounts import ADMIN, signing, with_admin
from tests.support.certificates import keys_of, made
from tests.support.programs import Program


@pytest.mark.parametrize("mode", [pytest.param("permissive", marks=pytest.mark.long), "enforcing"])
def test_the_java_client_sends_and_consumes_over_tls(
    mode: str, tmp_path: Path, is_long: bool
) -> None:
    """With an account; name server and broker alike.

    With --long a plain client, too, where the mode lets it; else tests/journeys/test_tls.py.
    """
    command, log = toolchains.java(), tmp_path / "java.log"
    keys = made(tmp_path / "keys")
    options = ["-Dtls.enable=true", "-Dtls.client.authServer=true"]
    options.append(f"-Dtls.client.trustCertPath={keys / 'ca.pem'}")
    with_tls = [command[0], *options, *command[1:]]
    settings = keys_of(keys, tlsMode=mode) | with_admin(tmp_path)
    with live_broker(tmp_path / "broker", **settings) as broker:
        with Program(with_tls, broker.name_server, log, **signing(ADMIN)) as java:
            (sent,) = java.send("orders", "over TLS")
            assert sent["status"] == "SEND_OK"
            java.push("readers", "orders")
            java.until(lambda: java.got("readers") != [], "it arrives")
            java.do("stop", name="readers")
        if not is_long:
            return
        with Program(command, broker.name_server, log, **signing(ADMIN)) as plain:
            if mode == "permissive":
                assert len(plain.send("orders", "plain")) == 1
                return
            with pytest.raises(AssertionError, match=r"(Remoting|MQClient)\w*Exception"):
                plain.send("orders", "plain")
