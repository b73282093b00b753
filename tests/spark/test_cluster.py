"""A job on a cluster: its executors have nothing of rmqlite but the zip that is shipped.

Two executors as processes of their own, started by a Python that has pyarrow, numpy, grpcio,
protobuf, sortedcontainers and no other package: not this source tree, which pip's editable
install would show to every other.  The driver is this Python, as on a cluster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pyspark

from rmqlite.cli.bench.process import BrokerProcess
from rmqlite.client import AdminClient, Message, Producer
from rmqlite.spark.session import java_home
from tests.support.stores import StoreUnderTest, new_record

ROOT = Path(__file__).resolve().parents[2]
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


def surroundings(python: Path, **more: str) -> dict[str, str]:
    """Nothing of where the tests run."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    home = java_home() or os.environ.get("JAVA_HOME", "")
    java = {"JAVA_HOME": home} if home else {}
    return kept | java | {"PYSPARK_PYTHON": str(python), "COLUMNS": "80"} | more


def test_a_job_runs_on_a_cluster_with_the_zip_alone(tmp_path: Path) -> None:
    """Store, job and sink at once: dead letters are read and sent again by two executors."""
    store = StoreUnderTest(tmp_path / "store", log_file_bytes=1 << 15)
    origin = {"RETRY_TOPIC": "orders", "UNIQ_KEY": "ID"}
    store.append(*[new_record(f"{n}", "%DLQ%billing", properties=origin) for n in range(500)])
    store.close()
    python = executor_python(tmp_path)
    bare = surroundings(python, SPARK_EXECUTOR_DIRS="here")
    found = subprocess.run(
        [python, "-c", "import pyarrow, numpy, grpc, google.protobuf; import rmqlite"],
        env=bare,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert found.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'rmqlite'"

    shipped = tmp_path / "rmqlite.zip"
    zip_it = [sys.executable, "-m", "zipfile", "-c", str(shipped), "rmqlite"]
    subprocess.run(zip_it, cwd=ROOT, check=True)
    with BrokerProcess(tmp_path / "broker", {"diskSpaceWarningLevelRatio": "100"}) as broker:
        with Producer(broker.endpoint, "shop") as producer:
            producer.send(Message("orders", b"creates the topic"))
        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        settings = [f"--conf={name}={value}" for name, value in QUICK.items()]
        options = ["--master", "local-cluster[2,1,1024]", "--py-files", str(shipped), *settings]
        job = ["dlq-redrive", "--path", str(store.root), "--to", broker.endpoint]
        done = subprocess.run(
            [submit, *options, SUBMITTED, *job, "--no-check-log", "--json"],
            env=surroundings(python),
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        # spark-submit makes one stream of the driver's two.
        told = json.loads(done.stdout[done.stdout.index("{\n") :])
        assert {**told["job"], "job_id": ""} == {
            "job_id": "",
            "accepted": 500,
            "duplicates": 0,
            "refused": 0,
        }
        with AdminClient(broker.endpoint) as admin:
            ranges = admin.ranges("orders")
        assert sum(each.max_offset - each.min_offset for each in ranges) == 501
    assert (tmp_path / "executors").read_text().count("started") >= 2
