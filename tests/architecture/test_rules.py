"""Rules of the code base: sizes, docstrings, generated code, the configuration, tidiness."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from rmqlite.kernel.config.config import KEYS, BrokerConfig, load_config
from rmqlite.kernel.config.values import WITHOUT_MEANING
from tests.architecture.sources import (
    PB,
    ROOT,
    functions_of,
    is_test,
    name_of,
    nodes_of,
    tree_of,
    written,
)
from tests.generate_pb import generate

CONF = ROOT / "conf" / "broker.conf"
MODULE_LINES_MAX = 500
FOLDER_MODULES_MAX = 16
FUNCTION_LINES_MAX = 59
SOURCE_FOLDERS = ("rmqlite", "tests", "examples")
TOP_LEVEL = {
    "pyproject.toml",
    "proto",
    "rmqlite",
    "tests",
    "examples",
    "conf",
    "README.md",
    "LICENSE",
}


def test_a_module_is_short_enough_to_be_read_at_once() -> None:
    """Longer means that it owns two ideas."""
    sizes = {name_of(p): len(p.read_text("utf-8").splitlines()) for p in written("rmqlite")}
    assert {name: size for name, size in sizes.items() if size > MODULE_LINES_MAX} == {}


def test_a_folder_is_small_enough_to_be_seen_at_once() -> None:
    """A folder with more modules is several packages."""
    sizes = Counter(name_of(path.parent) for path in written("rmqlite"))
    assert {name: size for name, size in sizes.items() if size > FOLDER_MODULES_MAX} == {}


def test_the_tests_of_each_feature_lie_in_its_folder() -> None:
    """`tests/run.py --feature NAME` would run the kernel's alone."""
    features = {path.parent.name for path in (ROOT / "rmqlite/features").glob("*/__init__.py")}
    tested = {path.parent.name for path in (ROOT / "tests/features").glob("*/test_*.py")}
    assert tested == features


def test_a_function_is_short_enough_to_be_held_in_mind() -> None:
    """One screen."""
    long = []
    for path in written("rmqlite"):
        for node in functions_of(path):
            size = (node.end_lineno or 0) - node.lineno + 1
            if size > FUNCTION_LINES_MAX:
                long.append(f"{name_of(path)}:{node.lineno} {node.name} has {size} lines")
    assert not long, "\n".join(long)


def test_a_module_says_what_it_owns() -> None:
    """The first thing a reader sees."""
    silent = [
        name_of(path)
        for path in written(*SOURCE_FOLDERS)
        if not ast.get_docstring(tree_of(path))
        and not (path.name == "__init__.py" and path.stat().st_size == 0 and is_test(path))
    ]
    assert not silent, "\n".join(silent)


def test_a_test_says_why() -> None:
    """The name is the rule, the docstring the reason."""
    silent = [
        f"{name_of(path)}:{node.lineno} {node.name}"
        for path in written("tests")
        for node in functions_of(path)
        if node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert not silent, "\n".join(silent)


def test_generated_code_is_what_the_proto_says(tmp_path: Path) -> None:
    """Run python tests/generate_pb.py after an edit of proto/."""
    generate(tmp_path)
    assert generated_in(PB) == generated_in(tmp_path)


def generated_in(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*.py*")
        if path.parent.name != "__pycache__"
    }


def test_the_configuration_file_is_the_defaults() -> None:
    """What the file says is the default is the default."""
    assert load_config(CONF) == BrokerConfig()


def test_the_configuration_file_has_every_key_with_its_meaning() -> None:
    """Each key once, and a comment before each group of keys."""
    assert load_config(CONF).model_fields_set == set(KEYS)
    paragraphs = re.split(r"\n\s*\n", CONF.read_text("utf-8"))
    bare = [each for each in paragraphs if "=" in each and not each.lstrip().startswith("#")]
    assert not bare, "\n".join(bare)


def test_the_configuration_file_marks_what_rocketmq_does_not_have() -> None:
    """An operator who moves to RocketMQ must drop these."""
    paragraphs = re.split(r"\n\s*\n", CONF.read_text("utf-8"))
    marked = set()
    for each in paragraphs:
        if "\n# [ours]" in "\n" + each:
            marked |= set(re.findall(r"^(\w+)=", each, re.MULTILINE))
    assert marked == {
        *("archiveUrl", "archiveIntervalMs", "archiveRetention", "archiveRateMax"),
        *("masterAddress", "masterAccount", "authority", "authorityLeaseMs"),
        "namesrvTlsEnable",
        "namesrvAccount",
        "aclFile",
        "auditLogFormat",
        "maxAccountRequestsPerSecond",
        "maxAccountBytesPerSecond",
        "maxAccountConnections",
        "maxAccountParkedPolls",
        "maxConnectionRequestsPerSecond",
        "maxConnectionBytesPerSecond",
        "allowUnauthenticated",
        "tlsMode",
        "tlsCertPath",
        "tlsKeyPath",
        "tlsNeedClientAuth",
        "tlsTrustCertPath",
        "grpcTlsPort",
        "grpcWorkers",
        "metricsTokenFile",
        "nameServerPort",
        "brokersAllowed",
        "grpcPort",
        "metricsPort",
        "webPort",
        "webAddress",
        "webAccess",
        "webHosts",
        "deliverBatchMessages",
        "scheduleDeliverRateMax",
        "maxTopicQueues",
        "maxTopics",
        "maxGroups",
        "maxConsumerOffsets",
        "maxLeasedMessages",
        "maxSendMessages",
        "maxSendBytes",
        "maxBytesInFlight",
        "maxBulkMessages",
        "dedupWindow",
        "maxBulkJobs",
        "maxRedriveJobs",
        "maxPullMessages",
        "maxPullBytes",
        "maxPullWait",
        "maxFilterScan",
        "maxParkedPolls",
        "maxGroupMembers",
        "maxMembers",
        "maxSubscriptionBytes",
        "maxConnections",
        "shutdownDrainTimeout",
    }
    assert not marked & set(WITHOUT_MEANING)


def tracked() -> list[str]:
    try:
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("git is not installed")
    if done.returncode != 0:
        pytest.skip("this is not a git checkout")
    return [name for name in done.stdout.split("\0") if name]


def test_the_front_door_is_tidy() -> None:
    """Nothing lies at the top but what a visitor looks for."""
    top = {name.split("/")[0] for name in tracked()}
    assert {name for name in top if not name.startswith(".")} <= TOP_LEVEL


def test_no_generated_or_local_file_is_kept() -> None:
    """A clone is what people wrote, and the protobuf code that spares them a compiler."""
    litter = re.compile(r"(^|/)(__pycache__|\.venv|\.\w+_cache|[^/]+\.egg-info)(/|$)|\.pyc$")
    assert [name for name in tracked() if litter.search(name)] == []


def test_nothing_is_left_for_later() -> None:
    """An open end belongs in an issue."""
    mark = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    left = []
    for path in [*written(*SOURCE_FOLDERS), *(ROOT / "proto").rglob("*.proto"), CONF]:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if mark.search(line):
                left.append(f"{name_of(path)}:{number} {line.strip()}")
    assert not left, "\n".join(left)


def test_no_test_sleeps() -> None:
    """The fake clock moves instead; a sleep is slow when it works and flaky when it does not."""
    sleeping = [
        f"{name_of(path)}:{node.lineno}"
        for path in written("tests")
        for node in calls_of(path, "sleep")
        if isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "time"
    ]
    assert not sleeping, "\n".join(sleeping)


def test_no_test_module_imports_from_another() -> None:
    """What two test modules need stands in tests/support, or in a helper of their folder."""
    wrong = []
    for path in written("tests"):
        for node in nodes_of(path, ast.ImportFrom):
            if not (node.module or "").startswith("tests."):
                continue
            imported = ROOT.joinpath(*str(node.module).split("."))
            is_shared = imported.parent == ROOT / "tests" / "support"
            if imported.name.startswith("test_") or not (
                is_shared or imported.parent in path.parents
            ):
                wrong.append(f"{name_of(path)}:{node.lineno} imports from {node.module}")
    assert wrong == []


def calls_of(path: Path, *methods: str) -> Iterator[ast.Call]:
    for node in nodes_of(path, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in methods:
            yield node


def queue_arithmetic(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """Lines where a level is made of a queue id, or the other way round."""
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            if ast.unparse(node.left).endswith("queue_id") and ast.unparse(node.right) == "1":
                yield node.lineno
        elif isinstance(node, ast.Tuple | ast.Call):
            parts = node.elts if isinstance(node, ast.Tuple) else node.args
            names = [part.id for part in parts if isinstance(part, ast.Name)]
            if "SCHEDULE_TOPIC" in names and any(_is_one_less(part) for part in parts):
                yield node.lineno


def _is_one_less(node: ast.expr) -> bool:
    return ast.unparse(node).endswith(" - 1")


def test_one_module_knows_what_waits_where_and_until_when() -> None:
    """Another kind of wait queue becomes known to writer and readers there, and nowhere else."""
    wrong = []
    for path in written("rmqlite"):
        # The second one counts the queues of a topic.
        if name_of(path) in (
            "rmqlite/kernel/records/wait_queues.py",
            "rmqlite/store_tools/repairing/files.py",
        ):
            continue
        kinds = (ast.BinOp, ast.Tuple, ast.Call)
        lines = [*queue_arithmetic(node for kind in kinds for node in nodes_of(path, kind))]
        # A history's delay at a time; a table's delay has one argument.
        lines += [node.lineno for node in calls_of(path, "delay_ms") if len(node.args) > 1]
        wrong += [f"{name_of(path)}:{line}" for line in lines]
    assert not wrong, "\n".join(wrong)
    bad = "a = head.queue_id + 1, f(SCHEDULE_TOPIC, level - 1), (SCHEDULE_TOPIC, int(x) - 1)"
    assert len([*queue_arithmetic(ast.walk(ast.parse(bad)))]) == 3


def test_one_rule_says_which_topics_wait() -> None:
    """Readers ask for wait queues, not for the topics of levels or of timers."""
    allowed = {
        "rmqlite/kernel/words/names.py",
        "rmqlite/kernel/records/wait_queues.py",
        # The form of a completion, and the numbers of queues, differ by the topic.
        "rmqlite/kernel/records/completion.py",
        "rmqlite/kernel/tables/topics.py",
        # What it names for compiled code, and for Spark.
        "rmqlite/kernel/sends/packing.py",
        "rmqlite/spark/jobs/waits.py",
    }
    wrong = [
        f"{name_of(path)}:{node.lineno}"
        for path in written("rmqlite")
        if name_of(path) not in allowed
        for node in nodes_of(path, ast.Name)
        if node.id in ("SCHEDULE_TOPIC", "TIMER_TOPIC")
    ]
    assert not wrong, "\n".join(wrong)


def test_one_module_of_the_broker_appends_and_announces() -> None:
    """Whoever appends past it leaves readers asleep, or delivers late."""
    wrong = []
    # The jobs correct what a crash has cut off while the broker starts: nobody waits yet.  Nobody
    # ever waits for an event of the leases.
    names = ("kernel/appending", "features/job_journal", "features/leases/journal")
    allowed = {f"rmqlite/{name}.py" for name in names}
    store = ROOT / "rmqlite" / "kernel" / "store"
    for path in written("rmqlite/kernel", "rmqlite/features"):
        if name_of(path) not in allowed and store not in path.parents:
            for node in calls_of(path, "append", "append_packed", "appended"):
                assert isinstance(node.func, ast.Attribute)
                whose = ast.unparse(node.func.value)
                if whose.endswith(("store", "listener")):
                    wrong.append(f"{name_of(path)}:{node.lineno}")
    assert not wrong, "\n".join(wrong)


def test_nothing_rests_on_private_names_of_spark() -> None:
    """Spark changes them without a word, and does not have them in a session of Spark Connect."""
    private = {"_jvm", "_jsc", "_jdf", "_jsparkSession", "_gateway", "_ensure_initialized"}
    public = {"sql", "sql.datasource", "sql.types", "sql.streaming.datasource", "errors", "conf"}
    public |= {"sql.streaming.listener"}
    wrong = [
        f"{name_of(path)}:{node.lineno}"
        for path in written("rmqlite/spark", "rmqlite/cli/pipeline", "examples/pipeline")
        for node in ast.walk(tree_of(path))
        if (isinstance(node, ast.Attribute) and node.attr in private)
        or (isinstance(node, ast.Constant) and node.value in private)
        or (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith("pyspark.")
            and (node.module or "").removeprefix("pyspark.") not in public
        )
    ]
    assert not wrong, "\n".join(wrong)


GENERIC: Final = {
    **{
        "of": 19,
        "check": 21,
        "close": 51,
        "run": 27,
        "add": 20,
        "read": 33,
        "begin": 12,
        "open": 11,
    },
    **{"write": 28, "end": 15, "all": 13, "change": 18, "start": 13, "begin_anew": 11},
}
"""How many classes have a public method of this name; each number only falls, but for close() of
clients, which their users know."""


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for path in written("rmqlite"):
        for node in nodes_of(path, ast.ClassDef):
            yield f"{path.relative_to(ROOT)}: {node.name}", node


def test_a_class_name_occurs_once() -> None:
    """Who reads it in an import, a log or a trace, knows which one it is."""
    found: dict[str, list[str]] = {}
    for place, node in classes():
        if not node.name.startswith("_"):
            found.setdefault(node.name, []).append(place)
    twice = [", ".join(places) for places in found.values() if len(places) > 1]
    assert not twice, "\n".join(twice)


def test_generic_verbs_get_fewer() -> None:
    """A method that many classes have says only with its noun what it does."""
    counts = Counter(
        each.name
        for _, node in classes()
        for each in node.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name[0] != "_"
    )
    many = {name: count for name, count in counts.items() if count > GENERIC.get(name, 10)}
    assert not many
