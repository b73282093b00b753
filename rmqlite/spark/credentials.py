"""The account with which driver and tasks call a broker.

It stands in the options accessKey and secretKey, or else in the driver's environment or file.  A
task may have another environment: it gets the account with the options that Spark sends to it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from rmqlite.arrow.options import ReadOptions
    from rmqlite.client.credentials import Credentials
    from rmqlite.spark.sink.options import SinkOptions

ACCESS_KEY: Final = "accessKey"
SECRET_KEY: Final = "secretKey"
"""Spark hides the values of options with these names in its plans (spark.redaction.regex)."""

_Options = TypeVar("_Options", "ReadOptions", "SinkOptions")


def credentials_of(options: ReadOptions | SinkOptions) -> Credentials | None:
    """The credentials of the options.  Raises InvalidValue if one of the two options is missing."""
    if not (options.access_key or options.secret_key):
        return None
    # Import it here: only a reading of a broker needs gRPC.
    from rmqlite.client.credentials import paired

    return paired(options.access_key, options.secret_key, names=(ACCESS_KEY, SECRET_KEY))


def options_of(credentials: Credentials | None) -> dict[str, str]:
    """The inverse: the two options, or none."""
    if credentials is None:
        return {}
    return {ACCESS_KEY: credentials.access_key, SECRET_KEY: credentials.secret}


def with_credentials(options: _Options) -> _Options:
    """The options for all tasks: without credentials of their own they get those of this process.

    Raises InvalidValue and ConfigInvalid.
    """
    if not options.endpoint or options.access_key:
        return options
    from rmqlite.client.credentials import found_credentials

    found = found_credentials()
    if found is None:
        return options
    return replace(options, access_key=found.access_key, secret_key=found.secret)
