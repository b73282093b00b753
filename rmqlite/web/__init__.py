"""The broker's web page: shows and does in a browser what top, schedule, retry and dlq do.

Pages are made here and sent whole.  They call the broker's service, as every protocol does, so no
rule stands twice.  No module outside this folder needs its packages, and a broker without a webPort
never loads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.words.errors import ExtraMissing

if TYPE_CHECKING:
    from rmqlite.protocols.shared.tls import TlsKeys
    from rmqlite.web.server import WebServer

PACKAGES: Final = ("starlette", "uvicorn", "jinja2")


def web_server(config: BrokerConfig, keys: TlsKeys | None = None) -> WebServer:
    """The server of the web page.  Raises ExtraMissing."""
    try:
        from rmqlite.web.server import WebServer
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in PACKAGES:
            raise
        remedy = 'pip install "rmqlite[web]", or set webPort=0'
        raise ExtraMissing("the web page's extra", f"no {missing}", remedy) from error
    return WebServer(config, keys)
