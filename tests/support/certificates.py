"""Certificates for tests of TLS."""

from __future__ import annotations

from pathlib import Path

from rmqlite.cli.tls import certificates
from rmqlite.client import Credentials
from rmqlite.kernel.words.clock import wall_ms

YEAR_MS = 365 * 86_400_000


def made(folder: Path, *hosts: str, age_ms: int = 0) -> Path:
    """The folder, with the files of a CA, a broker and a client, made so long ago."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = certificates(hosts or ("localhost", "127.0.0.1"), wall_ms() - age_ms)
    for name, text in texts.items():
        # As an operator replaces it: other processes see the old file or the new one.
        new = folder / f"{name}.new"
        new.touch(mode=0o600)
        new.write_bytes(text)
        new.replace(folder / name)
    return folder


def keys_of(folder: Path, **changes: str) -> dict[str, str]:
    """The keys of broker.conf for these files."""
    keys = {"tlsMode": "enforcing", "tlsTrustCertPath": str(folder / "ca.pem")}
    keys |= {"tlsCertPath": str(folder / "broker.pem"), "tlsKeyPath": str(folder / "broker.key")}
    return keys | changes


def trusting(folder: Path, *, shows: bool = False) -> Credentials:
    """A client that trusts the CA, and perhaps shows its own certificate."""
    ca, certificate, key = [
        (folder / name).read_text() for name in ("ca.pem", "client.pem", "client.key")
    ]
    return (
        Credentials(ca=ca, certificate=certificate, private_key=key)
        if shows
        else Credentials(ca=ca)
    )
