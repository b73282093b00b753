"""Settings as lines of key=value: the body in which mqadmin reads and changes them."""

from __future__ import annotations

from collections.abc import Mapping

from rmqlite.wire.remoting.limits import SETTINGS_BYTES_MAX, SETTINGS_MAX
from rmqlite.wire.remoting.names import FieldError

_COMMENTS = ("#", "!")


def read_settings(body: bytes) -> dict[str, str]:
    """Values by key; the last one of several counts.  Raises FieldError."""
    if not body:
        raise FieldError("body", None, "lines of key=value")
    if len(body) > SETTINGS_BYTES_MAX:
        raise FieldError("body", f"{len(body)} bytes", f"at most {SETTINGS_BYTES_MAX} bytes")
    lines = body.decode("utf-8", "replace").splitlines()
    if len(lines) > SETTINGS_MAX:
        raise FieldError("body", f"{len(lines)} lines", f"at most {SETTINGS_MAX} lines")
    settings = {}
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line or line.startswith(_COMMENTS):
            continue
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            raise FieldError(f"body, line {number}", line, "key=value")
        settings[key.strip()] = value.strip()
    return settings


def write_settings(settings: Mapping[str, str]) -> bytes:
    """Each pair on a line of its own; a line break in a value becomes a blank."""
    lines = [f"{key}={' '.join(value.splitlines())}\n" for key, value in settings.items()]
    return "".join(lines).encode("utf-8", "replace")
