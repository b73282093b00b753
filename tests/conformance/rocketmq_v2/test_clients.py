"""Which of the official gRPC clients of RocketMQ 5 can be had here."""

from __future__ import annotations

import pytest

from tests.support.grpc_clients import COMMANDS, asked_for


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_client_can_be_had(name: str) -> None:
    """Skipped with the reason if not, and failed where CI is set: no scenario would tell."""
    if name not in asked_for:
        pytest.skip("only with --every-client or --long")
    assert COMMANDS[name]()
