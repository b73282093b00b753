"""Every command: help, tables, JSON, the error line and the exit code."""

from __future__ import annotations

import json
import shutil
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from rmqlite import __version__
from rmqlite.features.dead_letters.requests import DeadLetterGroup
from rmqlite.kernel import compiled
from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.kernel.words.errors import GroupUnknown, Overloaded, TopicExists, TopicUnknown
from tests.cli.conftest import Run
from tests.support.fake_broker import GROUP, STATUS, FakeBroker

COMMANDS = (
    *("broker", "send", "consume", "status"),
    *(
        "topic",
        "topic list",
        "topic show",
        "topic create",
        "group",
        "group list",
        "group show",
        "group set",
    ),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(run: Run, command: str) -> None:
    """--help is the manual; it fits a terminal and needs no broker."""
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_version(run: Run) -> None:
    """For bug reports."""
    assert run("--version").stdout == f"rmqlite {__version__}\n{compiled.form()}\n"


def test_the_compiled_form_is_there_if_it_can_be() -> None:
    """pip says nothing of C that does not compile: then all tests would try the plain form only."""
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not shutil.which("cc") or not headers.exists():
        pytest.skip("there is no C compiler here, or Python came without its headers")
    assert compiled.form() == "compiled"


def test_topics_are_listed_without_the_brokers_own(run: Run) -> None:
    """SCHEDULE_TOPIC_XXXX is plumbing; --all shows it."""
    shown = run("topic", "list").stdout
    assert shown.splitlines()[0].split() == ["TOPIC", "READ", "WRITE", "PERM"]
    assert shown.splitlines()[1].split() == ["orders", "4", "4", "read+write"]
    assert "SCHEDULE" not in shown
    assert "SCHEDULE_TOPIC_XXXX" in run("topic", "list", "--all").stdout


def test_no_topics_is_said_beside_the_output(run: Run, broker: FakeBroker) -> None:
    """A script that reads the output finds it empty."""
    broker.answers["ListTopics"] = lambda _: ()
    result = run("topic", "list")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no topics yet\n")


def test_a_topic_is_shown_with_its_queues(run: Run, broker: FakeBroker) -> None:
    """Numbers line up at the right; nothing stored yet is a dash."""
    broker.add_queues("orders", 2)
    lines = run("topic", "show", "orders").stdout.splitlines()
    assert lines[4].split() == ["QUEUE", "MIN", "MAX", "MESSAGES", "NEWEST"]
    assert [line.split() for line in lines[5:]] == [[n, "0", "0", "0", "-"] for n in "01"]


def test_a_topic_is_created_with_its_settings(run: Run, broker: FakeBroker) -> None:
    """What was asked for is what the broker is asked for."""
    result = run("topic", "create", "new", "--queues", "9", "--perm", "4", "--json")
    assert json.loads(result.stdout) == {
        "topic": "new",
        "read_queues": 9,
        "write_queues": 9,
        "perm": 4,
    }
    assert broker.asked["CreateTopic"][0].perm == 4


def test_a_group_is_shown_with_lag_and_members(run: Run) -> None:
    """The three questions of an operator: how far, how much is left, and who."""
    shown = run("group", "show", "workers").stdout
    lines = [line.split() for line in shown.splitlines()]
    assert ["workers", "16", "1", "yes", "no", "572", "12m", "0s", "0"] in lines
    row = ["orders", "0", "1,234,000", "1,234,567", "567", "12m", "0s", "0", "10.0.0.1@77"]
    assert row in lines
    assert "A || B" in shown
    assert "warning" not in shown
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 80


def test_a_group_that_hangs_is_shown_with_the_message_and_the_member(
    run: Run, broker: FakeBroker
) -> None:
    """The first question of whoever is called at night; `status` and the list know it, too."""
    first, other = GROUP.progress
    hangs = replace(GROUP, progress=(replace(first, silent_since_ms=1_699_999_500_000), other))
    broker.answers["DescribeGroup"] = lambda _: hangs
    assert (
        "warning: orders/0: nothing finished for 10m 0s, at queue offset 1,234,000, with"
        " 10.0.0.1@77\n" in run("group", "show", "workers").stdout
    )
    assert json.loads(run("group", "list", "--json").stdout)[0]["silent_ms"] == 600_000
    lines = run("status").stdout.splitlines()
    assert lines[2] == (
        "warning: workers has 1 member and has finished nothing in 1 of 2 queues for 10m 0s"
    )


def test_every_silent_group_is_named(run: Run, broker: FakeBroker) -> None:
    """Not the worst one and a number: each has people of its own."""
    names = [f"group-{number:02}" for number in range(12)]
    (first, _) = GROUP.progress
    broker.answers["ListGroups"] = lambda _: tuple([GroupInfo(name) for name in names])
    broker.answers["DescribeGroup"] = lambda name: replace(
        GROUP,
        info=GroupInfo(name),
        progress=(replace(first, silent_since_ms=1_699_999_500_000 - int(name[-2:])),),
    )
    lines = run("status").stdout.splitlines()
    assert lines[2].startswith("warning: group-11 has 1 member and has finished nothing for 10m 0s")
    assert lines[2].endswith(" and 11 more")
    assert ", ".join(reversed(names)) == " ".join([line.strip() for line in lines[3:5]])
    assert "all is well" not in lines


def test_a_groups_json_has_the_lag_of_each_queue(run: Run) -> None:
    """It is no field of the answer, but what most scripts want to know."""
    tree = json.loads(run("group", "show", "workers", "--json").stdout)
    assert [each["lag"] for each in tree["progress"]] == [567, 5]
    assert tree["progress"][1]["committed_offset"] is None
    assert tree["progress"][0]["queue"] == {"topic": "orders", "queue_id": 0}


def test_groups_are_listed(run: Run) -> None:
    """As a table and as JSON."""
    row = ["workers", "572", "12m", "0s", "1", "0", "0", "16"]
    assert run("group", "list").stdout.splitlines()[1].split()[:8] == row
    (tree,) = json.loads(run("group", "list", "--json").stdout)
    assert tree["max_reconsume_times"] == 16
    assert (tree["lag"], tree["oldest_ms"], tree["silent_ms"]) == (572, 720_000, 60_000)


def test_status_says_what_waits_and_how_late(run: Run) -> None:
    """Pending and next due of each level, and its lateness; in 80 columns."""
    lines = run("status").stdout.splitlines()
    assert lines[1].split() == ["broker-a", "0.1.0", "1m", "40s", "5,000", "42%"]
    assert lines[2] == "all is well"
    assert lines[3] == (
        "since the start 1m 40s ago: 1,000,000 sent, 900 delivered, 17 retried, 1 died"
    )
    assert lines[5] == "levels: 99,100 pending, 1 unused"
    assert lines[7].split() == ["1", "1s", "99,100", "in", "500ms", "900", "1", "3", "9"]
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert json.loads(run("status", "--json").stdout)["levels"][0]["pending"] == 99_100


def test_status_says_when_the_disk_is_full_and_what_keeps_old_files(
    run: Run, broker: FakeBroker
) -> None:
    """Nothing while all is well; else the two things that an operator can do something about."""
    assert "full" not in run("status").stdout
    answer = replace(
        STATUS,
        disk_used_ratio=0.9137,
        is_disk_full=True,
        pinned_by_level=18,
        pinned_deliver_at_ms=1_700_000_200_000,
        pinned_physical_offset=4_096,
        pinned_bytes=3 << 29,
    )
    broker.answers["GetBrokerStatus"] = lambda _: answer
    full, pinned = run("status").stdout.splitlines()[2:4]
    assert full == "warning: disk full (91.4%): sends are refused until there is room again"
    assert pinned.startswith("warning: 1.5 GiB of expired log files stay for a message of level 18")
    assert pinned.endswith("at physical offset 4096")
    tree = json.loads(run("status", "--json").stdout)
    assert (tree["is_disk_full"], tree["pinned_bytes"]) == (True, 3 << 29)


def test_status_says_what_is_open_and_left_whatever_was_counted_since_the_start(
    run: Run, broker: FakeBroker
) -> None:
    """After a restart nothing has died yet, and yet thousands of letters are open."""
    broker.answers["GetBrokerStatus"] = lambda _: replace(STATUS, dead=0)
    dead = DeadLetterGroup("workers", 3_530, 2, 0, 1, 2)
    broker.answers["ListDeadLetterGroups"] = lambda _: (dead,)
    broker.answers["DescribeGroup"] = lambda _: replace(GROUP, members=())
    lines = run("status").stdout.splitlines()
    assert lines[2:4] == [
        "warning: 3,528 open dead letters in workers",
        "warning: nobody reads for workers",
    ]
    assert lines[4].endswith("17 retried, 0 died")


@pytest.mark.parametrize("command", ["topic list", "group list", "status", "group show workers"])
def test_json_is_one_document_without_colours(run: Run, command: str) -> None:
    """A script reads all of standard output as JSON."""
    result = run(*command.split(), "--json")
    json.loads(result.stdout)
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


def test_what_is_refused_ends_with_1(run: Run, broker: FakeBroker) -> None:
    """Asking again will not help: sentence and rule on one line of standard error."""

    def refuse(_: object) -> None:
        raise TopicUnknown("nothing")

    broker.answers["GetRoute"] = refuse
    result = run("topic", "show", "nothing")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: no topic named 'nothing' (create the topic first")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [(GroupUnknown("g"), 1), (TopicExists("t"), 1), (Overloaded("maxParkedPolls", 1), 3)],
)
def test_the_exit_code_says_whether_to_ask_again(
    run: Run, broker: FakeBroker, error: Exception, code: int
) -> None:
    """1: no; 3: later perhaps."""

    def fail(_: object) -> None:
        raise error

    broker.answers["GetBrokerStatus"] = fail
    assert run("status").exit_code == code


def test_a_broker_that_is_not_there_ends_with_3(run: Run, tmp_path: Path) -> None:
    """The commonest mistake gets a plain sentence, not a stack."""
    result = run("status", "--endpoint", f"unix:{tmp_path}/nobody")
    assert result.exit_code == 3
    assert result.stderr.startswith("error: no answer from the broker: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        "topic create",
        "topic create t --queues 0",
        "group show",
        "nonsense",
        "consume t",
        "consume t --peek --fail-with x",
        "send t",
        "send t body --file x",
        "send t --file /no/such/file",
        "send t body --property novalue",
        "broker --listen-port 70000",
    ],
)
def test_a_wrong_command_line_ends_with_2(run: Run, command: str) -> None:
    """Nothing was asked of the broker."""
    result = run(*command.split())
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_a_wrong_configuration_names_the_line(run: Run, tmp_path: Path) -> None:
    """`rmqlite broker` refuses before it touches a store."""
    conf = tmp_path / "broker.conf"
    conf.write_text("listenPort=0\nmessageDelayLevl=1s\n")
    result = run("broker", "--config", str(conf))
    assert result.exit_code == 1
    assert f"{conf}:2: messageDelayLevl" in result.stderr
    assert "messageDelayLevel" in result.stderr
