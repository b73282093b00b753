"""rmqlite tls selfsigned: files to try TLS with."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography import x509

from tests.cli.conftest import Run

NAMES = {"ca.pem", "broker.pem", "broker.key", "client.pem", "client.key"}


def test_it_makes_what_the_broker_and_a_client_need(run: Run, tmp_path: Path) -> None:
    """Keys are the owner's alone; what is printed can be pasted."""
    folder = tmp_path / "keys"
    done = run("tls", "selfsigned", str(folder), "--host", "mq.example.com", "--host", "10.0.0.7")
    assert done.exit_code == 0
    assert {each.name for each in folder.iterdir()} == NAMES
    for each in folder.glob("*.key"):
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
    assert f"tlsCertPath={folder / 'broker.pem'}" in done.output
    assert f"RMQLITE_TLS_CA={folder / 'ca.pem'}" in done.output
    certificate = x509.load_pem_x509_certificate((folder / "broker.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "mq.example.com"} <= set(names.get_values_for_type(x509.DNSName))
    assert "10.0.0.7" in map(str, names.get_values_for_type(x509.IPAddress))


def test_it_replaces_nothing(run: Run, tmp_path: Path) -> None:
    """A broker may use the files that are there."""
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "client.key").write_text("mine")
    done = run("tls", "selfsigned", str(folder))
    assert done.exit_code == 2
    assert "client.key" in done.output
    assert [each.name for each in folder.iterdir()] == ["client.key"]


@pytest.mark.parametrize(
    ("arguments", "named"), [(("--host", "königsberg"), "--host"), ((), "DIR")]
)
def test_what_cannot_be_made_is_named(
    arguments: tuple[str, ...], named: str, run: Run, tmp_path: Path
) -> None:
    """A name that no certificate can have, and a folder that is a file."""
    (tmp_path / "file").touch()
    folder = tmp_path / "keys" if arguments else tmp_path / "file"
    done = run("tls", "selfsigned", str(folder), *arguments)
    assert (done.exit_code, named in done.output) == (2, True)
    assert not (tmp_path / "keys").exists()
