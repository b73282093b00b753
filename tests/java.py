"""Java for the Spark tests, for tests/run.py: the one that is there, else one that is set up.

Asks rmqlite itself whether it would find a Java, so that tests and product agree.  A machine
that lets packages be installed gets its system's; any other gets one in .venv/java.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import environment

SYSTEM_PACKAGES = ("openjdk-21-jre-headless", "openjdk-17-jre-headless")
VERSION = "21"
FOUND = 0


def ensure(python: Path) -> None:
    """Raises SystemExit, with rmqlite's own sentence on what to install, if there is none."""
    if _why_not(python) is None:
        return
    if _is_root() and shutil.which("apt-get"):
        _install_package()
    if _why_not(python) is not None:
        _download(python)
    if (reason := _why_not(python)) is not None:
        raise SystemExit(f"the Spark tests need Java: {reason}")


def _why_not(python: Path) -> str | None:
    """What rmqlite says of the Java here; None when it has one."""
    code = (
        "from rmqlite.kernel.words.errors import RmqliteError\n"
        "from rmqlite.spark.session import java_home\n"
        "try: java_home()\n"
        "except RmqliteError as error: raise SystemExit(str(error))\n"
    )
    asked = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return None if asked.returncode == FOUND else asked.stderr.strip()


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _install_package() -> None:
    print("installing Java with apt-get; this takes a minute", flush=True)
    quiet = {"DEBIAN_FRONTEND": "noninteractive"} | os.environ
    subprocess.run(["apt-get", "update", "-qq"], env=quiet)
    for package in SYSTEM_PACKAGES:
        command = ["apt-get", "install", "-qq", "--no-install-recommends", "-y", package]
        if subprocess.run(command, env=quiet, capture_output=True).returncode == 0:
            return


def _download(python: Path) -> None:
    place = environment.VENV / "java"
    print(f"downloading Java {VERSION} into {environment.VENV.name}/{place.name}", flush=True)
    place.mkdir(exist_ok=True)
    installed = subprocess.run([python, "-m", "pip", "install", "--quiet", "install-jdk>=1.1,<2"])
    if installed.returncode == 0:
        code = f"import jdk; jdk.install({VERSION!r}, jre=True, path={str(place)!r})"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
        if done.returncode != 0:
            print(f"it cannot be downloaded: {done.stderr.strip().splitlines()[-1]}", flush=True)
