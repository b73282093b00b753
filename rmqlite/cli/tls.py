"""rmqlite tls: makes certificates to try TLS with."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from rmqlite.cli.options import option, refuse
from rmqlite.cli.output.terminal import print_lines
from rmqlite.extras import check_extra
from rmqlite.kernel.words.clock import utc, wall_ms

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, GeneralName

app = typer.Typer(no_args_is_help=True, help="Make certificates to try TLS with.")
VALID_DAYS: Final = 365
_DAY_MS: Final = 86_400_000
_HERE: Final = ("localhost", "127.0.0.1", "::1")


class _Signed(NamedTuple):
    certificate: Certificate
    key: EllipticCurvePrivateKey


@app.command("selfsigned")
def selfsigned(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", show_default=False, help="Where the files go.")
    ],
    host: Annotated[
        list[str] | None,
        option(
            "--host NAME",
            "A further host name or IP address of the broker; may be repeated.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make a CA, and with it a certificate for the broker and one for a client.

    They are for trying TLS on this machine: nobody else trusts the CA.  Its own key is not kept.
    """
    check_extra("tls")
    hosts = tuple(dict.fromkeys((*_HERE, socket.gethostname(), *(host or ()))))
    _write(folder, certificates(hosts, wall_ms()))
    print_lines(
        [
            f"{folder}: certificates for {', '.join(hosts)}, valid for {VALID_DAYS} days",
            "",
            "in broker.conf",
            "  tlsMode=enforcing",
            f"  tlsCertPath={folder / 'broker.pem'}",
            f"  tlsKeyPath={folder / 'broker.key'}",
            "for rmqlite's clients and commands",
            f"  export RMQLITE_TLS_CA={folder / 'ca.pem'}",
            "  export RMQLITE_ENDPOINT=tls://127.0.0.1:8081",
        ]
    )


def certificates(hosts: tuple[str, ...], begin_ms: int) -> dict[str, bytes]:
    """The files of a new CA, a broker with these names, and a client, by their names."""
    # Another name each time: the certificates of two CAs are not taken for each other's.
    ca = _signed(f"rmqlite test CA {token_hex(4)}", begin_ms)
    texts = {"ca.pem": _pem(ca.certificate)}
    for name, names in (("broker", hosts), ("client", ())):
        made = _signed(f"rmqlite {name}", begin_ms, ca, names)
        texts |= {f"{name}.pem": _pem(made.certificate), f"{name}.key": _key_pem(made.key)}
    return texts


def _signed(
    subject: str, begin_ms: int, ca: _Signed | None = None, hosts: tuple[str, ...] = ()
) -> _Signed:
    """A new key with a certificate: the CA's, or without one that of a new CA."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)])
    issuer = ca.certificate.subject if ca else name
    begun = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks differ a little.
        .not_valid_before(utc(begin_ms - _DAY_MS))
        .not_valid_after(utc(begin_ms + VALID_DAYS * _DAY_MS))
        .add_extension(x509.BasicConstraints(ca=ca is None, path_length=None), critical=True)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(each) for each in hosts])
        begun = begun.add_extension(names, critical=False)
    return _Signed(begun.sign(ca.key if ca else key, hashes.SHA256()), key)


def _general_name(host: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        refuse("--host", host, "a host name in ASCII, or an IP address")


def _pem(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(folder: Path, texts: dict[str, bytes]) -> None:
    """Write all files, or none if one of them exists."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in texts:
            if (folder / name).exists():
                refuse("DIR", folder, f"a folder without {name}: nothing was written")
        for name, text in texts.items():
            path = folder / name
            path.touch(mode=0o600 if name.endswith(".key") else 0o644, exist_ok=False)
            path.write_bytes(text)
    except OSError as error:
        refuse("DIR", folder, f"a folder that can be written: {error.strerror}")
