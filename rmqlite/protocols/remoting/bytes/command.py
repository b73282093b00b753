"""One request or one answer, as it travels in one frame.

The ext fields are texts, as the ACL signature wants them; fields.py makes typed values of them.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from enum import IntEnum
from typing import Final, NamedTuple

ANSWER_FLAG: Final = 1
ONE_WAY_FLAG: Final = 2
SERVER_LANGUAGE: Final = "JAVA"
SERVER_VERSION: Final = 409
"""RocketMQ 4.9.8.  Java clients refuse SQL92 subscriptions if an answer says less than 232."""
ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
_UNSIGNED: Final = frozenset({SIGNATURE, "_UNIQUE_KEY_QUERY"})
"""The signature itself, and a field that Java adds behind it."""


class ResponseCode(IntEnum):
    """RocketMQ 4.9.8's.  Java and Go producers try another queue for 1, 14, 16 and 17."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    """RocketMQ 5's, for a pop; 4.9's ACL has the same numbers for changes of its rules."""
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED = 211
    FLOW_CONTROL = 215
    ILLEGAL_OPERATION = 604
    """RocketMQ 5's, for a recall that is refused."""


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
    def held_bytes(self) -> int:
        """What it holds until it is answered."""
        return len(self.body) + sum(map(len, self.ext.values()))

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


def signature(ext: dict[str, str], body: bytes, secret: str) -> str:
    """What a request with these ext fields and this body must bring: 28 characters.

    RocketMQ 4.x's ACL: a client joins the values of all ext fields, in the order of the fields'
    names, and the body, and signs them with its secret.  So every field counts as it was received,
    known or not.
    """
    # By code points, which is the order of the names in UTF-8, too.
    values = [ext[name] for name in sorted(ext) if name not in _UNSIGNED]
    signed = "".join(values).encode("utf-8", "replace") + body
    return b64encode(hmac.digest(secret.encode(), signed, "sha1")).decode()


def is_signed(command: Command, secret: str) -> bool:
    """Has the request the signature that this secret makes?"""
    given = command.ext.get(SIGNATURE, "")
    wanted = signature(command.ext, command.body, secret)
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
