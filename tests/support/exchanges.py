"""What real clients and a real RocketMQ said to each other, frame by frame.

An archive holds one file for each scenario: of 4.9.8 a Java, Go or C++ client, or one mqadmin
command; of 5.3.2 its Java client, with timers, recall, lite pull and POP.  That of a cluster has
brokers of 4.9 that register at name servers, with further rows that only have an event.
A row is one frame: conn, dir (client->server or server->client), request_code or response_code
with answers_request_code, header as it was decoded, body_json, body_text or body_hex, and for
most rows frame_hex, the bytes.  The rows of raw-probes are frames made by hand: probe, to,
sent_hex, answer.
"""

from __future__ import annotations

import json
import tarfile
from functools import cache
from pathlib import Path, PurePath
from typing import Any, Final

from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.frame import FrameDecoder

GOLDEN: Final = Path(__file__).resolve().parents[1] / "golden"
ROCKETMQ_4: Final = "4.9.8"
ROCKETMQ_5: Final = "5.3.2"
CLUSTER: Final = "cluster-4.9.8"
PROBES: Final = "raw-probes"
_CUT: Final = "…cut…"
Row = dict[str, Any]


def command_of(frame: bytes) -> Command:
    """The one command of a frame."""
    decoder = FrameDecoder()
    (command,) = decoder.feed(frame)
    assert decoder.error is None
    assert decoder.held_bytes == 0
    return command


@cache
def scenarios(version: str = ROCKETMQ_4) -> dict[str, list[Row]]:
    """Rows by scenario, raw-probes left out."""
    return {name: rows for name, rows in _all(version).items() if name != PROBES}


def probes(version: str = ROCKETMQ_4) -> list[Row]:
    return _all(version)[PROBES]


@cache
def _all(version: str) -> dict[str, list[Row]]:
    found = {}
    with tarfile.open(GOLDEN / f"remoting-{version}.tar.xz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            lines = file.read().decode().splitlines()
            found[PurePath(member.name).stem] = [json.loads(line) for line in lines]
    return found


def body_of(row: Row) -> bytes | None:
    """The body; None if the capture has only its beginning."""
    if not row["body_len"]:
        return b""
    if "frame_hex" in row:
        frame = bytes.fromhex(row["frame_hex"])
        return frame[-row["body_len"] :]
    if "body_json" in row:
        return json.dumps(row["body_json"], ensure_ascii=False, separators=(",", ":")).encode()
    if "body_text" in row and _CUT not in row["body_text"]:
        return str(row["body_text"]).encode()
    return bytes.fromhex(row["body_hex"]) if "body_hex" in row else None


def frame_of(row: Row) -> bytes | None:
    """The frame as it was sent; without its bytes made again, with a JSON header."""
    if "frame_hex" in row:
        return bytes.fromhex(row["frame_hex"])
    body = body_of(row)
    if body is None:
        return None
    header = json.dumps(row["header"], ensure_ascii=False, separators=(",", ":")).encode()
    size = 4 + len(header) + len(body)
    return size.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body
