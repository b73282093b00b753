"""The account of a client: given by the caller, else from the environment, else from a file.

The secret is in no repr and in no error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rmqlite.errors import ConfigInvalid, InvalidValue

ACCESS_KEY_VARIABLE: Final = "RMQLITE_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "RMQLITE_SECRET_KEY"
FILE_VARIABLE: Final = "RMQLITE_CREDENTIALS"
FILE_BYTES_MAX: Final = 4_096
_KEYS: Final = ("accessKey", "secretKey")
_OTHERS: Final = 0o077


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key and its secret, with which a client signs its calls."""

    access_key: str
    secret: str = field(repr=False)


def found_credentials(environment: Mapping[str, str] = os.environ) -> Credentials | None:
    """The credentials of the environment, else of the file that it names, else None.

    Raises InvalidValue and ConfigInvalid.
    """
    found = paired(
        environment.get(ACCESS_KEY_VARIABLE, ""),
        environment.get(SECRET_KEY_VARIABLE, ""),
        names=(ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE),
    )
    path = environment.get(FILE_VARIABLE, "")
    return found or (_of_file(path) if path else None)


def paired(access_key: str, secret: str, *, names: tuple[str, str]) -> Credentials | None:
    """Credentials of both texts; None if both are empty.  Raises InvalidValue if one is.

    names: what the caller calls them.
    """
    if access_key and secret:
        return Credentials(access_key, secret)
    if access_key or secret:
        given, missing = names if access_key else reversed(names)
        raise InvalidValue(missing, "", f"given together with {given}")
    return None


def _of_file(path: str) -> Credentials:
    found: dict[str, str] = {}
    for number, line in enumerate(_text_of(path).splitlines(), 1):
        key, _, value = map(str.strip, line.partition("="))
        if key in _KEYS and key not in found:
            found[key] = value
        elif line.strip():
            rule = "a line accessKey=... and a line secretKey=..., each once"
            raise ConfigInvalid(path, number, FILE_VARIABLE, f"{len(line)} characters", rule)
    for key in _KEYS:
        if not found.get(key):
            raise ConfigInvalid(path, 0, key, "", f"a line {key}=... with a value")
    return Credentials(found["accessKey"], found["secretKey"])


def _text_of(path: str) -> str:
    """The text of a regular file that only its owner can use."""
    try:
        # A link is not followed, and a named pipe is not waited for.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                raise InvalidValue(FILE_VARIABLE, path, "a regular file")
            if mode & _OTHERS:
                value = f"{path} with mode {stat.S_IMODE(mode):03o}"
                raise InvalidValue(FILE_VARIABLE, value, "a file of mode 600: chmod 600 it")
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        rule = f"a regular file that can be read: {error.strerror}"
        raise InvalidValue(FILE_VARIABLE, path, rule) from error
    if len(data) > FILE_BYTES_MAX:
        raise InvalidValue(FILE_VARIABLE, path, f"at most {FILE_BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        # Without the cause, which has the bytes.
        raise InvalidValue(FILE_VARIABLE, path, "text in UTF-8") from None
