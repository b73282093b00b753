"""The virtual environment that examples and tests run in; needs nothing but Python itself.

ensure() makes .venv beside pyproject.toml and installs this project into it.  A stamp file in
.venv lists the installed extras, so that the next call returns at once.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "rmqlite-installed.json"
VERSION_MIN = (3, 11)


def ensure(extras: str = "") -> Path:
    """The Python of an environment with this project and its extras ("dev") installed.

    Raises SystemExit, with a sentence for people, if it cannot make one.
    """
    if sys.version_info < VERSION_MIN:
        wanted = ".".join(map(str, VERSION_MIN))
        raise SystemExit(
            f"rmqlite needs Python {wanted} or newer; this is {sys.version.split()[0]}"
        )
    python = VENV / "bin" / "python"
    wanted_extras = {extra for extra in extras.split(",") if extra}
    works = _works(python)
    installed = _installed_extras() if works else None
    if installed is not None and wanted_extras <= installed:
        return python
    if not works:
        _make_venv()
    # Install all extras so far, so that the tools of a test run survive the next example.
    _install(python, sorted(wanted_extras | (installed or set())))
    return python


def _fingerprint() -> str:
    """Of what pip reads: the project's file, and the sources that it compiles."""
    sources = sorted((ROOT / "rmqlite" / "kernel" / "compiled").glob("*.[ch]"))
    read = [path.read_bytes() for path in (ROOT / "pyproject.toml", *sources)]
    return hashlib.sha256(b"".join(read)).hexdigest()


def _installed_extras() -> set[str] | None:
    try:
        stamp = json.loads(STAMP.read_text("utf-8"))
        # If a checkout is moved, the paths in its .venv lead nowhere.
        if stamp["pyproject"] == _fingerprint() and stamp["root"] == str(ROOT):
            return set(stamp["extras"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _works(python: Path) -> bool:
    try:
        return (
            subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0
        )
    except OSError:
        return False


def _make_venv() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            raise SystemExit(
                f"this Python {version} comes without its module {module}, which makes the "
                "virtual environment.\nOn Debian and Ubuntu install it with: "
                f"sudo apt install python{version}-venv (or python3-venv)"
            )
    print(f"making {VENV.name}/ with Python {version}", flush=True)
    # A new pip finds out what to install in half the time.
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", "--upgrade-deps", VENV])
    if made.returncode != 0:
        raise SystemExit("the virtual environment could not be made; see above")


def _install(python: Path, extras: list[str]) -> None:
    what = f".[{','.join(extras)}]" if extras else "."
    print(f"installing {what} into {VENV.name}/; the first time this takes a minute", flush=True)
    STAMP.unlink(missing_ok=True)
    pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    if not os.environ.get("PYTHONDONTWRITEBYTECODE"):
        # Modules are compiled when they are first imported: most of them never are.
        pip.append("--no-compile")
    installed = subprocess.run([*pip, "-e", what], cwd=ROOT)
    if installed.returncode != 0:
        raise SystemExit("the installation failed; see above")
    stamp = {"pyproject": _fingerprint(), "root": str(ROOT), "extras": extras}
    STAMP.write_text(json.dumps(stamp), "utf-8")
