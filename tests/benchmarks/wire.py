"""How much CPU time the remoting protocol's codecs take for a message that is sent.

    python -m tests.benchmarks.wire --frames 20000

A frame is a send (310) as RocketMQ's Java client writes it, with a key, a tag and a body of 200
bytes.  "all" is what a protocol does for each message apart from storing it: the frame is decoded,
its fields become a value, the answer is encoded.  Every figure is the best of some rounds,
because other programs on the machine can only make a round slower.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Final

from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.frame import FrameDecoder, encode, encode_sent, encode_start
from rmqlite.protocols.remoting.bytes.requests.messages import PULL_MESSAGE, PullAnswer
from rmqlite.protocols.remoting.bytes.requests.sends import (
    SEND_MESSAGE_V2,
    SendAnswerFields,
    SendMessage,
)

FRAMES_TOGETHER: Final = 32
MSG_ID: Final = "7F00000100002A9F0000000000002D8B"
SEND: Final = SendMessage(
    "orders",
    "order-service",
    queue_id=2,
    born_timestamp=1_795_317_592_790,
    properties="KEYS\x01order-17\x02UNIQ_KEY\x017F00000137723096E0966D67C9C00000\x02"
    "WAIT\x01true\x02TAGS\x01TagA",
)


def send_command(*, is_binary: bool) -> Command:
    ext = {**SEND_MESSAGE_V2.fields.write(SEND), "n": "broker-a"}
    return Command(310, 8, ext, b"x" * 200, is_binary=is_binary)


def works(*, is_binary: bool) -> dict[str, tuple[int, Callable[[], object]]]:
    """By name: how many frames one call is for, and the call."""
    command = send_command(is_binary=is_binary)
    frame = encode(command)
    together = frame * FRAMES_TOGETHER
    decoder = FrameDecoder()
    read = SEND_MESSAGE_V2.fields.read

    def all_of() -> None:
        for each in decoder.feed(together):
            sent = read(each.ext)
            encode_sent(each, 0, MSG_ID, sent.queue_id, 17)

    def plain_answer() -> bytes:
        ext = SEND_MESSAGE_V2.answer.write(SendAnswerFields(MSG_ID, 2, 17))
        return encode(command.answer(0, ext))

    def pull_answer() -> bytes:
        ext = PULL_MESSAGE.answer.write(PullAnswer(17, 0, 20))
        return encode_start(command.answer(0, ext), 4096)

    return {
        "decode, one frame": (1, lambda: decoder.feed(frame)),
        f"decode, {FRAMES_TOGETHER} frames": (FRAMES_TOGETHER, lambda: decoder.feed(together)),
        "fields of a send": (1, lambda: read(command.ext)),
        "answer to a send": (1, lambda: encode_sent(command, 0, MSG_ID, 2, 17)),
        "the same by the table": (1, plain_answer),
        "start of a pull's answer": (1, pull_answer),
        "all": (FRAMES_TOGETHER, all_of),
    }


def cpu_us(work: Callable[[], object], calls: int) -> float:
    began_s = time.process_time()
    for _ in range(calls):
        work()
    return (time.process_time() - began_s) / calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=20_000, help="in a round")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    for spelling, is_binary in (("JSON", False), ("binary", True)):
        for name, (frames, work) in works(is_binary=is_binary).items():
            calls = options.frames // frames
            best = min(cpu_us(work, calls) for _ in range(options.rounds)) / frames
            print(f"{spelling:6} {name:26} {best:6.2f} us CPU for a frame")


if __name__ == "__main__":
    main()
