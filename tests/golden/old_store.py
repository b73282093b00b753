"""How the archives rmqlite-VERSION.tar.xz were made: by an old version's own broker and client.

PYTHONPATH=SOURCES python old_store.py VERSION, where SOURCES are those of that version.  The
archive holds `clean`, which its broker closed, and `killed`, whose broker got a SIGKILL after it
had stored the same messages.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
from pathlib import Path
from typing import Any

MIB = 1 << 20
CONF = f"""storePathRootDir={{store}}
listenPort=18911
maxMessageSize=65536
mappedFileSizeCommitLog={MIB}
mappedFileSizeConsumeQueue=60000
maxHashSlotNum=100
maxIndexNum=400
"""


def main(version: str) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        tarfile.open(f"rmqlite-{version}.tar.xz", "w:xz") as archive,
    ):
        for name, end in (("clean", signal.SIGTERM), ("killed", signal.SIGKILL)):
            store = Path(folder, name)
            run(store, end, "grpcPort=18912\n" if version != "0.5.0" else "")
            (store / "lock").unlink(missing_ok=True)
            archive.add(store, f"rmqlite-{version}/{name}")


def run(store: Path, end: signal.Signals, more: str) -> None:
    conf, ready = store.with_suffix(".conf"), store.with_suffix(".ready")
    conf.write_text(CONF.format(store=store) + more)
    command = [sys.executable, "-m", "rmqlite", "broker", "--config", str(conf)]
    command += ["--ready-file", str(ready)]
    broker = subprocess.Popen(command)
    while not ready.exists():
        threading.Event().wait(0.1)
    fill(ready.read_text().split()[0])
    broker.send_signal(end)
    broker.wait()


def fill(endpoint: str) -> None:
    """12 orders, 5 of them consumed; 3 messages wait, one is cancelled; a retry; dead letters."""
    client: Any = __import__("rmqlite.client").client
    with client.AdminClient(endpoint) as admin, client.Producer(endpoint, "shop") as producer:
        admin.create_topic("orders", queues=1)
        admin.set_group("strict", max_reconsume_times=0)
        for number in range(12):
            message = client.Message("orders", b"order %d" % number, keys=f"k{number}", tags="new")
            producer.send(message)
        for number, level in enumerate((1, 17, 18, 18)):
            sent = producer.send(client.Message("orders", b"later %d" % number, delay_level=level))
        producer.cancel(sent.message_id, "orders")
        threading.Event().wait(2)
        for number in range(3):
            producer.send(client.Message("bills", b"bill %d" % number, keys=f"b{number}"))
        fail(client, endpoint, "strict", "bills", 3)
        fail(client, endpoint, "slow", "bills", 3)
        command = ("dlq", "redrive", "strict", "--key", "b0", "--yes", "--endpoint", endpoint)
        subprocess.run([sys.executable, "-m", "rmqlite", *command], check=True)
        with client.PullConsumer(endpoint, "readers") as consumer:
            (queue,) = consumer.queues("orders")
            consumer.commit(queue, 5)
    threading.Event().wait(1)


def fail(client: Any, endpoint: str, group: str, topic: str, count: int) -> None:
    seen = []

    def listen(message: Any) -> Any:
        seen.append(message)
        return client.reconsume_later(reason="no money")

    with client.PushConsumer(endpoint, group, listen) as consumer:
        consumer.subscribe(topic)
        consumer.start()
        while len(seen) < count:
            threading.Event().wait(0.1)
        threading.Event().wait(1)


if __name__ == "__main__":
    main(sys.argv[1])
