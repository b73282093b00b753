"""A reminder, as both programs know it; in a message it is the body, as JSON."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Reminder(BaseModel):
    """to: whom it is for, without blanks: it is the key of the message."""

    model_config = ConfigDict(extra="forbid")

    to: str = Field(min_length=1, max_length=254, pattern=r"^[!-~]+$")
    text: str = Field(min_length=1, max_length=4_000)
