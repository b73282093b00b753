"""What stands beside a broker: name servers, other brokers that register here, the archive."""

from __future__ import annotations

from typing import Final

from rmqlite.kernel.requests.figures import ArchiveStatus, BrokerStatus, NameServerStatus
from rmqlite.views.counts import size_text
from rmqlite.views.tables import BAD, NOTHING, Column, Table, TableRow, cell, row, table
from rmqlite.views.times import span_text

_NAME_SERVERS: Final = (
    Column("NAME SERVER"),
    Column("REGISTERED"),
    Column("FOR", right=True),
    Column("TOPICS", right=True),
)
_BROKERS: Final = (
    Column("BROKER"),
    Column("ID", right=True),
    Column("ADDRESS"),
    Column("CLUSTER"),
    Column("TOPICS", right=True),
    Column("LAST", right=True),
)
_ARCHIVE: Final = (
    Column("ARCHIVE"),
    Column("OWNER"),
    Column("TERM", right=True),
    Column("LOG END", right=True),
    Column("LAST", right=True),
    Column("BEHIND", right=True),
)


def cluster_tables(status: BrokerStatus) -> list[Table]:
    """Those that have rows; a broker that stands alone has none."""
    now_ms = status.now_ms
    brokers = [
        row(
            each.address,
            each.broker_name,
            each.broker_id,
            each.address,
            each.cluster,
            each.topics,
            f"{span_text(now_ms - each.registered_at_ms)} ago",
        )
        for each in status.registered
    ]
    servers = [_name_server_row(each, now_ms) for each in status.name_servers]
    found = (
        table("name servers", _NAME_SERVERS, servers),
        table("brokers that have registered here", _BROKERS, brokers),
        table("archive", _ARCHIVE, [_archive_row(each, now_ms) for each in status.archives]),
    )
    return [each for each in found if each.rows]


def _name_server_row(server: NameServerStatus, now_ms: int) -> TableRow:
    return row(
        server.address,
        server.address,
        cell("yes" if server.is_registered else "no", "" if server.is_registered else BAD),
        span_text(now_ms - server.since_ms) if server.since_ms else NOTHING,
        server.topics,
    )


def _archive_row(archive: ArchiveStatus, now_ms: int) -> TableRow:
    """LAST: when something was archived; BEHIND: what is not, and since when."""
    behind = size_text(archive.behind_bytes)
    if archive.behind_since_ms:
        behind += f" for {span_text(now_ms - archive.behind_since_ms)}"
    last_ms = archive.archived_at_ms
    return row(
        archive.url,
        archive.url,
        archive.owner or NOTHING,
        archive.term or NOTHING,
        archive.end,
        f"{span_text(now_ms - last_ms)} ago" if last_ms else NOTHING,
        cell(behind, BAD if archive.trouble else ""),
    )
