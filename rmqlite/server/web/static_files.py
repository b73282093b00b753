"""The files that pages load.  Their URLs contain a hash, so that a browser may cache them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_KEPT: Final = "public, max-age=31536000, immutable"


class Static:
    """The files of one folder."""

    def __init__(self, folder: Path) -> None:
        found = [path for path in sorted(folder.iterdir()) if path.suffix in _TYPES]
        self._files = {path.name: path.read_bytes() for path in found}
        self._urls = {
            name: f"/static/{name}?{hashlib.sha256(content).hexdigest()[:12]}"
            for name, content in self._files.items()
        }

    def url(self, name: str) -> str:
        """The URL of a file; it changes with the file's content."""
        return self._urls[name]

    def answer(self, request: Request) -> Response | None:
        """The file that a request names; None if there is none."""
        name = request.path_params["name"]
        content = self._files.get(name)
        if content is None:
            return None
        response = Response(content, media_type=_TYPES[Path(name).suffix])
        response.headers["Cache-Control"] = _KEPT
        return response
