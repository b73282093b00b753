"""The official clients, fetched by their own package managers and built into .cache/clients.

Maven brings the Java clients, and Spark's jars for S3; Go modules the Go client, and etcd; npm the
one for Node, pip the wheel that holds the C++ client, the gRPC client for Python, an S3 server, and
uvloop.
Without a tool chain its tests are skipped, and say so; with CI set and Maven or Go present they
must run.  What is built is used again until its sources change.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = ROOT / ".cache" / "clients"
SOURCES: Final = ROOT / "tests" / "conformance" / "clients"
GRPC: Final = SOURCES / "grpc"
S3A: Final = ROOT / "tests" / "spark" / "s3a"
JAVA_4: Final = "4.9.8"
JAVA_5: Final = "5.5.0"
"""RocketMQ 5's client for its remoting protocol."""
POP_CLIENT: Final = "5.3.2"
POP_TOOLS: Final = "5.3.3"
"""The client whose captured POP is replayed, and the mqadmin next to it that Maven has."""
WHEEL: Final = "rocketmq-client-python==0.5.0rc2"
UVLOOP: Final = "uvloop>=0.21,<1"
FETCH_S_MAX: Final = 600.0

SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of Java: a program of some seconds gets nothing back of what better compilers cost."""


def java(version: str = JAVA_4, client: str = "") -> list[str]:
    """The command of the Java client, without its arguments.

    client: its version, if it is not that of mqadmin.
    """
    return java_program(SOURCES / "java" / "Scenarios.java", version, client, options=SHORT_LIVED)


def java_program(
    source: Path, version: str = JAVA_4, client: str = "", *, options: tuple[str, ...] = ()
) -> list[str]:
    """The command of a program that uses the Java client, without its arguments.

    options: of Java.  Whatever measures has none: a slow client makes a fast broker look slow.
    """
    pom = SOURCES / "java" / "pom.xml"
    paths = classpath(pom, version, client)
    return _java_program(source, pom, paths, client or version, options)


def grpc_java() -> list[str]:
    """The command of the gRPC client for Java."""
    pom = GRPC / "java" / "pom.xml"
    source = GRPC / "java" / "Program.java"
    return _java_program(source, pom, classpath(pom), "grpc", SHORT_LIVED)


def _java_program(
    source: Path, pom: Path, paths: str, version: str, options: tuple[str, ...]
) -> list[str]:
    def build(folder: Path) -> None:
        quick = [f"-J{option}" for option in SHORT_LIVED]
        _run(["javac", *quick, "-proc:none", "-cp", paths, "-d", str(folder), str(source)], folder)

    folder = _built(f"java-{version}-{source.stem}", [source, pom], build)
    quiet = ["-Drocketmq.client.logLevel=ERROR", f"-Duser.home={folder}", "-Xmx512m"]
    return ["java", *options, *quiet, "-cp", f"{folder}:{paths}", source.stem]


def classpath(pom: Path, version: str = "", client: str = "", hadoop: str = "") -> str:
    """Everything that a pom.xml names, fetched by Maven, as a class path.

    version, client, hadoop: RocketMQ's, its client's and Hadoop's, if not those in the file.
    """
    options = [f"-Drocketmq.version={version}"] if version else []
    options += [f"-Dhadoop.version={hadoop}"] if hadoop else []
    options += [f"-Dclient.version={client}"] if client else []
    for tool in ("mvn", "javac", "java"):
        _needed(tool)

    def build(folder: Path) -> None:
        output = f"-Dmdep.outputFile={folder / 'classpath'}"
        goal = [*options, "dependency:build-classpath", output]
        _run(["mvn", "-q", "-B", "-f", str(pom), *goal], folder)

    name = "-".join(filter(None, ["maven", pom.parent.name, version, client, hadoop]))
    return (_built(name, [pom], build) / "classpath").read_text()


def go() -> list[str]:
    """The command of the Go client."""
    _needed("go", Path("/usr/local/go/bin"))
    return [str(_built("go", _files_in(SOURCES / "go"), _build_go) / "conformance")]


def etcd() -> Path:
    """The program of etcd; it takes two minutes to build."""
    _needed("go", Path("/usr/local/go/bin"))
    sources = ROOT / "tests" / "features" / "authority" / "etcd"
    return _built("etcd", _files_in(sources), partial(_build_etcd, sources)) / "etcd"


def cpp() -> list[str]:
    """The command of the C++ client, through its Python wheel."""
    folder = _built("cpp", _files_in(SOURCES / "cpp"), partial(_unpack, WHEEL))
    program = SOURCES / "cpp" / "scenarios.py"
    return ["env", f"PYTHONPATH={folder}", f"HOME={folder}", sys.executable, str(program)]


def grpc_python() -> list[str]:
    """The command of the gRPC client for Python, in an environment of its own."""
    folder = _environment("grpc-python", GRPC / "python" / "requirements.txt")
    python = str(folder / "bin" / "python")
    return ["env", f"HOME={folder}", python, str(GRPC / "python" / "program.py")]


def s3_server() -> list[str]:
    """The command of a server of S3's protocol, in an environment of its own.

    Not its script: that names a Python in the folder where it was built, before it was renamed.
    """
    folder = _environment("s3-server", S3A / "requirements.txt")
    return ["env", f"HOME={folder}", str(folder / "bin" / "python"), "-m", "moto.server"]


def pyspark(version: str) -> Path:
    """A folder with this version of Spark; on PYTHONPATH it comes before the installed one."""

    def build(folder: Path) -> None:
        install = ["install", "--quiet", "--no-deps", "--disable-pip-version-check"]
        target = ["--target", str(folder), f"pyspark=={version}"]
        _run([sys.executable, "-m", "pip", *install, *target], folder)

    return _built(f"pyspark-{version}", [], build)


def _spark_jars() -> list[Path]:
    import pyspark

    return [*(Path(pyspark.__file__).parent / "jars").iterdir()]


def hadoop_version() -> str:
    """That of the installed Spark's own Hadoop."""
    (jar,) = [jar for jar in _spark_jars() if _artifact(jar) == "hadoop-client-api"]
    return jar.stem.rpartition("-")[2]


def s3a_jars() -> list[Path]:
    """The jars that Spark needs for s3a, without those that it has."""
    own = {_artifact(jar) for jar in _spark_jars()}
    paths = classpath(S3A / "pom.xml", hadoop=hadoop_version())
    jars = [Path(jar) for jar in paths.split(os.pathsep)]
    return [jar for jar in jars if _artifact(jar) not in own]


def _artifact(jar: Path) -> str:
    """The name of a jar without its version."""
    return jar.name.rpartition("-")[0]


def _environment(name: str, requirements: Path) -> Path:
    """A virtual environment with these packages."""

    def build(folder: Path) -> None:
        # With our own pip, and without the byte code of modules that nobody imports.
        _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder)
        pip = ["-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--no-compile"]
        quiet = ["--quiet", "--disable-pip-version-check"]
        _run([sys.executable, *pip, *quiet, "-r", str(requirements)], folder)

    return _built(name, [requirements], build)


def grpc_node() -> list[str]:
    """The command of the gRPC client for Node."""
    package, node = GRPC / "node" / "package.json", _needed("node", must=True)

    def build(folder: Path) -> None:
        shutil.copy(package, folder)
        _run([_needed("npm", must=True), "install", "--silent", "--no-audit", "--no-fund"], folder)

    folder = _built("grpc-node", [package], build)
    program = str(GRPC / "node" / "program.js")
    return ["env", f"HOME={folder}", node, program, str(folder / "node_modules")]


def uvloop() -> Path:
    """A folder with uvloop, which a broker uses if it finds it."""
    return _built("uvloop", [], partial(_unpack, UVLOOP))


def _needed(tool: str, *others: Path, must: bool = False) -> str:
    """The path of a tool.  must: where CI is set, it fails without it."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, others)])
    found = shutil.which(tool, path=path)
    if found is None:
        sentence = f"{tool} is not installed: the official client that needs it is not tried"
        if must and os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    return found


def _files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _built(name: str, sources: Sequence[Path], build: Callable[[Path], None]) -> Path:
    """The folder with a client, built once for each version of its sources."""
    digest = hashlib.sha256(b"".join([path.read_bytes() for path in sources])).hexdigest()[:16]
    folder = CACHE / f"{name}-{digest}"
    if folder.exists():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    unfinished = CACHE / f"{name}-{digest}.{os.getpid()}"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        build(unfinished)
    except (subprocess.SubprocessError, OSError) as error:
        said = getattr(error, "stderr", None) or str(error)
        sentence = f"{name} cannot be fetched or built: {str(said)[-500:]}"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    try:
        unfinished.rename(folder)
    except OSError:
        # Another process was faster.
        shutil.rmtree(unfinished)
    return folder


def _build_go(folder: Path) -> None:
    tool = _needed("go", Path("/usr/local/go/bin"))
    _run([tool, "build", "-o", str(folder / "conformance"), "."], SOURCES / "go")


def _build_etcd(sources: Path, folder: Path) -> None:
    tool = _needed("go", Path("/usr/local/go/bin"))
    for each in _files_in(sources):
        shutil.copy(each, folder)
    # Its two hundred modules and their sums follow from the version.
    _run([tool, "mod", "tidy"], folder)
    _run([tool, "build", "-o", str(folder / "etcd"), "."], folder)


def _unpack(requirement: str, folder: Path) -> None:
    """Install a wheel into a folder of its own."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
    _run([*pip, "--no-compile", "--target", str(folder), requirement], folder)


def _run(command: list[str], folder: Path) -> None:
    # Maven runs for seconds, too.
    environment = {"MAVEN_OPTS": " ".join(SHORT_LIVED)} | os.environ
    subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=FETCH_S_MAX,
    )
