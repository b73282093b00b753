"""What S3's protocol promises of one bucket, in memory: enough for an archive's requests.

An object has an entity tag, by which it is replaced only if nobody else has been there; parts of a
large one count when all of them are there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

Answer = tuple[int, list[tuple[str, str]], bytes]


def tag_of(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()[:32]}"'


class FakeS3:
    """objects: by the path of the bucket and the name."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self._parts: dict[str, dict[int, bytes]] = {}

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Status, headers and body."""
        split = urlsplit(path)
        name = unquote(split.path)
        asked = {key: values[0] for key, values in parse_qs(split.query, True).items()}
        if "uploads" in asked:
            upload = f"upload-{len(self._parts)}"
            self._parts[upload] = {}
            return _xml(f"<R><Bucket>b</Bucket><Key>k</Key><UploadId>{upload}</UploadId></R>")
        if "partNumber" in asked:
            self._parts[asked["uploadId"]][int(asked["partNumber"])] = body
            return 200, [("etag", tag_of(body))], b""
        if "uploadId" in asked:
            parts = self._parts.pop(asked["uploadId"])
            if method == "POST":
                data = self.objects[name] = b"".join([parts[each] for each in sorted(parts)])
                return _xml(f"<R><ETag>{escape(tag_of(data))}</ETag></R>")
            return 204, [], b""
        if "delete" in asked:
            names = re.findall(r"<Key>(.*?)</Key>", body.decode())
            for each in names:
                self.objects.pop(f"{name.rstrip('/')}/{each}", None)
            gone = "".join([f"<Deleted><Key>{each}</Key></Deleted>" for each in names])
            return _xml(f"<DeleteResult>{gone}</DeleteResult>")
        if "list-type" in asked:
            return self._listed(f"{name.rstrip('/')}/", asked.get("prefix", ""))
        if method == "PUT":
            return self._put(name, headers, body)
        if method == "DELETE":
            self.objects.pop(name, None)
            return 204, [], b""
        return self._got(name, headers.get("range", ""))

    def _put(self, name: str, headers: Mapping[str, str], body: bytes) -> Answer:
        there = self.objects.get(name)
        wanted = headers.get("if-match")
        is_other = wanted is not None and (there is None or tag_of(there) != wanted)
        if is_other or (there is not None and headers.get("if-none-match") == "*"):
            return _xml("<Error><Code>PreconditionFailed</Code></Error>", 412)
        self.objects[name] = body
        return 200, [("etag", tag_of(body))], b""

    def _got(self, name: str, wanted: str) -> Answer:
        data = self.objects.get(name)
        if data is None:
            return _xml("<Error><Code>NoSuchKey</Code></Error>", 404)
        about = [("etag", tag_of(data)), ("last-modified", "Fri, 21 Nov 2025 00:00:00 GMT")]
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted)
        if span is None:
            return 200, about, data
        first, last = int(span[1]), min(int(span[2] or len(data)), len(data) - 1)
        about.append(("content-range", f"bytes {first}-{last}/{len(data)}"))
        return 206, about, data[first : last + 1]

    def _listed(self, bucket: str, prefix: str) -> Answer:
        """All in one page."""
        rows = [
            f"<Contents><Key>{escape(name.removeprefix(bucket))}</Key>"
            "<LastModified>2025-11-21T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(tag_of(data))}</ETag><Size>{len(data)}</Size></Contents>"
            for name, data in sorted(self.objects.items())
            if name.startswith(bucket + prefix)
        ]
        return _xml(f"<ListBucketResult>{''.join(rows)}</ListBucketResult>")


def _xml(text: str, status: int = 200) -> Answer:
    return status, [("content-type", "application/xml")], text.encode()
