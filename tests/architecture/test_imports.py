"""Who may import whom: the table of design.md §2, walked over the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from rmqlite.features.every import NEEDS
from tests.architecture.sources import ROOT, tree_of

PACKAGE = ROOT / "rmqlite"
LAYERS = frozenset(
    {
        *("kernel", "features", "protocols", "serving", "store_tools"),
        *("views", "web", "client", "celery", "cli", "spark", "testing", "extras"),
    }
)

MAY_IMPORT = {
    "kernel": {"kernel"},
    "extras": {"kernel"},
    "features": {"features", "extras", "kernel", "protocols"},
    "protocols": {"protocols", "views", "features", "kernel"},
    "serving": {"web", "extras", "protocols", "features", "kernel"},
    "store_tools": {"store_tools", "features", "kernel"},
    "views": {"views", "features", "kernel"},
    "web": {"web", "protocols", "views", "features", "kernel"},
    "client": {"client", "extras", "protocols", "features", "kernel"},
    "cli": {
        "cli",
        "extras",
        "serving",
        "client",
        "protocols",
        "store_tools",
        "spark",
        "views",
        "features",
        "kernel",
    },
    "celery": {"celery", "client", "extras", "protocols", "kernel"},
    "spark": {"spark", "client", "extras", "store_tools", "features", "kernel"},
    # The broker that the command starts, with another clock; nobody imports it.
    "testing": {"testing", "cli", "client", "kernel"},
}
OF_ALL_FEATURES = ("rows", "native", "cursors", "failure_kinds", "job_journal", "first_messages")
"""What several features declare their calls, pages and jobs with."""
KERNEL_FLOORS = (
    *("compiled", "words", "config", "requests", "records", "store"),
    *("", "service", "process"),
)
"""The kernel from the ground up; "" are the decisions.  Each imports only what stands below it."""
BROKER_IMPORTS_MAX = 20
"""How many of our modules broker.py may import; it only falls."""
FACES = {
    "client": "requests",
    "views": "requests",
    "spark": "requests",
}
"""Which of a feature's modules they know: what is asked and answered."""
ONLY_THESE_OF = {
    ("cli", "store_tools"): {
        *("rmqlite.store_tools.reader", "rmqlite.store_tools.check", "rmqlite.store_tools.repair"),
        *("rmqlite.store_tools.moving.handover", "rmqlite.store_tools.moving.backup"),
        "rmqlite.store_tools.moving.new_store",
    },
    ("spark", "store_tools"): {"rmqlite.store_tools.reader"},
}
FOLDERS = {
    "accounts": 3,
    "archive": 3,
    "authority": 1,
    "bulk": 4,
    "changes": 6,
    "cluster": 1,
    "dead_letters": 5,
    "exact_retries": 0,
    "expiry": 0,
    "figures": 2,
    "finding": 6,
    "ha": 1,
    "leases": 6,
    "name_server": 1,
    "operating": 5,
    "queue_locks": 1,
    "rate_limits": 1,
    "raw_log": 2,
    "request_modes": 3,
    "simple_consumer": 2,
    "redrive": 4,
    "sql": 0,
    # authority needs it, and a RocketMQ master is followed, too.
    "standby": 5,
    "transactions": 3,
    "unique_ids": 0,
}
"""How many folders, beside its own, import a feature's modules; only falls."""
INSIDE_FUNCTIONS = {("cli", "spark")}
ALONE = {
    "os": {
        *("rmqlite.kernel.store.disk.files", "rmqlite.kernel.store.disk.regular_file"),
        *("rmqlite.spark.session", "rmqlite.cli.completion", "rmqlite.client.credentials"),
        *("rmqlite.protocols.shared.secret_files", "rmqlite.cli.broker", "rmqlite.cli.main"),
        *("rmqlite.client.forks", "rmqlite.kernel.process.loops"),
        *("rmqlite.client.quiet_grpc", "rmqlite.spark.jobs.running"),
        *("rmqlite.testing.movable_broker", "rmqlite.testing.broker_process"),
    },
    "mmap": {"rmqlite.kernel.store.disk.files"},
    "fcntl": {"rmqlite.kernel.store.disk.files"},
    "sqlite3": {"rmqlite.kernel.store.timer_index"},
    "time": {"rmqlite.kernel.words.clock"},
    "datetime": {
        "rmqlite.celery.names",
        *("rmqlite.kernel.words.clock", "rmqlite.kernel.words.levels"),
        *("rmqlite.testing.broker_process", "rmqlite.features.archive.objects"),
    },
    "pydantic": {
        *(
            "rmqlite.kernel.config.config",
            "rmqlite.kernel.config.values",
            "rmqlite.kernel.config.table_shapes",
        ),
        *("rmqlite.features.accounts.accounts", "rmqlite.features.accounts.reading"),
        *(f"rmqlite.features.{each}.table_shapes" for each in NEEDS),
        "rmqlite.cli.output.documents",
    },
    "obstore": {"rmqlite.features.archive.objects"},
    "yaml": {"rmqlite.features.accounts.plain_yaml"},
    "google": {"rmqlite.protocols"},
    "grpc": {"rmqlite.protocols", "rmqlite.client"},
    "asyncio": {
        *("rmqlite.kernel.service", "rmqlite.kernel.process", "rmqlite.features"),
        *("rmqlite.protocols", "rmqlite.web", "rmqlite.client.asyncio"),
        "rmqlite.testing.movable_broker",
    },
    "opentelemetry": {"rmqlite.client.spans", "rmqlite.client.tracing"},
    "grpc_health": {"rmqlite.protocols.grpc_server"},
    "grpc_reflection": {"rmqlite.protocols.grpc_server"},
    "prometheus_client": {"rmqlite.protocols.metrics"},
    "typer": {"rmqlite.cli"},
    "click": {"rmqlite.cli"},
    "rich": {"rmqlite.cli"},
    "pyspark": {"rmqlite.spark"},
    "pytest": {"rmqlite.testing.pytest_plugin"},
    "uvloop": {"rmqlite.kernel.service.turns"},
    "lz4": {"rmqlite.kernel.words.compression"},
    "backports": {"rmqlite.kernel.words.compression"},
    "compression": {"rmqlite.kernel.words.compression"},
    "zlib": {
        *("rmqlite.kernel.words.compression", "rmqlite.kernel.records", "rmqlite.kernel.store"),
        *("rmqlite.store_tools", "rmqlite.spark.arrow.records"),
        *("rmqlite.protocols.remoting.bytes.registration", "rmqlite.features.archive.objects"),
        *("rmqlite.protocols.native.replication", "rmqlite.protocols.rocketmq_v2.bytes.messages"),
    },
    "pyarrow": {"rmqlite.spark.arrow", "rmqlite.spark"},
    "numpy": {"rmqlite.spark.arrow", "rmqlite.spark"},
    "matplotlib": {"rmqlite.spark.jobs.plot"},
    "textual": {"rmqlite.cli.top"},
    "cryptography": {"rmqlite.cli.tls"},
    "starlette": {"rmqlite.web"},
    "uvicorn": {"rmqlite.web"},
    "jinja2": {"rmqlite.web"},
    "markupsafe": {"rmqlite.web"},
}
"""Outside module -> the package, or the one module, that may import it."""


@dataclass(frozen=True)
class Import:
    importer: str
    imported: str
    line: int
    in_function: bool
    is_for_types: bool
    """Only a type checker runs it."""

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def package_of(module: str) -> str:
    """The package that a module of ours stands in; "" for the package and its __main__."""
    part = [*module.split("."), ""][1]
    return part if part in LAYERS else ""


def names_imported(node: ast.AST, importer: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        is_package = MODULES[importer].name == "__init__.py"
        parents = importer.split(".")
        above = parents[: len(parents) - node.level + is_package]
        base = ".".join([*above, *([base] if base else [])])
    # "from rmqlite.store_tools import reader" imports a module, "from … import a_name" its module.
    return [f"{base}.{a.name}" if f"{base}.{a.name}" in MODULES else base for a in node.names]


def imports_of(module: str, path: Path) -> Iterator[Import]:
    def walk(node: ast.AST, in_function: bool, is_for_types: bool) -> Iterator[Import]:
        for name in names_imported(node, module):
            yield Import(module, name, getattr(node, "lineno", 0), in_function, is_for_types)
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for_types = is_for_types or (isinstance(node, ast.If) and is_type_checking(node.test))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                yield from walk(child, inside, for_types)

    yield from walk(tree_of(path), in_function=False, is_for_types=False)


def is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


@cache
def imports() -> list[Import]:
    """Of all modules.  Not read when this module is imported: each process that tests does that."""
    return [each for name, path in MODULES.items() for each in imports_of(name, path)]


@cache
def ours() -> list[Import]:
    """Those of our own modules."""
    return [each for each in imports() if each.imported.split(".")[0] == "rmqlite"]


def is_within(module: str, place: str) -> bool:
    return module == place or module.startswith(place + ".")


def test_every_module_stands_in_a_package() -> None:
    """A new package is a new line in design.md and in the table above."""
    homeless = [name for name in MODULES if not package_of(name)]
    assert set(homeless) <= {"rmqlite", "rmqlite.__main__"}


@pytest.mark.parametrize("importing", sorted(MAY_IMPORT))
def test_a_package_imports_only_what_stands_below_it(importing: str) -> None:
    """A rule that can be broken silently is no rule."""
    wrong = [
        str(each)
        for each in ours()
        if package_of(each.importer) == importing
        and each.imported != "rmqlite"
        and package_of(each.imported) not in MAY_IMPORT[importing]
    ]
    assert not wrong, "\n".join(wrong)


def floor_of(module: str) -> int:
    part = [*module.split("."), "", ""][2]
    return KERNEL_FLOORS.index(part if part in KERNEL_FLOORS else "")


def test_inside_the_kernel_each_imports_what_stands_below_it() -> None:
    """Words, records, store, decisions, service, process: read in this order."""
    wrong = [
        str(each)
        for each in ours()
        if package_of(each.importer) == package_of(each.imported) == "kernel"
        and floor_of(each.importer) < floor_of(each.imported)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_broker_imports_few_modules() -> None:
    """It makes the kernel's parts and hands calls on; what a call decides stands with its part."""
    imported = {each.imported for each in ours() if each.importer == "rmqlite.kernel.broker"}
    assert len(imported) <= BROKER_IMPORTS_MAX, sorted(imported)


def test_a_feature_imports_only_those_that_its_line_names() -> None:
    """Else a folder could not be deleted."""
    wrong = [
        str(each)
        for each in ours()
        if package_of(each.importer) == package_of(each.imported) == "features"
        and (own := each.importer.split(".")[2]) in NEEDS
        and each.imported.split(".")[2] not in (own, *NEEDS[own], *OF_ALL_FEATURES)
    ]
    assert not wrong, "\n".join(wrong)


def test_few_folders_know_a_feature() -> None:
    """Whoever changes or deletes a feature looks there; write the smaller number down."""
    folders: dict[str, set[str]] = {name: set() for name in FOLDERS}
    for each in ours():
        _, place, feature, *_ = [*each.imported.split("."), "", ""]
        is_own = is_within(each.importer, f"rmqlite.features.{feature}")
        if place == "features" and feature in folders and not is_own:
            folders[feature].add(str(MODULES[each.importer].parent.relative_to(PACKAGE)))
    assert FOLDERS.keys() >= NEEDS.keys()
    assert {name: len(known) for name, known in folders.items()} == FOLDERS, folders


@pytest.mark.parametrize("importing", sorted(FACES))
def test_who_looks_at_a_feature_needs_none_of_its_decisions(importing: str) -> None:
    """What is asked and answered is enough; a tool of the store has the list of all tables."""
    wrong = [
        str(each)
        for each in ours()
        if package_of(each.importer) == importing
        and package_of(each.imported) == "features"
        and not each.imported.endswith(
            (f".{FACES[importing]}", ".rows", ".cursors", ".failure_kinds")
        )
    ]
    assert not wrong, "\n".join(wrong)


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module."""

    def reached(start: str, edges: Mapping[str, set[str]]) -> set[str]:
        found, waiting = {start}, [start]
        while waiting:
            new = edges[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    back: dict[str, set[str]] = {name: set() for name in graph}
    for name, imported in graph.items():
        for each in imported:
            back[each].add(name)
    left, found = set(graph), []
    while left:
        start = left.pop()
        together = reached(start, graph) & reached(start, back)
        left -= together
        if len(together) > 1:
            found.append(sorted(together))
    return sorted(found)


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Inside a package, too, and also not in functions: a circle is one module in several files."""
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for each in ours():
        if each.imported in graph:
            graph[each.importer].add(each.imported)
    assert circles(graph) == []
    # The rule itself: what is found when there is one.
    around = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": set[str]()}
    assert circles(around) == [["a", "b", "c"]]


def test_no_packages_inside_one_import_each_other_in_a_circle() -> None:
    """A package that needs the one that needs it is one package in two folders."""

    def box(module: str) -> str:
        parts = module.split(".")
        return ".".join(parts[: 4 if "bytes" in parts else 3])

    graph: dict[str, set[str]] = {box(name): set() for name in MODULES}
    for each in ours():
        if each.imported in MODULES and not each.is_for_types:
            graph[box(each.importer)].add(box(each.imported))
    assert circles(graph) == []


@pytest.mark.parametrize(("importing", "imported"), sorted(ONLY_THESE_OF))
def test_a_reader_of_the_store_uses_only_its_reading_side(importing: str, imported: str) -> None:
    """The command line and Spark look at a store that a broker may be writing."""
    allowed = ONLY_THESE_OF[importing, imported]
    wrong = [
        str(each)
        for each in ours()
        if (package_of(each.importer), package_of(each.imported)) == (importing, imported)
        and each.imported not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_the_command_line_loads_a_package_above_only_when_a_command_needs_it() -> None:
    """rmqlite send must not load the server, nor anything Spark."""
    wrong = [
        str(each)
        for each in ours()
        if (package_of(each.importer), package_of(each.imported)) in INSIDE_FUNCTIONS
        and not each.in_function
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("outside", sorted(ALONE))
def test_an_outside_module_is_used_in_one_place(outside: str) -> None:
    """So a fake disk, a fake clock or another protocol replaces that one place."""
    wrong = [
        str(each)
        for each in imports()
        if is_within(each.imported, outside)
        and not any(is_within(each.importer, place) for place in ALONE[outside])
    ]
    assert not wrong, "\n".join(wrong)


def test_generated_code_is_imported_only_by_protocols() -> None:
    """Everybody else has plain values, so a protocol can be added without touching them."""
    wrong = [
        str(each)
        for each in ours()
        if is_within(each.imported, "rmqlite.protocols.pb")
        and package_of(each.importer) != "protocols"
    ]
    assert not wrong, "\n".join(wrong)


def test_the_front_knows_no_protocol() -> None:
    """Three protocols ask there: none of them may have to look like another."""
    wrong = [
        str(each)
        for each in imports()
        if is_within(each.importer, "rmqlite.kernel.service")
        and any(is_within(each.imported, place) for place in ("grpc", "rmqlite.protocols"))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_web_page_makes_no_calls_of_the_wire() -> None:
    """It asks at the service, as every protocol does."""
    wrong = [
        str(each)
        for each in ours()
        if is_within(each.importer, "rmqlite.web")
        and is_within(each.imported, "rmqlite.protocols.native.bytes.rpcs")
    ]
    assert not wrong, "\n".join(wrong)


def test_the_package_itself_imports_nothing() -> None:
    """A Spark executor that imports rmqlite must not get gRPC."""
    assert [str(each) for each in imports() if each.importer == "rmqlite"] == []


def run_fresh(code: str) -> set[str]:
    """The modules loaded by code in an interpreter of its own, beyond those of a bare one."""
    script = f"import sys; before = set(sys.modules); {code}; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_else() -> None:
    """The same seen from outside."""
    assert run_fresh("import rmqlite") == {"rmqlite"}


@pytest.mark.parametrize(
    "module",
    [*(f"words.{word}" for word in ("errors", "message", "names", "levels", "clock")), "requests"],
)
def test_a_word_loads_neither_grpc_nor_protobuf_nor_pydantic(module: str) -> None:
    """Only config is a pydantic model, and only the broker needs it."""
    loaded = run_fresh(f"import rmqlite.kernel.{module}")
    assert not loaded & {"grpc", "google.protobuf", "pydantic", "asyncio", "rich"}


def test_the_command_line_loads_what_a_command_needs_when_it_runs() -> None:
    """Otherwise `--help`, completion and every command would start later."""
    loaded = run_fresh(
        "from pkgutil import resolve_name; from rmqlite.cli.main import COMMANDS;"
        "[resolve_name(each) for each in COMMANDS.values()]"
    )
    assert "rmqlite.cli.topic" in loaded
    assert not loaded & {"grpc", "google.protobuf", "pydantic", "asyncio", "numpy", "yaml"}


def test_the_wire_does_not_load_grpc() -> None:
    """It is a table of bytes; the transport is somebody else's."""
    assert "grpc" not in run_fresh(
        "import rmqlite.protocols.native.bytes.rpcs, rmqlite.protocols.shared.status"
    )


def test_values_of_the_client_load_no_grpc() -> None:
    """The command line and Spark's executors use them where nothing is called."""
    loaded = run_fresh("from rmqlite.client import Message, PendingFilter, RedriveJob")
    assert not loaded & {"grpc", "google.protobuf", "pydantic", "asyncio"}
    assert "grpc" in run_fresh("from rmqlite.client import Producer")
