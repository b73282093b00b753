"""Who driver and tasks are for a broker: an account, and certificates for tls://host:port.

They stand in options, or else in the driver's environment.  A task may have another environment: it
gets them with the options that Spark sends to it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from rmqlite.spark.arrow.options import BrokerOptions

if TYPE_CHECKING:
    from rmqlite.client.credentials import Credentials

_FIELDS: Final = {
    "accessKey": ("access_key", "access_key"),
    "secretKey": ("secret_key", "secret"),
    "tlsCa": ("tls_ca", "ca"),
    "tlsCertificate": ("tls_certificate", "certificate"),
    "tlsSecretKey": ("tls_secret_key", "private_key"),
}
"""Option -> the field of the options, and of the credentials.

Spark hides the values of options with "secret" or "accessKey" in their names in its plans
(spark.redaction.regex).
"""
OPTIONS: Final = {name: in_options for name, (in_options, _) in _FIELDS.items()}

_O = TypeVar("_O", bound=BrokerOptions)


def credentials_of(options: BrokerOptions) -> Credentials | None:
    """The credentials of the options.  Raises InvalidValue if one option of a pair is missing."""
    given = {found: getattr(options, name) for name, found in _FIELDS.values()}
    if not any(given.values()):
        return None
    # Import it here: only a reading of a broker needs gRPC.
    from rmqlite.client.credentials import Credentials, are_paired

    are_paired(given["access_key"], given["secret"], ("accessKey", "secretKey"))
    are_paired(given["certificate"], given["private_key"], ("tlsCertificate", "tlsSecretKey"))
    return Credentials(**given)


def options_of(credentials: Credentials | None) -> dict[str, str]:
    """The inverse: the options, without the empty ones."""
    given = {option: getattr(credentials, name, "") for option, (_, name) in _FIELDS.items()}
    return {option: text for option, text in given.items() if text}


def with_credentials(options: _O) -> _O:
    """The options for all tasks: what they lack comes from the environment of this process.

    Raises InvalidValue and ConfigInvalid.
    """
    if not options.endpoint:
        return options
    from rmqlite.client.credentials import with_environment

    found = with_environment(credentials_of(options))
    given = {name: getattr(found, in_found) for name, in_found in _FIELDS.values()}
    return replace(options, **given)
