"""Shell completion: what a shell is answered when somebody presses TAB."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rmqlite.cli import completion
from rmqlite.cli.main import app
from rmqlite.features.bulk.requests import BulkJob
from rmqlite.features.dead_letters.requests import DeadLetterGroup
from rmqlite.features.redrive.requests import JobState, RedriveJob, RedriveSpec
from rmqlite.kernel.requests.broker import LevelsInForce
from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.words.errors import BrokerClosing
from tests.support.command_processes import run_command
from tests.support.fake_broker import WAIT_S, FakeBroker

TOPICS = ("orders", "or|der", "%RETRY%bill|ing", "SCHEDULE_TOPIC_XXXX", "or$(reboot)", "o\nx")
"""A name that no rule allows may stand in a store that something else wrote."""

AS_INSTALLED = (
    "import sys; sys.argv[0] = 'rmqlite'; from rmqlite.cli import completion, main;"
    f" completion.ANSWER_MS_MAX = {WAIT_S * 1000:.0f}; main.main()"
)
"""But for its patience: on a busy machine the broker's answer may come too late for a TAB."""


@pytest.fixture
def broker(broker: FakeBroker) -> FakeBroker:
    """A broker with names of every kind."""
    broker.answers |= {
        "ListTopics": lambda _: tuple([TopicInfo(each, 1, 1) for each in TOPICS]),
        "ListGroups": lambda _: (GroupInfo("bill|ing"), GroupInfo("workers")),
        "ListDeadLetterGroups": lambda _: (DeadLetterGroup("workers", 3, 0, 0, 1, 2),),
        "ListBulkJobs": lambda _: (
            BulkJob("import-7", 1, 0, 0, 1, 1, 1),
            BulkJob("`x`", 1, 0, 0, 1, 1, 1),
        ),
        "ListRedriveJobs": lambda _: (RedriveJob("job-9", RedriveSpec("g"), JobState.DONE, 1),),
        "GetLevels": lambda _: LevelsInForce("1s 10s 10m", "1s 10s 10m", ()),
    }
    return broker


def asked(shell: str, endpoint: str, **env: str) -> subprocess.CompletedProcess[str]:
    """What typer's script for this shell does: it runs rmqlite, and reads what it prints."""
    given = {"RMQLITE_ENDPOINT": endpoint, "_RMQLITE_COMPLETE": f"complete_{shell}", **env}
    return subprocess.run(
        [sys.executable, "-c", AS_INSTALLED],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


def asked_here(shell: str, endpoint: str, **env: str) -> list[str]:
    """The same in this process, by lines; that a process of its own says it is seen by asked()."""
    given = {"RMQLITE_ENDPOINT": endpoint, "_RMQLITE_COMPLETE": f"complete_{shell}", **env}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(completion, "ANSWER_MS_MAX", WAIT_S * 1000)
        for name, value in given.items():
            patch.setenv(name, value)
        completion.mend_words()
        done = CliRunner().invoke(app, prog_name="rmqlite")
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout.splitlines()


def in_bash(endpoint: str, *words: str) -> list[str]:
    """The words that bash is given; the last one is the one under the cursor."""
    line = "\n".join(["rmqlite", *words])
    return asked_here("bash", endpoint, COMP_WORDS=line, COMP_CWORD=str(len(words)))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("retr",), ["retry"]),
        (("retry", ""), ["list", "now", "cancel", "bury"]),
        (("retry", "list", ""), ["bill\\|ing", "workers"]),
        (("retry", "now", "wo"), ["workers"]),
        (("retry", "list", "workers", "--to"), ["--topic"]),
        (("topic", "show", "or"), ["orders", "or\\|der"]),
        (("topic", "show", "or\\|"), ["or\\|der"]),
        (("topic", "show", "%"), ["%RETRY%bill\\|ing"]),
        (("schedule", "list", "--group", "b"), ["bill\\|ing"]),
        (("schedule", "list", "--level", "10"), ["10s", "10m"]),
        (("schedule", "list", "--level", "=", "10"), ["10s", "10m"]),
        (("schedule", "list", "--origin-topic", "%"), []),
        (("schedule", "reschedule", "--to", "1"), ["1s", "10s", "10m"]),
        (("dlq", "show", ""), ["workers"]),
        (("dlq", "redrive", "workers", "--level", ""), ["1", "2", "3"]),
        (("job", "show", ""), ["job-9", "import-7"]),
        (("send", "o"), ["orders", "or\\|der"]),
        (("group", "show", "wo"), ["workers"]),
    ],
    ids=" ".join,
)
def test_a_word_is_completed(
    broker: FakeBroker, words: tuple[str, ...], expected: list[str]
) -> None:
    """Commands, options, and the names that the broker knows, as bash has to read them."""
    assert [each for each in in_bash(broker.endpoint, *words) if each] == expected


def test_what_bash_takes_apart_is_put_together_again() -> None:
    """It ends a word at a colon; the broker's address is one word nevertheless."""

    def mended(at: int, *words: str) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COMP_WORDS", "\n".join(words))
            patch.setenv("COMP_CWORD", str(at))
            patch.setenv("_RMQLITE_COMPLETE", "complete_bash")
            completion.mend_words()
            return f"{os.environ['COMP_CWORD']} {os.environ['COMP_WORDS'].split()}"

    split = ("rmqlite", "status", "-e", "10.0.0.1", ":", "10911", "--js")
    assert mended(6, *split) == "4 ['rmqlite', 'status', '-e', '10.0.0.1:10911', '--js']"
    assert mended(5, *split) == "3 ['rmqlite', 'status', '-e', '10.0.0.1:10911', '--js']"
    assert mended(3, "rmqlite", "x", "--a", "=", "b") == "2 ['rmqlite', 'x', '--a=b']"
    assert mended(2, "rmqlite", "retry", "") == "2 ['rmqlite', 'retry']"


def test_the_endpoint_of_the_line_is_asked(broker: FakeBroker) -> None:
    """--endpoint is before the environment, also for TAB."""
    words = ("retry", "list", "-e", broker.endpoint.replace("unix:", "unix\n:\n"), "w")
    line = "\n".join(["rmqlite", *words])
    at = str(len(line.split("\n")) - 1)
    done = asked("bash", "127.0.0.1:1", COMP_WORDS=line, COMP_CWORD=at)
    assert (done.stdout, done.stderr) == ("workers\n", "")


def test_zsh_and_fish_are_told_the_names_as_they_are(broker: FakeBroker) -> None:
    """They quote what they put into the line themselves; a level comes with its number."""
    said = asked_here("zsh", broker.endpoint, _TYPER_COMPLETE_ARGS="rmqlite topic show or")
    assert said == ['_arguments \'*: :(("orders"', '"or|der"))\'']
    said = asked_here(
        "fish",
        broker.endpoint,
        _TYPER_COMPLETE_ARGS="rmqlite schedule list --level 10",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )
    assert said == ["10s\tlevel 2", "10m\tlevel 3"]


@pytest.mark.parametrize("endpoint", ["127.0.0.1:1", "!!::", "", "no.such.host.invalid:3"])
def test_a_broker_that_does_not_answer_is_silence(endpoint: str) -> None:
    """Whoever presses TAB has asked for nothing; an error would stand in the middle of a line."""
    assert in_bash(endpoint, "retry", "list", "") == [""]


def test_a_broker_that_refuses_is_silence(broker: FakeBroker) -> None:
    """Also an older one, which does not know the question."""

    def refuse(_: object) -> None:
        raise BrokerClosing()

    broker.answers["ListGroups"] = refuse
    assert in_bash(broker.endpoint, "retry", "list", "") == [""]


BY_NAME = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
"""The script is for the shell that is named, not for the one that the tests were started from."""
SHELLS = {
    "bash": ["bash", "--noprofile", "--norc", "-n"],
    "zsh": ["zsh", "-f", "-n"],
    "fish": ["fish", "--no-config", "--no-execute"],
}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_for_a_shell_is_one_that_it_reads(shell: str, tmp_path: Path) -> None:
    """It is typer's; what is ours is that the commands' own words do not break it."""
    done = run_command("--show-completion", shell, env=BY_NAME)
    assert "_RMQLITE_COMPLETE=complete_" in done.stdout
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell} here")
    script = tmp_path / "script"
    script.write_text(done.stdout)
    read = subprocess.run([*SHELLS[shell], str(script)], capture_output=True, text=True)
    assert (read.returncode, read.stderr) == (0, "")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with an executable `rmqlite`, and bash's and fish's scripts."""
    command = tmp_path / "rmqlite"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{AS_INSTALLED}" "$@"\n')
    command.chmod(0o755)
    for shell in ("bash", "fish"):
        (tmp_path / shell).write_text(run_command("--show-completion", shell, env=BY_NAME).stdout)
    return tmp_path


def in_shell(command: list[str], installed: Path, endpoint: str) -> list[str]:
    path = f"{installed}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        env=os.environ | {"PATH": path, "RMQLITE_ENDPOINT": endpoint, "HOME": str(installed)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash here")
def test_bash_itself_completes_a_name_with_a_bar(installed: Path, broker: FakeBroker) -> None:
    """The script, the words, and what bash would put into the line: nothing is run or spread."""
    script = (
        f"source {installed}/bash; cd {installed}; COMP_CWORD=3;"
        "COMP_WORDS=(rmqlite topic show or); _rmqlite_completion rmqlite;"
        "printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    shown = in_shell(["bash", "--norc", "-c", script], installed, broker.endpoint)
    assert shown == ["orders", "or\\|der"]


@pytest.mark.skipif(not shutil.which("fish"), reason="there is no fish here")
def test_fish_itself_completes_a_name_with_a_bar(installed: Path, broker: FakeBroker) -> None:
    """It quotes by itself, so it is told the name as it is."""
    script = f"source {installed}/fish; complete -C 'rmqlite topic show or'"
    shown = in_shell(["fish", "--no-config", "-c", script], installed, broker.endpoint)
    assert sorted(shown) == ["orders", "or|der"]
