"""One request or one answer, as it travels in one frame.

The ext fields are texts, as the ACL signature wants them; fields.py makes typed values of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

ANSWER_FLAG: Final = 1
ONE_WAY_FLAG: Final = 2
SERVER_LANGUAGE: Final = "JAVA"
SERVER_VERSION: Final = 409
"""RocketMQ 4.9.8.  Java clients refuse SQL92 subscriptions if an answer says less than 232."""


class FrameError(ValueError):
    """The bytes are no frame of this protocol: close the connection without an answer."""


class Command(NamedTuple):
    """A tuple, because the broker makes two for each message that it stores.

    code: of a request what is asked, of an answer how it ended.  opaque: an answer has its
    request's.  language, version: of the program that wrote the frame.  is_binary: how the
    header was spelt; an answer is spelt as its request was.
    """

    code: int
    opaque: int
    ext: dict[str, str]
    body: bytes = b""
    flag: int = 0
    remark: str = ""
    language: str = SERVER_LANGUAGE
    version: int = SERVER_VERSION
    is_binary: bool = False

    @property
    def is_answer(self) -> bool:
        return self.flag & ANSWER_FLAG != 0

    @property
    def is_one_way(self) -> bool:
        """Nobody waits for an answer, and none may be sent."""
        return self.flag & ONE_WAY_FLAG != 0

    def answer(
        self,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        remark: str = "",
    ) -> Command:
        """The answer to this request."""
        return Command(
            code,
            self.opaque,
            {} if ext is None else ext,
            body,
            ANSWER_FLAG,
            remark,
            is_binary=self.is_binary,
        )


def server_request(
    code: int,
    opaque: int,
    ext: dict[str, str],
    body: bytes = b"",
    *,
    is_one_way: bool,
) -> Command:
    """A request that the broker starts: its header is JSON, because C++ reads nothing else."""
    return Command(code, opaque, ext, body, ONE_WAY_FLAG if is_one_way else 0)
