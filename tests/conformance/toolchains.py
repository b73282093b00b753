"""The official clients, fetched by their own package managers and built into .cache/clients.

Maven brings the Java client, Go modules the Go client, pip the wheel that holds the C++ client.
Without a tool chain its tests are skipped, and say so; with CI set and Maven or Go present they
must run.  What is built is used again until its sources change.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = ROOT / ".cache" / "clients"
SOURCES: Final = Path(__file__).parent / "clients"
WHEEL: Final = "rocketmq-client-python==0.5.0rc2"
FETCH_S_MAX: Final = 600.0


def java() -> list[str]:
    """The command of the Java client, without its arguments."""
    for tool in ("mvn", "javac", "java"):
        _needed(tool)
    folder = _built("java", _build_java)
    paths = (folder / "classpath").read_text()
    quiet = ["-Drocketmq.client.logLevel=ERROR", f"-Duser.home={folder}", "-Xmx512m"]
    return ["java", *quiet, "-cp", f"{folder}:{paths}", "Scenarios"]


def go() -> list[str]:
    """The command of the Go client."""
    _needed("go", Path("/usr/local/go/bin"))
    return [str(_built("go", _build_go) / "conformance")]


def cpp() -> list[str]:
    """The command of the C++ client, through its Python wheel."""
    folder = _built("cpp", _build_cpp)
    program = SOURCES / "cpp" / "scenarios.py"
    return ["env", f"PYTHONPATH={folder}", f"HOME={folder}", sys.executable, str(program)]


def _needed(tool: str, *others: Path) -> str:
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, others)])
    found = shutil.which(tool, path=path)
    if found is None:
        pytest.skip(f"{tool} is not installed: the official client that needs it is not tried")
    return found


def _built(name: str, build: Callable[[Path], None]) -> Path:
    """The folder with a client, built once for each version of its sources."""
    sources = sorted(path for path in (SOURCES / name).iterdir() if path.is_file())
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
        sentence = f"the {name} client cannot be fetched or built: {str(said)[-500:]}"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    try:
        unfinished.rename(folder)
    except OSError:
        # Another process was faster.
        shutil.rmtree(unfinished)
    return folder


def _build_java(folder: Path) -> None:
    pom = SOURCES / "java" / "pom.xml"
    output = f"-Dmdep.outputFile={folder / 'classpath'}"
    _run(["mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath", output], folder)
    paths = (folder / "classpath").read_text()
    program = SOURCES / "java" / "Scenarios.java"
    _run(["javac", "-cp", paths, "-d", str(folder), str(program)], folder)


def _build_go(folder: Path) -> None:
    tool = _needed("go", Path("/usr/local/go/bin"))
    _run([tool, "build", "-o", str(folder / "conformance"), "."], SOURCES / "go")


def _build_cpp(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
    _run([*pip, "--target", str(folder), WHEEL], folder)


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True, timeout=FETCH_S_MAX
    )
