"""The wheels: both work where they are installed, also in another Python, with their templates."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from rmqlite import __version__
from rmqlite.kernel.words.clock import pause_s
from tests.build_wheels import ROOT, build_wheels
from tests.support.broker_processes import OF_ANY_DISK

pytestmark = pytest.mark.xdist_group("wheels")

VERSIONS = range(11, 16)
FREE_PORTS = ("--listen-port", "0", "--grpc-port", "0", "--name-server-port", "0")
BUILT_FROM = ("LICENSE", "README.md", "conf", "pyproject.toml", "rmqlite")


def output_of(*command: object) -> str:
    return subprocess.run(
        [str(each) for each in command], check=True, stdout=subprocess.PIPE, text=True, timeout=900
    ).stdout


def other_python() -> str:
    """The newest other Python of this machine that rmqlite supports."""
    pyenv = sorted(Path.home().glob(".pyenv/versions/*/bin/python3"))
    named = [shutil.which(f"python3.{minor}") for minor in VERSIONS]
    found = {}
    for python in [*map(str, pyenv), *filter(None, named)]:
        asked = [python, "-c", "import sys, ensurepip; print(sys.version_info[1])"]
        ran = subprocess.run(asked, capture_output=True, text=True)
        if ran.returncode == 0 and int(ran.stdout) in VERSIONS:
            found[int(ran.stdout)] = python
    found.pop(sys.version_info[1], None)
    if not found:
        pytest.skip("there is no other Python on this machine")
    return found[max(found)]


@pytest.fixture(scope="module")
def wheels(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> tuple[Path, Path]:
    """Both wheels, built from a copy: a build writes into its source.

    Without --long there is no C compiler, as on many machines: that build takes a fifth as long.
    """
    root = tmp_path_factory.mktemp("wheels")
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("*.so", "__pycache__")
            shutil.copytree(ROOT / name, root / "source" / name, symlinks=True, ignore=ignored)
        else:
            (root / "source").mkdir(exist_ok=True)
            shutil.copy(ROOT / name, root / "source" / name)
    with pytest.MonkeyPatch.context() as patch:
        if pytestconfig.getoption("--long"):
            # What is compiled does not run here.
            patch.setenv("CFLAGS", "-O0 -g0")
        else:
            patch.setenv("CC", "false")
        # Nor is what builds it used again.
        patch.setenv("PIP_NO_COMPILE", "1")
        return build_wheels(root / "dist", root / "source")


def installed(bin: Path, *wanted: object) -> Path:
    """The command, after pip has installed this for the Python in a folder."""
    # Only what runs is compiled: to compile all that is installed takes ten times as long.
    pip = (sys.executable, "-m", "pip", "--python", bin / "python", "install", "--no-compile")
    output_of(*pip, "--quiet", "--disable-pip-version-check", *wanted)
    return bin / "rmqlite"


def test_the_wheel_for_every_python_runs_in_another_one(
    wheels: tuple[Path, Path], tmp_path: Path, is_long: bool
) -> None:
    """A compiled one is only for the Python that built it; pip takes whichever fits.

    Without --long it is this Python, with the packages that it has: pip is given the plain wheel.
    """
    env = tmp_path / "env"
    output_of(other_python() if is_long else sys.executable, "-m", "venv", "--without-pip", env)
    if is_long:
        found = ("--find-links", wheels[0].parent, f"rmqlite=={__version__}")
        rmqlite = installed(env / "bin", *found)
    else:
        rmqlite = installed(env / "bin", "--no-deps", wheels[1])
        (packages,) = env.glob("lib/python*/site-packages")
        (packages / "others.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    assert output_of(rmqlite, "--version") == f"rmqlite {__version__}\nplain\n"
    template = output_of(rmqlite, "broker", "--print-config")
    assert template == (ROOT / "conf" / "broker.conf").read_text("utf-8")
    assert output_of(rmqlite, "acl", "template")
    config, ready = tmp_path / "broker.conf", tmp_path / "ready"
    config.write_text("".join([f"{key}={value}\n" for key, value in OF_ANY_DISK.items()]))
    start = (rmqlite, "broker", "--config", config, "--store", tmp_path / "store")
    started = [str(each) for each in (*start, *FREE_PORTS, "--ready-file", ready)]
    with subprocess.Popen(started, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as broker:
        while not ready.exists():
            assert broker.poll() is None
            pause_s(0.01)
        endpoint = ("--endpoint", ready.read_text().split()[0])
        output_of(rmqlite, "send", "orders", "hello", *endpoint)
        shown = output_of(rmqlite, "consume", "orders", "--peek", "--json", *endpoint)
        broker.terminate()
    assert json.loads(shown)["body"] == "hello"
    assert broker.returncode == 0


@pytest.mark.long
def test_the_two_wheels_differ_in_the_compiled_library_only(wheels: tuple[Path, Path]) -> None:
    """Whichever pip takes, the store and every answer are the same."""
    built, plain = (set(ZipFile(wheel).namelist()) for wheel in wheels)
    assert plain <= built
    assert all("_loops" in name and name.endswith(".so") for name in built - plain)
    assert "rmqlite/conf/broker.conf" in plain
    assert wheels[1].name == f"rmqlite-{__version__}-py3-none-any.whl"
