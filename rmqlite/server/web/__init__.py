"""The web page of the broker: what top, schedule, retry and dlq show and do, for a browser.

Pages are made here and sent whole.  They ask the broker at its front, as every face does, so
that no rule stands twice.  Nothing outside this folder needs what it imports, and a broker
without a webPort never loads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqlite.config import BrokerConfig
from rmqlite.errors import ExtraMissing

if TYPE_CHECKING:
    from rmqlite.server.web.face import WebFace

PACKAGES: Final = ("starlette", "uvicorn", "jinja2")


def web_face(config: BrokerConfig) -> WebFace:
    """The page's port.  Raises ExtraMissing."""
    try:
        from rmqlite.server.web.face import WebFace
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in PACKAGES:
            raise
        remedy = 'pip install "rmqlite[web]", or set webPort=0'
        raise ExtraMissing("the web page's extra", f"no {missing}", remedy) from error
    return WebFace(config)
