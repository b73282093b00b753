"""Decides, before any page is made, which requests get a page and which forms are taken.

No other site in the same browser may use a page, with a log-in or without.  The Host header must
be one of the page's own names (a foreign name that points here is a trap).  Only a page of ours
may send a form: Origin and Sec-Fetch-Site say which page sent it, and it carries a token that no
other page can read.  Other sites can neither frame nor script the answers.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from rmqlite.kernel.config.config import BrokerConfig

TOKEN_FIELD: Final = "token"
FORM_TYPE: Final = "application/x-www-form-urlencoded"
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self';"
        " frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: a form's Origin would then be "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""Headers of every answer.  They forbid inline styles and scripts, and foreign files."""
_ALWAYS_HOSTS: Final = ("localhost", "127.0.0.1", "[::1]")
_ID_BYTES: Final = 32
_SESSION: Final = re.compile(rf"[0-9a-f]{{{2 * _ID_BYTES}}}")
_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(?::([0-9]{1,5}))?")
_PORTS: Final = {"http": "80", "https": "443"}


class Forbidden(Exception):
    """Why a request is refused; status is the HTTP status of the answer."""

    def __init__(self, sentence: str, status: HTTPStatus = HTTPStatus.FORBIDDEN) -> None:
        super().__init__(sentence)
        self.status = status


def new_session() -> str:
    """An id that nobody can guess."""
    return secrets.token_hex(_ID_BYTES)


class WebGuard:
    """The rules of one broker process; a restart makes a new secret."""

    def __init__(self, config: BrokerConfig) -> None:
        self.can_write = config.web_access == "write"
        self.cookie = f"rmqlite_web_{config.web_port}"
        """Its name.  Brokers of one host share their cookies, whatever their ports."""
        self._secret = secrets.token_bytes(32)
        address = config.web_address
        names = (f"[{address}]" if ":" in address else address, *config.web_hosts.split(";"))
        self._hosts = {name.lower() for name in (*_ALWAYS_HOSTS, *names) if name}

    def session(self, cookie: str) -> str:
        """The session in the browser's cookie, or a new one if there is none."""
        return cookie if _SESSION.fullmatch(cookie) else new_session()

    def token(self, session: str) -> str:
        """The token that a form of this session must carry."""
        return hmac.new(self._secret, session.encode(), hashlib.sha256).hexdigest()

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises Forbidden unless this browser may have an answer."""
        found = _HOST.fullmatch(headers.get("host", ""))
        if not found or found[1].lower() not in self._hosts:
            sentence = (
                "this page does not answer under that host name; webHosts lists further names"
            )
            raise Forbidden(sentence, HTTPStatus.MISDIRECTED_REQUEST)
        site = headers.get("sec-fetch-site", "none")
        # A link on another site is harmless; an image or script that it loads from here is not.
        if site not in ("none", "same-origin") and headers.get("sec-fetch-mode") != "navigate":
            raise Forbidden("another site's page asked for this one")

    def check_form(self, headers: Mapping[str, str], cookie: str, token: str) -> None:
        """Raises Forbidden unless a page of ours has sent this form."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if site not in (None, "same-origin") or (origin is None and site is None):
            raise Forbidden("this form was not sent by a page of this broker")
        if origin is not None and not _is_of(origin, headers.get("host", "")):
            raise Forbidden("this form was sent by another site's page")
        if not _SESSION.fullmatch(cookie) or not hmac.compare_digest(
            self.token(cookie).encode(), token.encode("utf-8", "replace")
        ):
            sentence = (
                "this form is from before the broker's start, or from another browser:"
                " load its page again, and send it again"
            )
            raise Forbidden(sentence)


def _is_of(origin: str, host: str) -> bool:
    """Does an Origin, scheme://name:port, name the same host and port as Host?

    The scheme may differ, as a proxy may add TLS.
    """
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    usual = _PORTS.get(parts.scheme)
    found, asked = _HOST.fullmatch(parts.netloc), _HOST.fullmatch(host)
    if usual is None or not found or not asked:
        return False
    same_name = found[1].lower() == asked[1].lower()
    return same_name and (found[2] or usual) == (asked[2] or usual)
