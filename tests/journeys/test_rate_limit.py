"""A group's rate limit with real brokers, real consumers, the command line, and SIGKILL."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack

from typer.testing import CliRunner

from rmqlite.cli.main import app
from rmqlite.client import AdminClient, Message, Producer, PushConsumer, SimpleConsumer
from rmqlite.kernel.words.clock import elapsed_s
from tests.support.broker_processes import StartBroker
from tests.support.eventually import eventually

PER_SECOND, BURST = 20, 3
MESSAGES = 1_000


def shell(endpoint: str, *words: str) -> str:
    """What a command prints."""
    env = {"RMQLITE_ENDPOINT": endpoint, "COLUMNS": "100"}
    result = CliRunner().invoke(app, ["group", *words], env=env)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_limit_holds_for_all_members_and_over_sigkill(start_broker: StartBroker) -> None:
    """Set by the command while two members read; a broker that is killed three times hands out
    no burst each time, and goes on."""
    broker = start_broker()
    at = broker.endpoint
    given: list[float] = []
    with ExitStack() as stack:
        producer = stack.enter_context(Producer(broker.endpoint, "makers"))
        limit = ("--max-per-second", str(PER_SECOND), "--burst", str(BURST))
        assert "max per second" in shell(at, "set", "mailer", *limit)
        for _ in range(MESSAGES // 100):
            producer.send_batch([Message("mails", b"x") for _ in range(100)])
        began_s = elapsed_s()
        for _ in range(2):
            member = PushConsumer(broker.endpoint, "mailer", lambda _: given.append(elapsed_s()))
            member.subscribe("mails")
            stack.enter_context(member).start()
        for _ in range(3):
            before = len(given)
            eventually(lambda before=before: len(given) > before + BURST, "messages came")  # type: ignore[misc]
            broker.kill()
            broker.start()
        before = len(given)
        eventually(lambda: len(given) > before, "and come after the last SIGKILL")
        assert len(given) <= BURST + PER_SECOND * (elapsed_s() - began_s)
        shown = shell(at, "show", "mailer")
        assert (
            f"rate limit: {PER_SECOND} a second, {BURST} at once; it holds messages back" in shown
        )
        listed = json.loads(shell(at, "list", "--json"))
        assert [(each["max_per_second"], each["burst"]) for each in listed] == [(PER_SECOND, BURST)]
        shell(at, "set", "mailer", "--max-per-second", "0")
        eventually(lambda: len(given) >= MESSAGES, "all come at once without a limit")
        assert "rate limit" not in shell(at, "show", "mailer")


def test_members_that_receive_share_a_limit(start_broker: StartBroker) -> None:
    """Each waits at the broker until it has its turn; nobody gets more than there is."""
    broker = start_broker()
    given: list[str] = []
    is_over = threading.Event()
    with AdminClient(broker.endpoint) as admin, Producer(broker.endpoint, "makers") as producer:
        admin.set_group("shop", max_per_second=PER_SECOND, burst=BURST)
        producer.send_batch([Message("orders", b"x") for _ in range(500)])

        def member(name: str) -> None:
            with SimpleConsumer(broker.endpoint, "shop") as consumer:
                consumer.subscribe("orders")
                while not is_over.is_set():
                    messages = consumer.receive(10, wait="2s", invisible="10m")
                    given.extend([name] * len(messages))

        began_s = elapsed_s()
        members = [threading.Thread(target=member, args=(name,)) for name in ("one", "other")]
        for each in members:
            each.start()
        eventually(lambda: len(given) >= 2 * PER_SECOND, "messages for two seconds")
        assert len(given) <= BURST + PER_SECOND * (elapsed_s() - began_s)
        is_over.set()
        for each in members:
            each.join()
        assert {*given} == {"one", "other"}
        assert admin.group("shop").held_back_at_ms > 0
