"""The bytes between RocketMQ's master and its slave (4.9 and 5, without a controller).

    slave -> master    i64 the end of its log
    master -> slave    i64 physical offset, i32 size, so many bytes of the log; size 0: still there

Nothing else, ever: no greeting, no name, no checksum, no error.  A refusal is a closed connection.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

REPORT: Final = Struct(">q")
HEADER: Final = Struct(">qi")
FRAME_BYTES_MAX: Final = 32 << 10
"""RocketMQ's haTransferBatchSize.  No frame crosses the end of a log file."""
BEAT_S: Final = 5.0
"""RocketMQ's haSendHeartbeatInterval: after so long without a frame, or a report, another one."""
SILENCE_S: Final = 20.0
"""RocketMQ's haHousekeepingInterval: a connection without a report for so long is closed."""


def frame_size(begin: int, end: int, log_file_bytes: int) -> int:
    """How many bytes the frame that begins there has, if the log is to be sent up to an end."""
    return min(FRAME_BYTES_MAX, end - begin, log_file_bytes - begin % log_file_bytes)
