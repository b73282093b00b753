"""A standalone cluster of Spark: a master and two workers, each with an address of its own.

On the same host Spark would start no second attempt of a slow task.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from rmqlite.spark.session import java_home
from tests.support.broker_processes import free_port
from tests.support.eventually import eventually

_SPARK = Path(pyspark.__file__).parent
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
WORKERS = ("127.0.0.2", "127.0.0.3")


@contextmanager
def cluster(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """The master's address, when both workers are there; folder: for their work and their logs.

    environment: that of the workers, without ours.
    """
    java_home()
    base = dict(os.environ if environment is None else environment)
    base |= {"SPARK_DAEMON_JAVA_OPTS": _JAVA, "SPARK_DAEMON_MEMORY": "256m"}
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    log = folder / "cluster.log"
    with ExitStack() as stack:

        def start(role: str, host: str, *words: str) -> None:
            command = [str(_SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}"]
            named = base | {"SPARK_LOCAL_IP": host, "SPARK_WORKER_DIR": str(folder / "work")}
            with log.open("ab") as out:
                process = subprocess.Popen(
                    [*command, "--host", host, "--webui-port", "0", *words],
                    cwd=folder,
                    env=named,
                    stdout=out,
                    stderr=out,
                )
            stack.callback(process.wait)
            stack.callback(process.terminate)

        start("master.Master", "127.0.0.1", "--port", str(port))
        for host in WORKERS:
            start("worker.Worker", host, "--cores", "1", "--memory", "1g", master)
        there = "Registering worker 127.0.0."
        eventually(
            lambda: log.read_text(errors="replace").count(there) >= len(WORKERS),
            f"the workers are there, see {log}",
        )
        yield master
