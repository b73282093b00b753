"""Timers for a broker under test: sent as RocketMQ's clients send them, with raw properties."""

from __future__ import annotations

from collections.abc import Sequence

from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.sends.calls import DraftCall, Outcome
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.kernel.words.message import encode_properties
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import TOPIC
from tests.support.sends import BORN_HOST
from tests.support.steps import done


def timer_draft(body: str, properties: dict[str, str], topic: str = TOPIC) -> Draft:
    """A message with these properties, as a client of RocketMQ sends it."""
    own = encode_properties({"UNIQ_KEY": body, **properties})
    return Draft(topic, 0, own, body.encode(), 1, BORN_HOST)


def send_drafts(broker: BrokerUnderTest, drafts: Sequence[Draft]) -> list[Outcome]:
    """Send each by a call of its own; a refusal is an outcome."""
    outcomes = done(broker.broker.drafts.send([DraftCall((draft,)) for draft in drafts]))
    broker.sync()
    return outcomes


def send_timer(broker: BrokerUnderTest, body: str, **properties: object) -> None:
    """Send one message; raises what refuses it."""
    texts = {name: str(value) for name, value in properties.items()}
    (outcome,) = send_drafts(broker, [timer_draft(body, texts)])
    if isinstance(outcome, RmqliteError):
        raise outcome
