"""Dead letters from the command line against a real broker: read, taken out, sent again once."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyarrow import parquet
from typer.testing import CliRunner, Result

from rmqlite.cli.main import app
from rmqlite.client import AdminClient, Message, Producer, PullConsumer
from rmqlite.client.channel import Connection
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.message import REDRIVEN_BY, REDRIVEN_FROM, StoredMessage
from rmqlite.kernel.words.names import dlq_topic, retry_topic
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.store_tools.check import check
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import OF_ANY_DISK, StartBroker
from tests.support.dead_letters import (
    GROUP,
    TOPICS,
    body_of,
    dead_letter_store,
    message_id_of,
    reason_of,
    topic_of,
)
from tests.support.eventually import eventually
from tests.support.looking import untouched

MANY = 3_000
MANY_IN_A_LONG_RUN = 100_000
SOME = 2_000
HOUR_MS = 3_600_000


class Shell:
    """Runs rmqlite against one broker, as a user does; 80 columns."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker

    def __call__(self, *words: str, exit_code: int = 0) -> Result:
        env = {"RMQLITE_ENDPOINT": self.broker.endpoint, "COLUMNS": "80"}
        result = CliRunner().invoke(app, list(words), env=env)
        assert result.exit_code == exit_code, result.output
        return result

    def tree(self, *words: str, exit_code: int = 0) -> Any:
        return json.loads(self(*words, "--json", exit_code=exit_code).stdout)


def with_letters(folder: Path, count: int, start_broker: StartBroker, **settings: Any) -> Shell:
    """A broker with so many dead letters of an hour ago."""
    dead_letter_store(folder / "broker" / "store", count, begins_ms=wall_ms() - HOUR_MS, every_ms=1)
    return Shell(start_broker(**settings))


def ends(broker: BrokerProcess, topics: Iterable[str] = TOPICS) -> dict[Queue, int]:
    """Where the next message goes, of every queue of the topics."""
    with AdminClient(broker.endpoint) as admin:
        ranges = [each for topic in topics for each in admin.ranges(topic)]
    return {each.queue: each.max_offset for each in ranges}


def sent_since(broker: BrokerProcess, begins: dict[Queue, int]) -> list[StoredMessage]:
    """Everything that came into those queues from there on."""
    found: list[StoredMessage] = []
    until = ends(broker, {queue.topic for queue in begins})
    with PullConsumer(broker.endpoint, "readers") as consumer:
        for queue, offset in begins.items():
            while offset < until[queue]:
                result = consumer.pull(queue.topic, queue.queue_id, offset, max_messages=1_000)
                found += result.messages
                offset = result.next_offset
    return found


def gone_back(broker: BrokerProcess) -> list[StoredMessage]:
    """Everything in the retry topic of the group that failed."""
    return sent_since(broker, {Queue(retry_topic(GROUP), 0): 0})


def assert_each_once(messages: list[StoredMessage], count: int) -> None:
    """Letter for letter: with its topic, its body, and saying what it was."""
    places = Counter([each.properties[REDRIVEN_FROM] for each in messages])
    assert places == Counter([f"%DLQ%{GROUP}:0:{n}" for n in range(count)])
    for each in messages:
        number = int(each.properties[REDRIVEN_FROM].rpartition(":")[2])
        assert (each.origin_topic, each.body) == (topic_of(number), body_of(number))
        assert each.reconsume_times == 0


def job(shell: Shell, job_id: str) -> dict[str, Any]:
    tree: dict[str, Any] = shell.tree("job", "show", job_id)
    return tree


def test_many_letters_are_redriven_once_through_a_kill(
    tmp_path: Path, start_broker: StartBroker, is_long: bool
) -> None:
    """Nobody follows the job, the broker is killed in the middle; each letter arrives once."""
    count = MANY_IN_A_LONG_RUN if is_long else MANY
    shell = with_letters(tmp_path, count, start_broker)
    (listed,) = shell.tree("dlq", "list")["groups"]
    assert (listed["group"], listed["open"], listed["redriven"]) == (GROUP, count, 0)
    most = Counter([reason_of(n).partition("\n")[0] for n in range(count)]).most_common(1)
    assert [(each["reason"], each["count"]) for each in listed["reasons"][:1]] == most
    assert f"{most[0][1]:,}" in shell("dlq", "list").stdout
    (newest,) = shell.tree("dlq", "show", GROUP, "--newest", "--max", "1")["letters"]
    assert newest["message_id"] == message_id_of(count - 1)

    preview = shell.tree("dlq", "redrive", GROUP, "--dry-run")
    assert (preview["sent"], preview["refused"], preview["letters"]) == (count, 0, count)
    how = ("--rate", str(count // 3), "--job-id", "all", "--detach", "--yes")
    assert shell("dlq", "redrive", GROUP, *how).stdout == "all\n"
    eventually(lambda: job(shell, "all")["sent"] > count // 10, "the job is well under way")
    shell.broker.kill()
    shell.broker.start()
    assert job(shell, "all")["state"] == "running"
    # The same command in another terminal is the same job.
    shell("dlq", "redrive", GROUP, *how)
    told = shell("job", "show", "all", "--follow").stdout
    assert f"{count:,} sent, 0 redriven before, 0 refused" in told
    assert_each_once(gone_back(shell.broker), count)

    assert shell.tree("dlq", "list")["groups"] == []
    (done,) = shell.tree("dlq", "list", "--all")["groups"]
    assert (done["open"], done["redriven"]) == (0, count)
    again = shell.tree("dlq", "redrive", GROUP, "--yes", exit_code=1)
    assert (again["sent"], again["already"]) == (0, count)
    assert f"{count:,} dead letters purged" in shell("dlq", "purge", GROUP, "--yes").stdout
    shell("dlq", "show", GROUP, "--all", exit_code=1)
    shell.broker.kill()
    shell.broker.start()
    shell("dlq", "show", GROUP, "--all", exit_code=1)
    assert (
        f"{count:,} dead letters restored"
        in shell("dlq", "purge", GROUP, "--restore", "--yes").stdout
    )
    assert len(shell.tree("dlq", "show", GROUP, "--all", "--max", "5")["letters"]) == 5
    shell.broker.stop()
    assert list(check(shell.broker.store)) == []


def test_a_job_is_paused_slowed_cancelled_and_what_is_left_sent_by_another(
    tmp_path: Path, start_broker: StartBroker
) -> None:
    """Paused stays paused through a kill; what the first job sent the second one leaves out."""
    shell = with_letters(tmp_path, SOME, start_broker)
    shell("dlq", "redrive", GROUP, "--rate", "100", "--job-id", "slow", "--detach", "--yes")
    eventually(lambda: job(shell, "slow")["sent"] > 0, "it begins")
    assert "job slow: paused" in shell("job", "pause", "slow").stdout
    shell.broker.kill()
    shell.broker.start()
    paused = job(shell, "slow")
    assert (paused["state"], 0 < paused["sent"] < SOME) == ("paused", True)
    assert shell.tree("job", "rate", "slow", "200")["spec"]["max_per_second"] == 200
    assert shell.tree("job", "resume", "slow")["state"] == "running"
    eventually(lambda: job(shell, "slow")["sent"] > paused["sent"], "it goes on")
    cancelled = shell.tree("job", "cancel", "slow")
    assert (cancelled["state"], cancelled["sent"] < SOME) == ("cancelled", True)
    shell("job", "resume", "slow", exit_code=1)
    shell("job", "show", "slow", "--follow", exit_code=1)

    rest = shell("dlq", "redrive", GROUP, "--yes", "--job-id", "rest").stdout
    sent = cancelled["sent"]
    assert f"{SOME - sent:,} sent, {sent:,} redriven before, 0 refused" in rest
    messages = gone_back(shell.broker)
    assert_each_once(messages, SOME)
    jobs = Counter([each.properties[REDRIVEN_BY] for each in messages])
    assert jobs == {"slow": sent, "rest": SOME - sent}
    outcomes = shell("job", "outcomes", "rest", "--only", "sent", "--json").stdout.splitlines()
    ids = {json.loads(line)["message_id"] for line in outcomes}
    assert ids == {each.message_id for each in messages if each.properties[REDRIVEN_BY] == "rest"}
    assert len(shell("job", "outcomes", "rest", "--only", "already").stdout.splitlines()) == sent
    assert [each["job_id"] for each in shell.tree("job", "list")] == ["rest", "slow"]


def test_letters_are_exported_whole_and_filters_agree(
    tmp_path: Path, start_broker: StartBroker
) -> None:
    """What show lists is what export writes and what redrive would send."""
    shell = with_letters(tmp_path, SOME, start_broker)
    paths = [tmp_path / f"letters.{form}" for form in ("jsonl", "csv", "parquet")]
    for path in paths:
        shell("dlq", "export", GROUP, "-o", str(path))
    bodies = [body_of(n) for n in range(SOME)]
    lines = [json.loads(line) for line in paths[0].read_text().splitlines()]
    assert [each["body"].encode() for each in lines] == bodies
    with paths[1].open(newline="") as file:
        assert [each["body"].encode() for each in csv.DictReader(file)] == bodies
    assert parquet.read_table(paths[2]).column("body").to_pylist() == bodies
    middle_ms = lines[SOME // 2]["last_failure_ms"]
    for filters in (
        ("--topic", "payments", "--reason", "NO SUCH"),
        ("--tag", "changed", "--since", str(middle_ms)),
        ("--until", str(middle_ms), "--reason", "in line 3"),
        ("--key", "order-17"),
        ("--id", message_id_of(5)),
    ):
        shown = shell.tree("dlq", "show", GROUP, *filters, "--max", str(SOME))["letters"]
        exported = shell("dlq", "export", GROUP, *filters).stdout.splitlines()
        places = [each["queue_offset"] for each in shown]
        assert places
        assert places == [json.loads(line)["queue_offset"] for line in exported]
        assert shell.tree("dlq", "redrive", GROUP, *filters, "--dry-run")["sent"] == len(places)


HOSTILE = "\x1b]52;c;cm0gLXJm\x07\x1b[2J\x9b31m\u202e<script>alert(1)</script>\x00"
BODIES: dict[str, bytes] = {
    "terminal": HOSTILE.encode() * 3,
    "binary": bytes(range(256)),
    "huge": b"x" * ((4 << 20) - 4_096),
    "surrogates": b"\xed\xa0\x80\xed\xbf\xbf",
    "json": json.dumps({"said": HOSTILE, "n": 10**40}).encode(),
    "broken": b'{"said": "\x1b]0;x\x07"',
    "numbers": b'{"n": 1e999999, "m": 0.1234567890123456789012345678901234567890}',
    "deep": b"[" * 20_000 + b"]" * 20_000,
}


def test_an_export_is_imported_once_here_and_elsewhere(
    tmp_path: Path, start_broker: StartBroker
) -> None:
    """Repeated, killed in between, and beside the broker's own redrive, which knows the ids."""
    shell = with_letters(tmp_path, SOME, start_broker)
    file = tmp_path / "letters.jsonl"
    shell("dlq", "export", GROUP, "-o", str(file))
    lines = file.read_bytes().splitlines(keepends=True)
    half = tmp_path / "half.jsonl"
    half.write_bytes(b"".join(lines[: SOME // 2]))
    assert shell.tree("dlq", "import", str(half), "--yes")["sent"] == SOME // 2
    shell.broker.kill()
    shell.broker.start()
    done = shell.tree("dlq", "import", str(file), "--yes")
    assert (done["sent"], done["already"], done["refused"]) == (SOME // 2, SOME // 2, 0)
    assert_each_once(gone_back(shell.broker), SOME)
    assert shell.tree("dlq", "list")["groups"] == []
    preview = shell.tree("dlq", "redrive", GROUP, "--dry-run", exit_code=1)
    assert (preview["sent"], preview["already"]) == (0, SOME)

    with BrokerProcess(tmp_path / "other", OF_ANY_DISK) as broker:
        other = Shell(broker)
        assert other.tree("dlq", "import", str(file), "--yes", "--rate", "100000")["sent"] == SOME
        assert other.tree("dlq", "import", str(file), "--yes", exit_code=1)["already"] == SOME
        assert_each_once(gone_back(broker), SOME)


def die(broker: BrokerProcess, name: str, body: bytes) -> None:
    """A message whose every text is hostile fails for a hostile reason, and is dead."""
    message = Message(
        "orders",
        body,
        tags=HOSTILE,
        keys=(name, HOSTILE.replace(" ", "")),
        properties={"note": HOSTILE, HOSTILE: "x"},
        message_id=f"id-{name}",
    )
    with Producer(broker.endpoint, "shop") as producer:
        sent = producer.send(message)
    reason = f"{HOSTILE}\n  at {HOSTILE}"
    request = SendBackRequest(GROUP, sent.physical_offset, delay_level=-1, reason=reason)
    with Connection(broker.endpoint) as connection:
        connection.call(rpcs.SEND_BACK, request, 180)


def is_readable(text: str) -> bool:
    """Nothing of it is for the terminal but its lines."""
    return "".join(text.split("\n")).isprintable()


def test_hostile_letters_are_read_and_nothing_of_them_is_interpreted(
    tmp_path: Path, start_broker: StartBroker
) -> None:
    """Not by a terminal, not by JSON; and whoever looks changes not a byte of the store."""
    small = {"mappedFileSizeCommitLog": 8 << 20, "mappedFileSizeConsumeQueue": 20_000}
    # Nothing is written in the background while two looks at the store are compared.
    still = {"flushConsumerOffsetInterval": HOUR_MS, "flushDelayOffsetInterval": HOUR_MS}
    shell = Shell(start_broker(**small, **still, maxHashSlotNum=1_000, maxIndexNum=4_000))
    for name, body in BODIES.items():
        die(shell.broker, name, body)
    topics = shell.broker.store / "config" / "topics.json"
    is_there = lambda: topics.exists() and dlq_topic(GROUP) in topics.read_text()  # noqa: E731
    eventually(is_there, "the dead-letter topic is in the file")
    saved_ns = topics.stat().st_mtime_ns
    last = shell.broker.store / "checkpoint"
    eventually(lambda: last.stat().st_mtime_ns >= saved_ns, "all that is written with it, too")
    with untouched(shell.broker.store):
        look_at_hostile_letters(shell, tmp_path / "letters.csv")

    shell("dlq", "redrive", GROUP, "--yes")
    found = gone_back(shell.broker)
    assert sorted([each.body for each in found]) == sorted(BODIES.values())
    assert {each.properties["note"] for each in found} == {HOSTILE}


def look_at_hostile_letters(shell: Shell, path: Path) -> None:
    """By every command, in every form; path: of a file to export to."""
    for words in (
        ("dlq", "list"),
        ("dlq", "show", GROUP),
        ("dlq", "export", GROUP),
        ("dlq", "redrive", GROUP, "--dry-run"),
        *[("dlq", "peek", f"id-{name}") for name in BODIES],
        ("dlq", "peek", "id-huge", "--hex"),
        ("dlq", "peek", f"{GROUP}:0:0", "--full"),
        ("dlq", "list", "--json"),
        ("dlq", "show", GROUP, "--json"),
        ("dlq", "peek", "id-terminal", "--json"),
    ):
        result = shell(*words)
        assert is_readable(result.stdout), words
        assert is_readable(result.stderr), words
    for name, body in BODIES.items():
        assert shell("dlq", "peek", f"id-{name}", "--raw").stdout_bytes == body
    shell("dlq", "export", GROUP, "-o", str(path))
    assert is_readable(path.read_bytes().decode().replace("\r\n", "\n"))
    csv.field_size_limit(sys.maxsize)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [_bytes(row) for row in rows] == list(BODIES.values())


def _bytes(row: dict[str, str]) -> bytes:
    body = row["body"].removeprefix("'")
    return bytes.fromhex(body) if row["body_encoding"] == "hex" else body.encode()
