"""On a cluster: a job whose executors have nothing of rmqlite but the zip, and lost executors.

Two workers of a standalone cluster.  The job's executors are started by a Python that has pyarrow,
numpy, grpcio, protobuf, sortedcontainers and no other package: not this source tree, which pip's
editable install would show to every other.  The driver is this Python, as on a cluster.  Without
--long there is no cluster: that Python alone does what a task does.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution
from pathlib import Path

import pyspark
import pytest

from rmqlite.client import AdminClient, PullConsumer
from rmqlite.spark.arrow.columns import columns_named
from rmqlite.spark.options import parse_options
from rmqlite.spark.session import java_home
from rmqlite.spark.sink.rows import SinkOptions
from rmqlite.spark.source import LogReader, spark_schema
from rmqlite.testing import BrokerProcess
from tests.spark.lost_executors import PARTITIONS, ROWS
from tests.spark.standalone import cluster
from tests.support.broker_processes import OF_ANY_DISK
from tests.support.stores import StoreUnderTest, new_record

ROOT = Path(__file__).resolve().parents[2]
_SPARK = Path(pyspark.__file__).parent
SUBMITTED = ROOT / "examples" / "pipeline" / "submit.py"
QUICK = {
    "spark.ui.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # Not before both executors are there.
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
DRIVER = """
import runpy
import sys
from pyspark.sql import functions as F
from rmqlite.spark.bulk import bulk_schedule
from rmqlite.spark.jobs.dead_letters import read_export
from rmqlite.spark.jobs.running import running_session

endpoint, export, submitted = sys.argv.pop(1), sys.argv.pop(1), sys.argv[1]
with running_session("driver") as spark:
    sys.argv = sys.argv[1:]
    try:
        runpy.run_path(submitted, run_name="__main__")
    except SystemExit as end:
        assert not end.code
    letters = read_export(spark, export)
    place = F.concat_ws(":", "topic", "queue_id", "queue_offset")
    rows = letters.select(
        F.col("origin_topic").alias("topic"),
        "body",
        "tags",
        "keys",
        F.concat(F.lit("redrive:"), place).alias("message_key"),
    )
    done = bulk_schedule(rows, endpoint=endpoint)
    print(done.accepted, done.duplicates, done.refused)
"""
"""Runs a job as it is submitted, then sends what it has exported."""
TASK = """
import pickle
import sys
from rmqlite.spark.sink.sink import send

with open(sys.argv[1], "rb") as planned:
    reader, partitions, options = pickle.load(planned)
rows = (batch for each in partitions for batch in reader.read(each))
print(send(rows, options, job_id="zip", id_prefix="zip:0").messages)
"""
"""What executors do of a read and of a write."""
EXECUTORS_HAVE = ("pyarrow", "numpy", "grpcio", "protobuf", "sortedcontainers", "typing_extensions")


def executor_python(folder: Path) -> Path:
    """A Python that on executors sees these packages only, and on the driver is this one.

    Spark takes the same name for both; only executors are told where their folders are.
    """
    packages = folder / "packages"
    packages.mkdir()
    for name in EXECUTORS_HAVE:
        files = distribution(name).files or []
        for top in sorted({file.parts[0] for file in files if ".." not in file.parts}):
            link = packages / top
            if not link.exists():
                link.symlink_to(Path(str(distribution(name).locate_file(top))))
    script = folder / "python"
    script.write_text(
        "#!/bin/sh\n"
        f'[ -n "$SPARK_EXECUTOR_DIRS" ] || exec {sys.executable} "$@"\n'
        f'export PYTHONPATH="$PYTHONPATH:{packages}"\n'
        f"echo started >> {folder}/executors\n"
        f'exec {sys.executable} -S "$@"\n'
    )
    script.chmod(0o755)
    return script


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The cluster's address; a driver says which Python its executors run."""
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder, surroundings(Path(sys.executable))) as master:
        yield master


def surroundings(python: Path, **more: str) -> dict[str, str]:
    """Nothing of where the tests run."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    home = java_home() or os.environ.get("JAVA_HOME", "")
    java = {"JAVA_HOME": home} if home else {}
    return kept | java | {"PYSPARK_PYTHON": str(python), "COLUMNS": "80"} | more


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """A store with 500 dead letters."""
    store = StoreUnderTest(tmp_path / "store", log_file_bytes=1 << 15)
    origin = {"RETRY_TOPIC": "orders", "UNIQ_KEY": "ID"}
    store.append(*[new_record(f"{n}", "%DLQ%billing", properties=origin) for n in range(500)])
    store.close()
    return store.root


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """The zip."""
    made = tmp_path / "rmqlite.zip"
    zip_it = [sys.executable, "-m", "zipfile", "-c", str(made), "rmqlite"]
    subprocess.run(zip_it, cwd=ROOT, check=True)
    return made


def test_the_zip_is_all_of_ours_that_an_executor_needs(
    letters: Path, shipped: Path, tmp_path: Path
) -> None:
    """Its Python reads a store as the driver has planned it, and sends that to a broker."""
    python = executor_python(tmp_path)
    spark = sorted(map(str, (_SPARK / "python" / "lib").glob("*.zip")))

    def run(program: str, *words: object, zips: Sequence[str]) -> tuple[str, str]:
        path = {"PYTHONPATH": ":".join(zips)}
        ran = subprocess.run(
            [str(each) for each in (python, "-c", program, *words)],
            env=surroundings(python, SPARK_EXECUTOR_DIRS="here") | path,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        return ran.stdout, ran.stderr

    _, error = run("import pyarrow, numpy, grpc, google.protobuf; import rmqlite", zips=spark)
    assert error.splitlines()[-1] == "ModuleNotFoundError: No module named 'rmqlite'"
    with BrokerProcess(tmp_path / "broker", OF_ANY_DISK) as broker:
        with AdminClient(broker.endpoint) as admin:
            admin.create_topic("orders")
        reader = LogReader(
            parse_options({"path": str(letters), "columns": "body"}),
            spark_schema(columns_named("body")),
        )
        options = SinkOptions(endpoint=broker.endpoint, topic="orders")
        planned = tmp_path / "planned"
        planned.write_bytes(pickle.dumps((reader, reader.partitions(), options)))
        sent = run(TASK, planned, zips=[str(shipped), *spark])
        assert sent == ("500\n", "")
        assert bodies(broker.endpoint, "orders") == Counter(b"%d" % n for n in range(500))


@pytest.mark.long
def test_a_job_and_the_sink_run_on_a_cluster_with_the_zip_alone(
    master: str, letters: Path, shipped: Path, tmp_path: Path
) -> None:
    """Two executors read a store into an export, and send what the export has to a broker."""
    python = executor_python(tmp_path)
    driver, export = tmp_path / "driver.py", str(tmp_path / "export")
    driver.write_text(DRIVER)
    with BrokerProcess(tmp_path / "broker", {"diskSpaceWarningLevelRatio": "100"}) as broker:
        with AdminClient(broker.endpoint) as admin:
            admin.create_topic("orders")
        submit = _SPARK / "bin" / "spark-submit"
        settings = [f"--conf={name}={value}" for name, value in QUICK.items()]
        job = ["dlq-export", "--path", str(letters), "--output", export]
        options = ["--master", master, "--py-files", str(shipped), *settings]
        done = subprocess.run(
            [submit, *options, driver, broker.endpoint, export, SUBMITTED, *job],
            env=surroundings(python),
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        # spark-submit makes one stream of the driver's two.
        assert f"500 added to {export}, 0 were there already" in done.stdout
        assert done.stdout.splitlines()[-1] == "500 0 0"
        with AdminClient(broker.endpoint) as admin:
            ranges = admin.ranges("orders")
    assert sum(each.max_offset - each.min_offset for each in ranges) == 500
    assert (tmp_path / "executors").read_text().count("started") >= 2


def bodies(endpoint: str, topic: str) -> Counter[bytes]:
    """All messages of a topic."""
    with AdminClient(endpoint) as admin, PullConsumer(endpoint, "readers") as consumer:
        found = Counter[bytes]()
        for each in admin.ranges(topic):
            at = each.min_offset
            while at < each.max_offset:
                pulled = consumer.pull(topic, each.queue.queue_id, at)
                found.update(message.body.split()[0] for message in pulled.messages)
                at = pulled.next_offset
    return found


@pytest.mark.long
def test_every_row_is_sent_once_whatever_becomes_of_its_executor(
    master: str, tmp_path: Path
) -> None:
    """SIGKILL in the middle of the sink's write, and two attempts of a task at once: the ids, made
    of partition and row, are the same, so the broker knows what it has.
    """
    marks = tmp_path / "marks"
    marks.mkdir()
    with BrokerProcess(tmp_path / "broker", OF_ANY_DISK) as broker:
        with AdminClient(broker.endpoint) as admin:
            admin.create_topic("lost")
        driver = [sys.executable, "-m", "tests.spark.lost_executors", broker.endpoint, str(marks)]
        done = subprocess.run([*driver, master], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3_000:]
        assert {each.name for each in marks.iterdir()} == {"killed", "speculated"}
        with AdminClient(broker.endpoint) as admin:
            job = admin.job("lost")
        sent = bodies(broker.endpoint, "lost")
    assert job.accepted == PARTITIONS * ROWS
    assert job.duplicates > ROWS // 5, "few rows were sent again: this shows little"
    assert sent == Counter({str(number).encode(): 1 for number in range(PARTITIONS * ROWS)})
