"""Who a client is, and whom it believes: given by the caller, else by the environment.

The secret and the private key are in no repr and in no error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from rmqlite.kernel.words.errors import ConfigInvalid, InvalidValue
from rmqlite.protocols.shared.secret_files import read_text

ACCESS_KEY_VARIABLE: Final = "RMQLITE_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "RMQLITE_SECRET_KEY"
FILE_VARIABLE: Final = "RMQLITE_CREDENTIALS"
CA_VARIABLE: Final = "RMQLITE_TLS_CA"
CERTIFICATE_VARIABLE: Final = "RMQLITE_TLS_CERTIFICATE"
PRIVATE_KEY_VARIABLE: Final = "RMQLITE_TLS_KEY"
FILE_BYTES_MAX: Final = 4_096
PEM_BYTES_MAX: Final = 1 << 20
_KEYS: Final = ("accessKey", "secretKey")

ENVIRONMENT: Final[Mapping[str, str]] = os.environ


@dataclass(frozen=True, slots=True)
class Credentials:
    """An account, and certificates for endpoints tls://host:port; "" is none.

    access_key, secret: sign the calls.  ca: PEM; one of these must have signed the broker's
    certificate; none means those that come with gRPC.  certificate, private_key: PEM; what the
    client shows a broker with tlsNeedClientAuth=require.
    """

    access_key: str = ""
    secret: str = field(default="", repr=False)
    ca: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)


def with_environment(
    given: Credentials | None, environment: Mapping[str, str] = os.environ
) -> Credentials:
    """The credentials with what they lack, an account or certificates, from the environment.

    Raises InvalidValue and ConfigInvalid.
    """
    found = given or Credentials()
    if not found.access_key:
        found = _with_account(found, environment)
    if not (found.ca or found.certificate):
        found = _with_certificates(found, environment)
    return found


def are_paired(first: str, second: str, names: tuple[str, str]) -> bool:
    """Are both texts given?  Raises InvalidValue if only one is.  names: the caller's, for both."""
    if bool(first) != bool(second):
        given, missing = names if first else reversed(names)
        raise InvalidValue(missing, "", f"given together with {given}")
    return bool(first)


def _with_account(found: Credentials, environment: Mapping[str, str]) -> Credentials:
    names = ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE
    access_key, secret = [environment.get(name, "") for name in names]
    path = environment.get(FILE_VARIABLE, "")
    if not are_paired(access_key, secret, names) and path:
        access_key, secret = _account_in(path)
    return replace(found, access_key=access_key, secret=secret)


def _with_certificates(found: Credentials, environment: Mapping[str, str]) -> Credentials:
    names = CERTIFICATE_VARIABLE, PRIVATE_KEY_VARIABLE
    ca, certificate, key = [environment.get(name, "") for name in (CA_VARIABLE, *names)]
    are_paired(certificate, key, names)
    return replace(
        found,
        ca=_text_of(ca, CA_VARIABLE, PEM_BYTES_MAX) if ca else "",
        certificate=_text_of(certificate, names[0], PEM_BYTES_MAX) if certificate else "",
        private_key=_text_of(key, names[1], PEM_BYTES_MAX, is_secret=True) if key else "",
    )


def _account_in(path: str) -> tuple[str, str]:
    found: dict[str, str] = {}
    text = _text_of(path, FILE_VARIABLE, FILE_BYTES_MAX, is_secret=True)
    for number, line in enumerate(text.splitlines(), 1):
        key, _, value = map(str.strip, line.partition("="))
        if key in _KEYS and key not in found:
            found[key] = value
        elif line.strip():
            rule = "a line accessKey=... and a line secretKey=..., each once"
            raise ConfigInvalid(path, number, FILE_VARIABLE, f"{len(line)} characters", rule)
    for key in _KEYS:
        if not found.get(key):
            raise ConfigInvalid(path, 0, key, "", f"a line {key}=... with a value")
    return found["accessKey"], found["secretKey"]


def _text_of(path: str, name: str, bytes_max: int, *, is_secret: bool = False) -> str:
    """The text of a file that the variable `name` names; a secret's is its owner's alone."""
    try:
        text, warning = read_text(Path(path), bytes_max, no_link=is_secret)
    except ValueError as error:
        raise InvalidValue(name, path, str(error)) from None
    if is_secret and warning:
        raise InvalidValue(name, path, f"a file of mode 600: {warning}")
    return text
