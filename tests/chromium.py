"""Chromium for the tests of the web page: the one that is there, else one that is set up.

A machine that lets packages be installed gets its system's; on any other the tests that need
it are skipped, and say so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

SYSTEM_PACKAGES = ("chromium", "chromium-driver")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVERS = ("chromedriver", "chromium.chromedriver")
INSTALL = f"install {' and '.join(SYSTEM_PACKAGES)} (Debian's names), and have both on PATH"


class Chromium(NamedTuple):
    """The browser and the program that drives it."""

    browser: Path
    driver: Path


def found() -> Chromium | None:
    """What is on PATH; None unless both are."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = next(filter(None, map(shutil.which, DRIVERS)), None)
    return Chromium(Path(browser), Path(driver)) if browser and driver else None


def ensure() -> None:
    """Install it where that is possible; else say what will not be tested."""
    if found() is None and _is_root() and shutil.which("apt-get"):
        _install_packages()
    if found() is None:
        print(f"no Chromium: the tests of the web page in a browser are skipped; {INSTALL}")


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _install_packages() -> None:
    print("installing Chromium with apt-get; this takes a minute", flush=True)
    quiet = {"DEBIAN_FRONTEND": "noninteractive"} | os.environ
    subprocess.run(["apt-get", "update", "-qq"], env=quiet)
    command = ["apt-get", "install", "-qq", "--no-install-recommends", "-y", *SYSTEM_PACKAGES]
    subprocess.run(command, env=quiet, capture_output=True)
