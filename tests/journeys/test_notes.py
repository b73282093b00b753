"""An operator says why, at every command that changes something: the broker's log has it."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from rmqlite.cli.main import app
from rmqlite.client import DEAD_LETTER, ConsumeResult, Message, Producer, PushConsumer
from rmqlite.kernel.words.message import StoredMessage
from tests.support.broker_processes import StartBroker
from tests.support.eventually import eventually

NOTE = "INC-12: the ledger was away"


def test_the_log_says_why(start_broker: StartBroker, tmp_path: Path) -> None:
    """One line for each change; none for what was only looked at."""
    broker = start_broker(messageDelayLevel="1s 1h")

    def run(command: str, *more: str) -> Result:
        env = {"RMQLITE_ENDPOINT": broker.endpoint, "COLUMNS": "80"}
        result = CliRunner().invoke(app, [*command.split(), *more], env=env)
        assert result.exit_code == 0, (command, result.output)
        return result

    def failing(message: StoredMessage) -> ConsumeResult:
        is_first = message.body == b"retried"
        return ConsumeResult(False, 2 if is_first else DEAD_LETTER, "down")

    with (
        Producer(broker.endpoint, "makers") as producer,
        PushConsumer(broker.endpoint, "billing", failing) as consumer,
    ):
        for number in range(4):
            message = Message("orders", b"x", delay_level=2, message_id=f"W{number}")
            producer.send(message)
        for body in [b"retried"] * 2 + [b"dead"] * 60:
            producer.send(Message("orders", body))
        consumer.subscribe("orders")
        consumer.start()

        def is_done() -> bool:
            counts = json.loads(run("dlq list --json").stdout)
            retries = json.loads(run("retry list billing --json").stdout)["letters"]
            return [each["letters"] for each in counts["groups"]] == [60] and len(retries) == 2

        eventually(is_done, "failed")
    file = str(tmp_path / "letters.jsonl")
    run("dlq export billing -o", file)
    retries = json.loads(run("retry list billing --json").stdout)["letters"]
    calls = [
        ("schedule cancel W0", "change_by_ids"),
        ("schedule deliver-now W1", "change_by_ids"),
        ("schedule reschedule W2 --after 2h", "change_by_ids"),
        ("schedule cancel --topic orders --yes", "change_by_filter"),
        (f"retry now billing {retries[0]['message_id']}", "change_by_ids"),
        ("retry cancel billing --all --yes", "change_by_filter"),
        (f"dlq import {file} --yes", "import_letters"),
        ("dlq redrive billing --again --rate 1 --job-id job --detach --yes", "start"),
        ("job pause job", "change"),
        ("job resume job", "change"),
        ("job rate job 2", "change"),
        ("job cancel job", "change"),
        ("dlq purge billing --yes", "purge"),
        ("dlq purge billing --restore --yes", "purge"),
        ("group reset-offset billing --to earliest --yes", "reset_offsets"),
        ("group delete billing --yes", "delete"),
        ("topic delete orders --yes", "delete"),
        ("levels set 1s --yes", "change_levels"),
    ]
    for command, _ in calls:
        if "--yes" in command:
            with_dry_run = command.replace("--yes", "--dry-run").replace("--job-id job", "")
            run(with_dry_run.replace("--detach", ""), "--note", "only looked at")
        run(command, "--note", NOTE)
    log = (tmp_path / "broker" / "broker.log").read_text().splitlines()
    lines = [each for each in log if "rmqlite.audit" in each]
    assert all(line.endswith(f"outcome=ok note={NOTE!r}") for line in lines), lines
    found = [line.partition("call='")[2].partition("'")[0].partition(".")[2] for line in lines]
    assert found == [call for _, call in calls]
    notes = json.loads(run("job show job --json").stdout)["operator_notes"]
    assert notes == [NOTE] * 5
