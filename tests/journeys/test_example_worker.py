"""examples/worker/: its application and its worker, as processes, with a real broker."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from rmqlite.client import AdminClient, Message, Producer
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import StartBroker
from tests.support.documents import ROOT
from tests.support.eventually import WAIT_S, eventually

EXAMPLES = ROOT / "examples"
WORKER = ("worker.consumer",)
GROUP = "reminder-worker"
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    """Its one delay level makes every retry wait for a second."""
    return start_broker(messageDelayLevel="1s")


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    return tmp_path / "inbox" / "inbox.db"


@pytest.fixture
def start(broker: BrokerProcess, inbox: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts a module of the example; whatever still runs in the end is killed."""
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}:{EXAMPLES}",
        "RMQLITE_ENDPOINT": broker.endpoint,
        "REMINDERS_INBOX": str(inbox),
    }
    inbox.parent.mkdir()
    with ExitStack() as stack:

        def begin(*words: str) -> subprocess.Popen[str]:
            log = stack.enter_context((tmp_path / f"{words[0]}.log").open("w"))
            process = subprocess.Popen(
                [sys.executable, "-m", *words], env=environment, stdout=log, stderr=log, text=True
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield begin


@pytest.fixture
def app(start: Start, web_port: int) -> Iterator[httpx.Client]:
    """A client of the running application, which stops in order in the end."""
    started = start("uvicorn", "--port", str(web_port), "--factory", "worker.app:create_app")
    with httpx.Client(base_url=f"http://127.0.0.1:{web_port}", timeout=WAIT_S) as client:

        def is_healthy() -> bool:
            try:
                return client.get("/healthz").status_code == 200
            except httpx.TransportError:
                return False

        eventually(is_healthy, "the application answers")
        yield client
        started.send_signal(signal.SIGTERM)
        assert started.wait(WAIT_S) in (0, -signal.SIGTERM)


def test_a_reminder_comes_when_it_is_due(start: Start, app: httpx.Client) -> None:
    """Now, later, moved and cancelled ones; one that is sent twice under one key comes once."""
    start(*WORKER)
    far = (datetime.now(UTC) + timedelta(days=300)).isoformat()
    sent = [
        app.post("/reminders", json={"to": "ada", "text": text} | when)
        for text, when in (
            ("now", {}),
            ("later", {"deliver_after": "1s"}),
            ("moved", {"deliver_at": far}),
            ("cancelled", {"deliver_at": far}),
        )
    ]
    assert [each.status_code for each in sent] == [201] * 4
    now, _, moved, cancelled = [each.json()["message_id"] for each in sent]
    for _ in range(2):
        key = {"Idempotency-Key": "twice-1"}
        answer = app.post("/reminders", json={"to": "ada", "text": "twice"}, headers=key)
        assert answer.json()["message_id"] == "twice-1"

    waits = {each["message_id"] for each in app.get("/reminders", params={"to": "ada"}).json()}
    assert {moved, cancelled} <= waits
    assert app.get("/reminders", params={"to": "bob"}).json() == []
    assert len(app.get("/reminders", params={"limit": 1}).json()) == 1
    for _ in range(2):  # as a client repeats it that got no answer
        assert app.delete(f"/reminders/{cancelled}").status_code == 200
    assert app.patch(f"/reminders/{moved}", json={"deliver_after": "1s"}).json() == "done"

    eventually(lambda: len(app.get("/inbox/ada").json()) == 4, "all but the cancelled one")
    assert sorted(app.get("/inbox/ada").json()) == ["later", "moved", "now", "twice"]
    assert app.get("/reminders").json() == []
    assert app.delete(f"/reminders/{moved}").status_code == 409
    assert app.delete(f"/reminders/{now}").status_code == 404, "it never waited"


def test_an_error_says_what_to_do(broker: BrokerProcess, app: httpx.Client) -> None:
    """A 422 names the field and the rule; a 503 may be tried again, and works then."""
    reminder = {"to": "ada", "text": "hello"}
    both = {"deliver_after": "1s", "deliver_at": "2100-01-01T00:00:00Z"}
    for wrong, named in (
        ({"deliver_after": "2 weeks"}, "deliver_after must be"),
        ({"deliver_at": "2100-01-01T00:00:00Z"}, "timerMaxDelaySec"),
        ({"deliver_at": "2027-01-01T00:00:00"}, "timezone"),
        ({"deliver_in": "2s"}, "deliver_in"),
        ({"to": "a b"}, "to"),
        (both, "deliver_at must be left out"),
    ):
        answer = app.post("/reminders", json=reminder | wrong)
        assert (answer.status_code, named in answer.text) == (422, True), answer.text
    half_an_emoji = b'{"to": "ada", "text": "\\ud83e"}'
    as_json = {"content-type": "application/json"}
    answer = app.post("/reminders", content=half_an_emoji, headers=as_json)
    assert (answer.status_code, "text" in answer.text) == (422, True), answer.text
    assert "must be given" in app.patch("/reminders/x", json={}).text
    assert app.patch("/reminders/x", json={"deliver_after": "1s"}).status_code == 404

    broker.kill()
    assert app.get("/healthz").status_code == 503
    assert app.post("/reminders", json=reminder).status_code == 503
    broker.start()
    eventually(lambda: app.get("/healthz").status_code == 200, "the broker is back")
    assert app.post("/reminders", json=reminder).status_code == 201


def test_what_fails_comes_again_and_what_cannot_work_is_a_dead_letter(
    broker: BrokerProcess, start: Start, inbox: Path
) -> None:
    """An inbox that is away fails a reminder for now; a body that is none fails it for good."""
    inbox.parent.rmdir()
    start(*WORKER)
    with Producer(broker.endpoint, "other") as producer, AdminClient(broker.endpoint) as admin:
        producer.send(Message("reminders", b"hello", message_id="bad"))
        producer.send(Message("reminders", b'{"to": "ada", "text": "hello"}', message_id="good"))
        eventually(lambda: len(admin.dead_letters.groups()) == 1, "a dead letter")
        (dead,) = admin.dead_letters.dead(GROUP)
        assert dead.message_id == "bad"
        assert dead.reason.startswith("no reminder: Invalid JSON")
        eventually(lambda: any(admin.dead_letters.retries(GROUP)), "a retry")
        inbox.parent.mkdir()
        eventually(lambda: inbox.exists() and delivered(inbox) == ["hello"], "a retry succeeds")


def test_a_worker_that_is_stopped_finishes_what_it_has_begun(
    broker: BrokerProcess, start: Start, inbox: Path, tmp_path: Path
) -> None:
    """The other worker gets nothing twice: it was committed."""
    with closing(sqlite3.connect(inbox, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        worker = start(*WORKER)
        with Producer(broker.endpoint, "other") as producer:
            producer.send(Message("reminders", b'{"to": "ada", "text": "hello"}'))
        eventually(lambda: has_open(worker, inbox), "the delivery waits for the lock")
        worker.send_signal(signal.SIGTERM)
        log = tmp_path / "worker.consumer.log"
        eventually(lambda: "stopping" in log.read_text(), "it stops")
        other.execute("COMMIT")
    assert worker.wait(WAIT_S) == 0
    assert delivered(inbox) == ["hello"]
    assert [line.split()[3] for line in log.read_text().splitlines()][-2:] == [
        "delivered",
        "stopped",
    ]
    with AdminClient(broker.endpoint) as admin:
        status = admin.group(GROUP)
    assert status.members == ()
    assert all(each.committed_offset == each.max_offset for each in status.progress)


def delivered(inbox: Path) -> list[str]:
    """Empty also while the worker is about to make the table."""
    with closing(sqlite3.connect(inbox)) as database, suppress(sqlite3.OperationalError):
        return [text for (text,) in database.execute("SELECT text FROM inbox")]
    return []


def has_open(process: subprocess.Popen[str], file: Path) -> bool:
    links = Path(f"/proc/{process.pid}/fd").iterdir()
    return any(os.path.realpath(link) == str(file) for link in links)


def test_a_wrong_setting_stops_the_start() -> None:
    """Each one is named, also one that is misspelled."""
    wrong = {"REMINDERS_CONCURENCY": "3", "REMINDERS_STOP_SECONDS": "soon"}
    ended = subprocess.run(
        [sys.executable, "-m", "worker.consumer"],
        env=os.environ | wrong | {"PYTHONPATH": f"{ROOT}:{EXAMPLES}"},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert ended.returncode == 1
    assert sorted(line.split(": ")[0] for line in ended.stderr.splitlines()) == [
        "REMINDERS_CONCURENCY=3",
        "REMINDERS_STOP_SECONDS=soon",
    ]


def test_the_tests_install_what_the_example_asks_for() -> None:
    """Else they would try another version than a user gets."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = (EXAMPLES / "worker" / "requirements.txt").read_text("utf-8").splitlines()
    wanted = {line for line in lines if line and not line.startswith("#")}
    assert wanted <= {*extras["dev"], *extras["web"]}


def test_a_kubernetes_service_of_the_name_is_no_setting() -> None:
    """In a namespace with a Service named reminders, the kubelet sets these in every pod."""
    program = "from worker.settings import Settings; print(Settings.from_environment({links}))"
    links = {
        "REMINDERS_SERVICE_HOST": "10.0.0.7",
        "REMINDERS_SERVICE_PORT_HTTP": "80",
        "REMINDERS_PORT": "tcp://10.0.0.7:80",
        "REMINDERS_PORT_80_TCP_ADDR": "10.0.0.7",
    }
    for given, code in ((links, 0), (links | {"REMINDERS_PORTS": "80"}, 1)):
        command = [sys.executable, "-c", program.format(links=given)]
        done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, check=False)
        assert done.returncode == code, done.stderr
