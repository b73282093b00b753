"""The shapes of replicationTerms.json, a table of the log, and of replication.json, a file."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from rmqlite.kernel.config.table_shapes import Int64, Offset, TableShape

TERMS_TABLE: Final = "replicationTerms.json"
ROLE_TABLE: Final = "replication.json"


class TermRow(TableShape):
    start: Offset
    id: Annotated[str, Field(max_length=64)]


class TermsTable(TableShape):
    terms: dict[Annotated[int, Field(ge=1)], TermRow] = Field(default_factory=dict)


class RoleTable(TableShape):
    """configured: brokerRole and masterAddress of broker.conf; the rest counts while they stay."""

    configured: tuple[str, str]
    role: Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]
    master_address: str = ""
    log_id: str = ""
    alone_since_ms: Offset = 0
    cut_at: Int64 = -1


SHAPES: Final = {TERMS_TABLE: ("terms", TermsTable), ROLE_TABLE: ("role", RoleTable)}
