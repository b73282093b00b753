"""The settings of both programs, from environment variables.

A variable that is misspelled or has a wrong value ends the start with a sentence about it.  An
account for the broker needs no setting here: rmqlite's clients read RMQLITE_ACCESS_KEY and the
others themselves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

PREFIX: Final = "REMINDERS_"
ENDPOINT: Final = "RMQLITE_ENDPOINT"
_SERVICE_LINK: Final = re.compile(
    r".*_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""Kubernetes sets such variables in every pod, for each Service: one named reminders, too."""


class Settings(BaseModel):
    """Each field is the variable of its name in capitals, with PREFIX but for the endpoint.

    concurrency: reminders that one worker delivers at a time.  stop_seconds: how long a worker that
    is stopped waits for those that it has begun; give it more time than that before a SIGKILL.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=lambda name: PREFIX + name.upper(),
    )

    endpoint: str = Field("127.0.0.1:8081", alias=ENDPOINT)
    topic: str = "reminders"
    group: str = "reminder-worker"
    inbox: Path = Path("inbox.db")
    concurrency: int = Field(20, ge=1, le=1_000)
    stop_seconds: float = Field(20.0, ge=0, le=3_600)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Raises SystemExit, with a line for each variable that is wrong."""
        own = {
            name: value
            for name, value in environment.items()
            if name == ENDPOINT or (name.startswith(PREFIX) and not _SERVICE_LINK.fullmatch(name))
        }
        try:
            return cls.model_validate(own)
        except ValidationError as error:
            wrong = [f"{each['loc'][0]}={each['input']}: {each['msg']}" for each in error.errors()]
            text = "\n".join(wrong).replace("Extra inputs are not permitted", "No such setting")
            raise SystemExit(text) from error
