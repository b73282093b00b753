"""The pages agree with the code: links, commands, options, keys, metrics, examples.

A page that names a command which is gone, or a key that is spelled another way, is a bug that
no other test sees.  The changelog is left out where names are compared: it says what was.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from pathlib import Path

import pytest

import rmqlite
from rmqlite.features.accounts.reading import ACCOUNT_KEYS, FILE_KEYS
from rmqlite.kernel.config.config import KEYS
from rmqlite.kernel.config.values import WITHOUT_MEANING
from rmqlite.spark import options
from rmqlite.spark.sink import rows as sink_options
from tests.support.brokers import BrokerUnderTest
from tests.support.commands import COMMANDS, leaves, options_of, wrong_with
from tests.support.documents import ROOT, Page, pages, spans_of
from tests.support.scrape import scrape

BYTES_MAX = {"README.md": 16 << 10, "rmqlite/README.md": 12 << 10}
PAGES = pages()
CHANGELOG = "rmqlite/CHANGELOG.md"
OF_TODAY = [page for page in PAGES if page.name != CHANGELOG]
BY_NAME = {page.name: page for page in PAGES}
CLI = BY_NAME["rmqlite/cli/README.md"]
OPTIONS_OF_OTHERS = {
    "--alone",
    "--archives",
    "--calls",
    "--compare",
    "--concurrency",
    "--every-client",
    "--every-spark",
    "--feature",
    "--flush",
    "--growth",
    "--keep",
    "--long",
    "--messages",
    "--no-deps",
    "--only-rmqlite",
    "--parked",
    "--pending",
    "--plot",
    "--py-files",
    "--repeat",
    "--rocketmq",
    "--scale",
    "--seconds",
    "--seed",
    "--sync-ms",
    "--timers",
    "--together",
    "--turns",
}
"""Of the demo, tests/run.py and the benchmarks; Celery's, pip's and spark-submit's."""
CAMEL_CASE_OF_OTHERS = {
    "preparedTransactionOffset",
    "rmqliteRetryPolicy",
    "pollNameServerInterval",
    "updateTopic",
    "timerPrecisionMs",
    "mappedFileSizeTimerLog",
    "timerRocksDBEnable",
    "recallMessage",
    "setDelayTimeMs",
    "setDelayTimeSec",
    "setDeliverTimeMs",
    "orderMessageEnable",
    "readStream",
    "writeStream",
    "availableNow",
    "maxReceiveCount",
}
"""Names in code spans that look like keys: RocketMQ's fields, commands and its own keys, Spark's
methods, and what SQS has."""
CAMEL_CASE = re.compile(r"[a-z]+[A-Z]\w*")
TREES = ("conf/", "examples/", "proto/", "tests/")


LEAVES = dict(leaves())
NOUNS = {path.split()[0] for path in LEAVES if " " in path}


EVERY_OPTION = set().union(options_of(COMMANDS), *map(options_of, LEAVES.values()))


def _differences(there: set[str], on_the_page: set[str]) -> str:
    """A line for each; empty if there is none."""
    missing = [f"not on the page: {each}" for each in sorted(there - on_the_page)]
    return "\n".join(missing + [f"gone: {each}" for each in sorted(on_the_page - there)])


def test_readme_is_short() -> None:
    """For somebody new to rmqlite, and somebody new to its code; the rest has pages of its own."""
    sizes = {name: len((ROOT / name).read_bytes()) for name in BYTES_MAX}
    assert not {name: size for name, size in sizes.items() if size > BYTES_MAX[name]}


def test_every_link_leads_somewhere() -> None:
    """A file that exists, and a heading that is in it."""
    dead = []
    for page in PAGES:
        for link in page.links:
            path, _, anchor = link.partition("#")
            target = ((ROOT / page.name).parent / path).resolve() if path else ROOT / page.name
            if not target.exists() or not target.is_relative_to(ROOT):
                dead.append(f"{page.name}: {link}: there is no such file")
            elif anchor and anchor not in BY_NAME[str(target.relative_to(ROOT))].anchors:
                dead.append(f"{page.name}: {link}: there is no such heading")
    assert not dead, "\n".join(dead)


def test_every_file_of_the_repository_that_is_named_exists() -> None:
    """Such as a test that shows how a promise is kept."""
    gone = [
        f"{page.name}: {span}"
        for page in PAGES
        for span in page.spans
        if span.startswith(TREES) and " " not in span and not (ROOT / span).exists()
    ]
    gone += [
        f"rmqlite/README.md: {span}"
        for span in BY_NAME["rmqlite/README.md"].spans
        if re.fullmatch(r"\w+/\w+\.py", span)
        and not ((ROOT / "rmqlite" / span).exists() or (ROOT / span).exists())
    ]
    assert not gone, "\n".join(gone)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples_compile_and_import_what_exists(page: Page) -> None:
    """The first thing that a reader copies."""
    wrong = []
    for code in page.fences("python"):
        tree = ast.parse(code, page.name)
        compile(tree, page.name, "exec")
        wrong += [
            f"from {each.module} import {alias.name}"
            for each in ast.walk(tree)
            if isinstance(each, ast.ImportFrom)
            for alias in each.names
            if not _is_there(each.module or "", alias.name)
        ]
    assert not wrong, "\n".join(wrong)


def _is_there(module: str, name: str) -> bool:
    if hasattr(importlib.import_module(module), name):
        return True
    return importlib.util.find_spec(f"{module}.{name}") is not None


@pytest.mark.parametrize("page", OF_TODAY, ids=lambda page: page.name)
def test_every_command_that_is_named_exists(page: Page) -> None:
    """With its options; also where a page writes `group set` for `rmqlite group set`."""
    wrong = [each for words in page.commands() for each in wrong_with(words)]
    for span in page.spans:
        words = span.split()
        if words[0] in NOUNS and len(words) > 1:
            wrong += wrong_with(words)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", OF_TODAY, ids=lambda page: page.name)
def test_every_option_that_is_named_exists(page: Page) -> None:
    """Where a page names an option alone, it is one of some command."""
    used = {word.split("=")[0] for span in page.spans for word in span.split() if word[:2] == "--"}
    unknown = sorted(used - EVERY_OPTION - OPTIONS_OF_OTHERS)
    assert not unknown, f"no command has {', '.join(unknown)}"


def test_the_command_line_page_lists_every_command() -> None:
    """In one table, a row for each noun: the first code span is whole, the others are verbs."""
    listed = set()
    for first, *_ in CLI.table_after("## All commands"):
        whole, *verbs = spans_of(first)
        words = whole.split()[1:]
        listed |= {" ".join(words)} | {f"{words[0]} {verb}" for verb in verbs}
    wrong = _differences(set(LEAVES), listed)
    assert not wrong, wrong


@pytest.mark.parametrize("page", OF_TODAY, ids=lambda page: page.name)
def test_every_configuration_key_that_is_named_exists(page: Page) -> None:
    """A key that is spelled another way stops the broker's start."""
    known = {*KEYS.values(), *WITHOUT_MEANING} | CAMEL_CASE_OF_OTHERS
    known |= {*options.option_names(), *sink_options.option_names(), *FILE_KEYS, *ACCOUNT_KEYS}
    used = {span.split("=")[0] for span in page.spans}
    for code in page.fences("sh", "properties"):
        used |= set(re.findall(r"(?:^|[\s'\"])([a-z]+[A-Z]\w*)=", code.replace("\\n", "\n")))
    unknown = sorted(each for each in used - known if CAMEL_CASE.fullmatch(each))
    assert not unknown, f"no key is named {', '.join(unknown)}"


def test_the_table_of_metrics_is_that_of_the_broker(under_test: BrokerUnderTest) -> None:
    """Somebody writes alerts after it."""
    listed = {
        f"{kind} {spans_of(name)[0].removesuffix('_total')}"
        for name, kind, *_ in BY_NAME["rmqlite/kernel/process/README.md"].table_after(
            "## Monitoring"
        )
        if kind
    }
    served = {
        f"{family.type} {name.removesuffix('_total')}"
        for name, family in scrape(under_test).families.items()
        if name.startswith(("rmqlite_", "rocketmq_"))
    }
    wrong = _differences(served, listed)
    assert not wrong, wrong


def test_the_map_has_every_package() -> None:
    """The package's docstring is where somebody new looks first."""
    assert rmqlite.__doc__
    package = Path(rmqlite.__file__).parent
    packages = {f"{path.name}/" for path in package.iterdir() if (path / "__init__.py").exists()}
    base = {path.stem for path in package.glob("*.py") if not path.stem.startswith("__")}
    drawn = set(re.findall(r"\w+/?", rmqlite.__doc__))
    missing = sorted((packages | base) - drawn)
    assert not missing, f"not on the map: {', '.join(missing)}"
