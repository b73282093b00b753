"""The signature of a request: RocketMQ 4.x's ACL (remoting reference §6.1).

A client joins the values of all ext fields, in the order of the fields' names, and the body, and
signs them with its secret.  So every field counts as it was received, known or not.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from typing import Final

from rmqlite.wire.remoting.command import Command

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"
_UNSIGNED: Final = frozenset({SIGNATURE, "_UNIQUE_KEY_QUERY"})
"""The signature itself, and a field that Java adds behind it."""


def signature(ext: dict[str, str], body: bytes, secret: str) -> str:
    """What a request with these ext fields and this body must bring: 28 characters."""
    # By code points, which is the order of the names in UTF-8, too.
    values = [ext[name] for name in sorted(ext) if name not in _UNSIGNED]
    signed = "".join(values).encode("utf-8", "replace") + body
    return b64encode(hmac.digest(secret.encode(), signed, "sha1")).decode()


def is_signed(command: Command, secret: str) -> bool:
    """Has the request the signature that this secret makes?"""
    given = command.ext.get(SIGNATURE, "")
    wanted = signature(command.ext, command.body, secret)
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
