"""A feature without its packages says what to install; the broker itself needs none of them."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from rmqlite.extras import EXTRAS, Versions, check_extra
from rmqlite.kernel.words.errors import ExtraMissing

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def needs(monkeypatch: pytest.MonkeyPatch, name: str, low: int, above: int) -> None:
    """From here on, the extra "top" is this package."""
    wanted: dict[str, Versions] = {name: ((low,), (above,))}
    monkeypatch.setitem(EXTRAS, "top", wanted)


def test_an_absent_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, not in a stack trace."""
    check_extra("top")
    needs(monkeypatch, "no-such-package", 1, 2)
    with pytest.raises(ExtraMissing, match=r'found none: pip install "rmqlite\[top\]"'):
        check_extra("top")


@pytest.mark.parametrize(("low", "above"), [(9999, 10000), (0, 1)])
def test_a_package_of_a_wrong_version_is_named(
    monkeypatch: pytest.MonkeyPatch, low: int, above: int
) -> None:
    """An old one fails far from its cause, a new one perhaps silently."""
    needs(monkeypatch, "textual", low, above)
    found = version("textual")
    with pytest.raises(ExtraMissing, match=f"textual {low} or newer, .* found {found}"):
        check_extra("top")


def test_a_package_that_pip_does_not_know_of_is_found_by_its_import(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """spark-submit brings pyspark in a folder of its own."""
    (tmp_path / "unpacked_spark.py").write_text('__version__ = "4.2.1"\n')
    monkeypatch.syspath_prepend(tmp_path)
    needs(monkeypatch, "unpacked_spark", 4, 5)
    check_extra("top")
    needs(monkeypatch, "unpacked_spark", 5, 6)
    with pytest.raises(ExtraMissing, match=r"found 4\.2\.1"):
        check_extra("top")


def test_versions_are_those_of_the_project_file() -> None:
    """Two places say them: pip's and ours."""
    pins = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    for extra, wanted in EXTRAS.items():
        for name, (low, above) in wanted.items():
            pin = f"{name}>={'.'.join(map(str, low))},<{'.'.join(map(str, above))}"
            assert pin in pins[extra] + pins["arrow"]
