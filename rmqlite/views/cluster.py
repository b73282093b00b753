"""Where a broker has registered, and which other brokers have registered at its name server."""

from __future__ import annotations

from typing import Final

from rmqlite.kernel.requests.broker import BrokerStatus, NameServerStatus
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


def cluster_tables(status: BrokerStatus) -> list[Table]:
    """Those that have rows; a broker that is no member of a cluster has none."""
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
