"""rmqlite acl: what is checked, shown and tried, and that no secret is printed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

SECRET = "s3cret-s3cret"
FILE = f"""\
globalWhiteRemoteAddresses: [10.0.0.1, '192.168.*.*']
accounts:
- accessKey: order-service
  secretKey: {SECRET}
  whiteRemoteAddress: 10.1.1.*
  defaultGroupPerm: SUB
  topicPerms: [orders=PUB, payments=PUB|SUB]
  groupPerms: [auditors=DENY]
- accessKey: operator
  secretKey: {SECRET}
  admin: true
- accessKey: dashboard
  secretKey: {SECRET}
  role: viewer
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "plain_acl.yml"
    path.write_text(FILE)
    path.chmod(0o600)
    return path


def test_a_right_file_is_one_line(run: Run, file: Path) -> None:
    """For a script, the exit code is enough."""
    result = run("acl", "check", str(file))
    assert (result.exit_code, result.stdout, result.stderr) == (
        *(0, "3 accounts, 2 white addresses\n", ""),
    )
    file.write_text("globalWhiteRemoteAddresses: [10.0.0.1]\naccounts: []\n")
    assert run("acl", "check", str(file)).stdout == "0 accounts, 1 white address\n"
    file.write_text(FILE)
    tree = json.loads(run("acl", "check", str(file), "--json").stdout)
    assert tree == {"accounts": 3, "white_addresses": 2, "warnings": []}


def test_the_template_can_be_used_as_it_is(run: Run, tmp_path: Path) -> None:
    """It is the repository's own file, for somebody who has only the wheel."""
    path = tmp_path / "plain_acl.yml"
    path.write_text(run("acl", "template").stdout)
    path.chmod(0o600)
    assert run("acl", "check", str(path)).stdout == "0 accounts, 0 white addresses\n"


@pytest.mark.parametrize("command", ["check", "show"])
def test_warnings_are_told_and_the_file_is_right_all_the_same(
    run: Run, file: Path, command: str
) -> None:
    """On standard error, so that the output stays what it is."""
    file.chmod(0o644)
    result = run("acl", command, str(file))
    assert result.exit_code == 0
    assert result.stderr == (
        f"warning: {file} is open to others than its owner (mode 644): chmod 600 {file}\n"
    )
    (warning,) = json.loads(run("acl", command, str(file), "--json").stdout)["warnings"]
    assert "mode 644" in warning


@pytest.mark.parametrize("words", ["check", "show", "test", "check --json", "show --json"])
def test_a_wrong_file_is_exit_code_1_and_one_line(run: Run, file: Path, words: str) -> None:
    """With file, line, key and rule; without the secret."""
    file.write_text(FILE.replace("topicPerms", "topicPerm"))
    command, *others = words.split()
    arguments = ["operator", "admin"] if command == "test" else []
    result = run("acl", command, str(file), *arguments, *others)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"error: {file}:7: topicPerm='***': no such key; did you mean topicPerms?\n"
    )


def test_a_file_that_is_not_there_is_exit_code_1(run: Run, tmp_path: Path) -> None:
    """As every file that cannot be used."""
    result = run("acl", "check", str(tmp_path / "nothing.yml"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "No such file or directory" in result.stderr


def test_the_table_shows_each_account_and_its_rights(run: Run, file: Path) -> None:
    """A row for each right by name; a terminal's 80 columns are enough for short names."""
    lines = [line.split() for line in run("acl", "show", str(file)).stdout.splitlines()]
    assert lines == [
        ["ACCOUNT", "ROLE", "WHITE", "ADDRESSES", "TOPICS", "GROUPS", "RIGHTS", "BY", "NAME"],
        ["order-service", "user", "10.1.1.*", "DENY", "SUB", "topic", "orders=PUB"],
        ["topic", "payments=PUB|SUB"],
        ["group", "auditors=DENY"],
        ["operator", "admin", "-", "DENY", "DENY", "-"],
        ["dashboard", "viewer", "-", "DENY", "DENY", "-"],
        [],
        ["white", "addresses", "for", "everything:", "10.0.0.1", "192.168.*.*"],
    ]


def test_json_has_every_field_but_the_secret(run: Run, file: Path) -> None:
    """Named one by one, so that a new field is shown only when somebody wants it to be."""
    tree = json.loads(run("acl", "show", str(file), "--json").stdout)
    assert tree["global_white_remote_addresses"] == ["10.0.0.1", "192.168.*.*"]
    assert tree["accounts"][0] == {
        "access_key": "order-service",
        "role": "user",
        "white_remote_address": "10.1.1.*",
        "default_topic_perm": "DENY",
        "default_group_perm": "SUB",
        "topic_perms": {"orders": "PUB", "payments": "PUB|SUB"},
        "group_perms": {"auditors": "DENY"},
    }


TRIED = [
    ("order-service pub orders", None),
    ("order-service sub orders", "No default permission for topic:orders"),
    ("order-service sub payments --group workers", None),
    ("order-service sub payments --group auditors", "No default permission for group:auditors"),
    ("order-service sub --group workers", None),
    ("order-service view payments", None),
    ("order-service view %RETRY%workers", None),
    ("order-service sub SCHEDULE_TOPIC_XXXX", "No default permission for topic:SCHEDULE_TOPIC_X"),
    ("order-service admin orders", "Need admin permission for topic:orders, but accessKey=order-"),
    ("order-service admin", "Need admin permission for the broker, but accessKey=order-service"),
    ("operator admin", None),
    ("operator sub orders --group auditors", None),
    ("dashboard view", None),
    ("dashboard view orders --group auditors", None),
    ("dashboard pub orders", "Viewers change nothing: PUB on topic:orders"),
    ("nobody-here pub orders", "No acl config for nobody-here"),
]


@pytest.mark.parametrize(("words", "rule"), TRIED)
def test_a_right_is_tried(run: Run, file: Path, words: str, rule: str | None) -> None:
    """The answer is the one that a client would get."""
    result = run("acl", "test", str(file), *words.split())
    tree = json.loads(run("acl", "test", str(file), *words.split(), "--json").stdout)
    assert result.exit_code == (1 if rule else 0)
    assert result.stdout.startswith(rule or "allowed\n")
    assert tree == {"allowed": rule is None, "rule": result.stdout.strip() if rule else None}


@pytest.mark.parametrize("words", ["pub", "sub", "read orders", ""])
def test_a_wrong_question_is_exit_code_2(run: Run, file: Path, words: str) -> None:
    """A right to send is one for a topic."""
    result = run("acl", "test", str(file), "operator", *words.split())
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize("words", ["check", "show", "show --json", "test operator admin"])
def test_no_secret_is_printed(run: Run, file: Path, words: str) -> None:
    """By no command."""
    command, *others = words.split()
    result = run("acl", command, str(file), *others)
    assert result.exit_code == 0
    assert SECRET not in result.stdout + result.stderr


def test_a_name_cannot_command_the_terminal(run: Run, file: Path) -> None:
    """An account that is not there is repeated with its controls made visible."""
    result = run("acl", "test", str(file), "\x1b[2Jevil", "pub", "orders")
    assert result.stdout == "No acl config for \\x1b[2Jevil\n"


def test_other_commands_do_not_load_yaml() -> None:
    """Each start of the command line would pay for it."""
    script = "import rmqlite.cli.main, sys; print('yaml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n"
