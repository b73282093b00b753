"""Three hundred orders through a real broker: on time, retried, done or dead.

The demo starts a broker on a temporary store, two consumers of one group and a producer, each a
process of its own.  It watches them, and checks that every order ended exactly once.  The exit
code is 0 if every order did.  --keep FOLDER keeps the store, to look at it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final

from rich.console import Console
from rich.text import Text

from orders.ledger import Ledger
from orders.order import GROUP, TOPIC, read_orders
from orders.view import View, print_dead_letters, print_levels
from rmqlite.client import AdminClient, PullConsumer, StoredMessage
from rmqlite.kernel.requests.broker import BrokerStatus
from rmqlite.kernel.words.names import dlq_topic

CONF: Final = Path(__file__).resolve().parents[2] / "conf" / "demo.conf"
SECONDS_MAX: Final = 90.0
START_SECONDS_MAX: Final = 20.0
CONSUMERS: Final = 2
Events = queue.SimpleQueue[dict[str, Any]]


@contextlib.contextmanager
def running(
    command: list[str], log: IO[str], events: Events | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start a process; its lines of JSON become events.  It gets SIGTERM at the end."""
    stdout = log if events is None else subprocess.PIPE
    process = subprocess.Popen([sys.executable, *command], stdout=stdout, stderr=log, text=True)

    def listen() -> None:
        assert process.stdout is not None
        assert events is not None
        for line in process.stdout:
            events.put(json.loads(line))

    listener = threading.Thread(target=listen, daemon=True)
    if events is not None:
        listener.start()
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if events is not None:
            listener.join()
            assert process.stdout is not None
            process.stdout.close()


@contextlib.contextmanager
def log_file(folder: Path) -> Iterator[IO[str]]:
    """The log file of all processes, which keeps the view clean; shown if we give up."""
    path = folder / "demo.log"
    with path.open("w") as log:
        try:
            yield log
        except GaveUp:
            sys.stderr.write(path.read_text())
            raise


class GaveUp(SystemExit):
    """The demo cannot go on."""


def wait_for(is_so: Callable[[], bool], what: str, *processes: subprocess.Popen[str]) -> None:
    """Wait until is_so() is true; give up if one of the processes has ended."""
    until = time.monotonic() + START_SECONDS_MAX
    while not is_so():
        if time.monotonic() > until or any([p.poll() is not None for p in processes]):
            raise GaveUp(f"gave up waiting for {what}")
        time.sleep(0.02)


@contextlib.contextmanager
def broker(folder: Path, log: IO[str]) -> Iterator[str]:
    """Start a broker process on a store in folder; yields its endpoint."""
    ready = folder / "ready"
    command = ["-m", "rmqlite", "broker", "--config", str(CONF), "--ready-file", str(ready)]
    with running([*command, "--store", str(folder / "store")], log) as process:
        wait_for(ready.exists, "the broker", process)
        yield ready.read_text().split()[0]


def share_queues(admin: AdminClient) -> bool:
    """Do both consumers read queues of the topic?"""
    if GROUP not in [each.group for each in admin.list_groups()]:
        return False
    progress = admin.group(GROUP).progress
    return len({p.client_id for p in progress if p.queue.topic == TOPIC} - {""}) == CONSUMERS


def watch(
    console: Console, endpoint: str, admin: AdminClient, ledger: Ledger, log: IO[str]
) -> BrokerStatus:
    """Run the consumers and the producer until every order has ended or the time is up."""
    events = Events()
    with contextlib.ExitStack() as stack:
        consumers = [
            stack.enter_context(running(["-m", "orders.consumer", endpoint], log, events))
            for _ in range(CONSUMERS)
        ]
        wait_for(lambda: share_queues(admin), "the consumers to share the queues", *consumers)
        producer = stack.enter_context(running(["-m", "orders.producer", endpoint], log, events))
        view = stack.enter_context(View(console, endpoint))
        until = time.monotonic() + SECONDS_MAX
        while True:
            with contextlib.suppress(queue.Empty):
                while True:
                    ledger.add(events.get_nowait())
            status = admin.broker_status()
            view.show(ledger, status)
            is_over = ledger.done.total() + status.dead >= len(ledger.orders)
            if is_over or time.monotonic() > until:
                break
            if any([process.poll() for process in (producer, *consumers)]):
                raise GaveUp("a process of the demo failed")
            time.sleep(0.15)
    # The events that the consumers wrote while they were stopping.
    with contextlib.suppress(queue.Empty):
        while True:
            ledger.add(events.get_nowait())
    return admin.broker_status()


def dead_letters(endpoint: str) -> list[StoredMessage]:
    """All messages in the group's dead-letter queue."""
    found: list[StoredMessage] = []
    at, end = 0, 1
    with PullConsumer(endpoint, "order-audit") as consumer:
        while at < end:
            pulled = consumer.pull(dlq_topic(GROUP), 0, at)
            found += pulled.messages
            at, end = pulled.next_offset, pulled.max_offset
    return sorted(found, key=lambda message: message.keys)


def kept_folder() -> Path | None:
    """What --keep names: a new folder, else the command ends.  None without it."""
    parser = argparse.ArgumentParser(description="Three hundred orders through a real broker.")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="keep the store, to look at it")
    folder: Path | None = parser.parse_args().keep
    if folder is not None:
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            parser.error(f"--keep {folder}: a folder that can be made, but {error.strerror}")
    return folder


@contextlib.contextmanager
def folder_of(kept: Path | None) -> Iterator[Path]:
    """Where the broker has its store."""
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="rmqlite-demo-") as folder:
        yield Path(folder)


def how_to_look(kept: Path | None) -> str:
    """The commands that show what the demo has left."""
    if kept is None:
        return "--keep FOLDER keeps the store, and says how to look at it."
    rmqlite, conf, store = [
        os.path.relpath(each)
        for each in (Path(sys.executable).with_name("rmqlite"), CONF, kept / "store")
    ]
    return (
        f"To look at what is left:\n"
        f"  {rmqlite} broker --config {conf} --store {store} --grpc-port 8081 &\n"
        f"  {rmqlite} dlq show {GROUP}\n"
        f"  {rmqlite} top"
    )


def main() -> int:
    kept = kept_folder()
    console = Console(highlight=False)
    ledger = Ledger(read_orders())
    console.print(
        f"[bold]rmqlite demo[/]: {len(ledger.orders)} orders of examples/orders.csv, one broker,"
        f" one producer,\n{CONSUMERS} consumers in one group, each a process of its own."
    )
    console.print(
        "conf/demo.conf has short levels: a retry takes 1 s, not RocketMQ's 10 s to 2 h,\n"
        "so an order that always fails is dead after 17 s instead of 4 h 46 min.\n",
        soft_wrap=True,
    )
    with (
        folder_of(kept) as folder,
        log_file(folder) as log,
        broker(folder, log) as endpoint,
        AdminClient(endpoint) as admin,
    ):
        admin.create_topic(TOPIC)
        status = watch(console, endpoint, admin, ledger, log)
        dead = dead_letters(endpoint) if status.dead else []
    console.print(
        "\n[bold]delay levels, and timers[/]: late is store time in the topic - deliver time\n"
    )
    print_levels(console, status.levels)
    console.print(f"\n[bold]dead letters[/] in {dlq_topic(GROUP)}\n")
    print_dead_letters(console, dead)
    problems = ledger.problems(dead)
    for problem in problems:
        console.print(Text(f"wrong: {problem}", style="red"))
    if problems:
        console.print(f"\n[bold red]{len(problems)} problems[/]")
        return 1
    console.print(
        f"\n[bold green]every order is accounted for exactly once[/]:"
        f" {len(ledger.done)} done, {len(dead)} dead, {ledger.deliveries.total()} deliveries"
    )
    console.print(f"\n{how_to_look(kept)}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
