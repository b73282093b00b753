"""plain_acl.yml: what RocketMQ's format means, and how each mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqlite.features.accounts import accounts as limits
from rmqlite.features.accounts import plain_yaml, reading
from rmqlite.features.accounts.accounts import DENY, PERMS, Role
from rmqlite.kernel.words.errors import ConfigInvalid
from tests.features.accounts.conftest import Load

ROCKETMQ = """\
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC=SUB
  groupPerms:
  # the group should convert to retry topic
  - groupA=DENY
  - groupB=PUB|SUB
  - groupC=SUB

- accessKey: rocketmq2
  secretKey: '12345678'
  whiteRemoteAddress: 192.168.1.*
  # if it is admin, it could access all resources
  admin: true
dataVersion:
- counter: 1
  timestamp: 1700000000000
"""
ONE = "accounts:\n- accessKey: service\n  secretKey: s3cret-s3cret\n"
"""Three lines: what is added to it is line 4."""
MISTAKES: list[tuple[str, int, str, str, str]] = [
    # What is added to ONE; line, key, value and a part of the rule.
    ("  topicPerm: []\n", 4, "topicPerm", "***", "did you mean topicPerms?"),
    ("  SecretKey: another-s3cret\n", 4, "SecretKey", "***", "did you mean secretKey?"),
    ("  colour: red\n", 4, "***", "", "no such key; the keys here are accessKey, secretKey"),
    ("  namespacePerms: []\n", 4, "***", "", "no such key"),
    ("  admin: ja\n", 4, "admin", "ja", "true or false"),
    ("  admin: [true]\n", 4, "admin", "***", "one value"),
    ("  role: admin\n", 4, "role", "admin", "write admin: true"),
    ("  defaultTopicPerm: PUBB\n", 4, "defaultTopicPerm", "PUBB", "did you mean PUB?"),
    ("  defaultGroupPerm: ANY\n", 4, "defaultGroupPerm", "ANY", "DENY or PUB or SUB or PUB|SUB"),
    ("  defaultGroupPerm: sub\n", 4, "defaultGroupPerm", "sub", "did you mean SUB?"),
    ("  topicPerms: t=PUB\n", 4, "topicPerms", "t=PUB", "a list"),
    ("  topicPerms:\n  - a=PUB\n  - b=PUBB\n", 6, "topicPerms", "b=PUBB", "did you mean PUB?"),
    ("  topicPerms: [a]\n", 4, "topicPerms", "a", "a name, = and its rights"),
    ("  topicPerms: ['']\n", 4, "topicPerms", "", "a name, = and its rights"),
    ("  topicPerms:\n  -\n", 5, "topicPerms", "", "a name and its rights"),
    ("  topicPerms: [=PUB]\n", 4, "topicPerms", "=PUB", "a name has 1 to 127"),
    ("  topicPerms: [{a: PUB}]\n", 4, "topicPerms", "***", "one value"),
    ("  topicPerms: [a=PUB=SUB]\n", 4, "topicPerms", "a=PUB=SUB", "DENY or PUB"),
    ("  topicPerms: ['order*=PUB']\n", 4, "topicPerms", "order*=PUB", "there are no patterns"),
    ("  topicPerms:\n  - a=PUB\n  - a=SUB\n", 6, "topicPerms", "a=SUB", "a is there already"),
    ("  groupPerms: ['%RETRY%g=SUB']\n", 4, "groupPerms", "%RETRY%g=SUB", "without %RETRY%"),
    ("  groupPerms: ['%DLQ%g=SUB']\n", 4, "groupPerms", "%DLQ%g=SUB", "without %RETRY%"),
    (
        "  groupPerms: [g=SUB]\n  topicPerms: ['%RETRY%g=DENY']\n",
        *(5, "topicPerms", "", "groupPerms has rights for group g already"),
    ),
    ("  whiteRemoteAddress: 10.0.0\n", 4, "whiteRemoteAddress", "10.0.0", "an IP address"),
    ("  whiteRemoteAddress: *\n", 4, "file", "", "YAML that can be read"),
    ("  whiteRemoteAddress: *a\n", 4, "whiteRemoteAddress", "", "write a * in quotes"),
    ("  whiteRemoteAddress: &a 10.0.0.1\n", 4, "whiteRemoteAddress", "", "no anchors"),
    ("  secretFile: x\n", 4, "secretFile", "", "only one of secretKey, secretFile, secretEnv"),
    ("  admin: true\n  role: viewer\n", 4, "admin", "", "not with role: viewer"),
    ("  role: viewer\n  topicPerms: [t=SUB]\n", 5, "topicPerms", "", "not with role: viewer"),
    ("  role: viewer\n  defaultGroupPerm: SUB\n", 5, "defaultGroupPerm", "", "not with role"),
    ("  admin: true\n  admin: false\n", 5, "admin", "", "line 4 has this key already"),
    ("  secretKey: x\n", 4, "secretKey", "", "line 3 has this key already"),
    ("  ? [admin]\n  : true\n", 4, "file", "", "a key is one word"),
    ("  ~: true\n", 4, "file", "", "a key is one word"),
    ("  <<: {admin: true}\n", 4, "***", "", "no such key"),
    ("  admin: !!bool true\n", 4, "admin", "", "no tags"),
    ("  admin: ! true\n", 4, "admin", "", "no tags"),
    ("  topicPerms: !!seq [a=PUB]\n", 4, "topicPerms", "", "no tags"),
    ("  topicPerms: [[[[[[[[a]]]]]]]]\n", 4, "topicPerms", "", "at most 8 values inside"),
    ("  admin: tr\x07ue\n", 4, "file", "", "control characters"),
    ("  admin: {\n", 5, "file", "", "YAML that can be read"),
    ("  admin true\n", 5, "file", "", "could not find expected ':'"),
    ("---\naccounts: []\n", 4, "file", "", "one document"),
    ("- accessKey: another\n", 4, "secretKey", "", "one of secretKey, secretFile, secretEnv"),
    ("- secretKey: another\n", 4, "accessKey", "", "every account has one"),
    ("-\n", 4, "accounts", "", "keys and values: accessKey"),
    ("- another\n", 4, "accounts", "another", "keys and values"),
    ("- accessKey: sixsix\n", 4, "accessKey", "sixsix", "longer than 6 characters"),
    ("- accessKey: with blank\n", 4, "accessKey", "***", "without blanks"),
    (f"- accessKey: {'a' * 256}\n", 4, "accessKey", "a" * 128, "at most 255"),
    ("- accessKey: another\n  secretKey: sixsix\n", 5, "secretKey", "***", "longer than 6"),
    ("- accessKey: another\n  secretKey: [s3cret-s3cret]\n", 5, "secretKey", "***", "one value"),
    (
        "- accessKey: another\n  secretEnv: not-a-name\n",
        5,
        "secretEnv",
        "***",
        "the name of an env",
    ),
    ("- accessKey: another\n  secretEnv: NO_SUCH\n", 5, "secretEnv", "NO_SUCH", "there is no such"),
    ("accounts: []\n", 4, "accounts", "", "line 1 has this key already"),
    ("account: []\n", 4, "account", "***", "did you mean accounts?"),
    ("globalWhiteRemoteAddresses: '*'\n", 4, "globalWhiteRemoteAddresses", "*", "a list"),
    ("globalWhiteRemoteAddresses: [a]\n", 4, "globalWhiteRemoteAddresses", "a", "an IP address"),
]


@pytest.fixture(params=plain_yaml.LOADERS, ids=lambda loader: loader.__name__)
def each_loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With libyaml, and without it."""
    monkeypatch.setattr(plain_yaml, "LOADERS", [request.param])


def refusal(load: Load, text: str) -> ConfigInvalid:
    with pytest.raises(ConfigInvalid) as caught:
        load(text)
    return caught.value


def test_rocketmqs_own_file_means_what_it_means_there(load: Load) -> None:
    """The example that RocketMQ comes with, and the version that its tools add."""
    read = load(ROCKETMQ)
    first, second = read.accounts.values()
    assert [each.text for each in read.global_white_remote_addresses] == [
        *("10.10.103.*", "192.168.0.*"),
    ]
    assert (first.access_key, first.secret.get_secret_value()) == ("RocketMQ", "12345678")
    assert (first.role, first.white_remote_address.text) == (Role.USER, "")
    assert (first.default_topic_perm, first.default_group_perm) == (DENY, PERMS["SUB"])
    assert first.topic_perms == {
        "topicA": DENY,
        "topicB": PERMS["PUB|SUB"],
        "topicC": PERMS["SUB"],
    }
    assert first.group_perms == {
        "groupA": DENY,
        "groupB": PERMS["PUB|SUB"],
        "groupC": PERMS["SUB"],
    }
    assert (second.is_admin, second.secret.get_secret_value()) == (True, "12345678")
    assert second.white_remote_address.matches("192.168.1.7")
    assert read.warnings == ()


@pytest.mark.parametrize(
    "text",
    [
        *("", "# nothing\n", "---\n", "accounts:\n", "accounts: []\n", "null\n"),
        "globalWhiteRemoteAddresses:\n-\n- ''\n",
    ],
)
def test_a_file_may_have_no_accounts(load: Load, text: str) -> None:
    """Then nobody may do anything."""
    read = load(text)
    assert (read.accounts, read.global_white_remote_addresses) == ({}, ())


def test_a_value_is_the_text_that_was_written(load: Load) -> None:
    """YAML would make numbers and dates of these; nothing that is written becomes nothing."""
    text = "accounts:\n- accessKey: 0123456\n  secretKey: 1_000_000.50\n  admin: TRUE\n"
    (read,) = load(text + "  defaultTopicPerm: ~\n  topicPerms: null\n").accounts.values()
    assert (read.access_key, read.secret.get_secret_value()) == ("0123456", "1_000_000.50")
    assert read.is_admin
    assert read.default_topic_perm == DENY


def test_rights_on_a_retry_topic_are_those_of_its_group(load: Load) -> None:
    """RocketMQ keeps both under one name; a dead-letter topic stays a topic."""
    (read,) = load(
        ONE + "  topicPerms: ['%RETRY%g = SUB', '%DLQ%g=SUB', ' t =SUB|PUB ']\n"
    ).accounts.values()
    assert read.group_perms == {"g": PERMS["SUB"]}
    assert read.topic_perms == {"%DLQ%g": PERMS["SUB"], "t": PERMS["PUB|SUB"]}


def test_a_viewer_may_say_that_it_has_no_rights(load: Load) -> None:
    """false, DENY and empty lists agree with the role."""
    text = "  role: viewer\n  admin: false\n  defaultTopicPerm: DENY\n  topicPerms: []\n"
    (read,) = load(ONE + text).accounts.values()
    assert read.is_viewer


@pytest.mark.usefixtures("each_loader")
@pytest.mark.parametrize(
    "line",
    [
        *('secretKey: "\\ud800-s3cret"', 'secretFile: "\\ud800"', 'secretFile: "a\\0b"'),
        *('secretEnv: "\\ud800"', "secretEnv: HALF_A_CHARACTER"),
        'secretKey: s3cret-s3cret\n  topicPerms: ["\\ud800=PUB"]',
        'secretKey: s3cret-s3cret\n  whiteRemoteAddress: "\\ud800"',
    ],
)
def test_what_utf8_cannot_express_is_refused(
    load: Load, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """YAML's escapes can write it, and it would fail at the first signature."""
    monkeypatch.setenv("HALF_A_CHARACTER", "\udcff-s3cret")
    assert "s3cret" not in str(refusal(load, f"accounts:\n- accessKey: service\n  {line}\n"))


@pytest.mark.usefixtures("each_loader")
@pytest.mark.parametrize(("added", "line", "key", "value", "rule"), MISTAKES)
def test_a_mistake_is_told_with_line_key_value_and_rule(
    load: Load, conf: Path, added: str, line: int, key: str, value: str, rule: str
) -> None:
    """So that whoever made it finds it; a secret is never repeated."""
    error = refusal(load, ONE + added)
    assert (error.source, error.line, error.field) == (str(conf), line, key)
    assert error.value == value or error.value.startswith(f"{value}…")
    assert rule in error.rule
    assert "s3cret" not in str(error)
    assert str(error).startswith(f"{conf}:{line}: {key}=")


def test_an_account_that_is_there_twice_names_both_places(load: Load, conf: Path) -> None:
    """In one file, or in two."""
    error = refusal(load, ONE + "- accessKey: service\n  secretKey: s3cret-s3cret\n")
    assert (error.line, error.rule) == (4, f"{conf}:2 has this account already")
    other = conf.parent / "acl" / "more.yml"
    other.parent.mkdir()
    other.write_text(ONE)
    error = refusal(load, ONE)
    assert (error.source, error.line) == (str(other), 2)
    assert error.rule == f"{conf}:2 has this account already"


def test_the_folder_beside_the_file_is_read_by_name(load: Load, conf: Path) -> None:
    """*.yml and *.yaml; what an editor hides or a tool keeps there is not."""
    folder = conf.parent / "acl"
    folder.mkdir()
    for name in ("b.yml", "a.yaml", ".c.yml", "d.yml~", "e.txt"):
        text = f"accounts: [{{accessKey: account-{name[0]}, secretKey: s3cret-s3cret}}]\n"
        (folder / name).write_text(text + "globalWhiteRemoteAddresses: [10.0.0.1]\n")
        (folder / name).chmod(0o600)
    read = load(ONE)
    assert list(read.accounts) == ["service", "account-a", "account-b"]
    assert len(read.global_white_remote_addresses) == 2
    assert read.files == (conf, folder / "a.yaml", folder / "b.yml")


def test_a_mistake_in_the_folder_names_its_file(load: Load, conf: Path) -> None:
    """The main file is right."""
    folder = conf.parent / "acl"
    folder.mkdir()
    (folder / "x.yml").write_text("accounts: 5\n")
    assert refusal(load, ONE).source == str(folder / "x.yml")


def test_whoever_lets_everybody_in_is_warned(load: Load, conf: Path) -> None:
    """RocketMQ asks nobody from a white address for anything."""
    read = load(ONE + "  whiteRemoteAddress: '*'\nglobalWhiteRemoteAddresses: ['*.*.*.*']\n")
    assert read.warnings == (
        f"{conf}:5: '*.*.*.*': everybody may do everything, without an account",
        f"{conf}:4: '*': whoever knows the access key service needs no secret",
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ACCOUNTS_MAX", ONE + "- {accessKey: second1, secretKey: s3cret-s3cret}\n"),
        ("PERMS_MAX", ONE + "  topicPerms: [a=PUB, b=PUB]\n"),
        ("WHITE_ADDRESSES_MAX", ONE + "globalWhiteRemoteAddresses: [10.0.0.1, 10.0.0.2]\n"),
    ],
)
def test_each_number_has_a_limit(
    load: Load, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    """Named, and far beyond what a broker needs."""
    assert getattr(limits, name) == 10_000
    monkeypatch.setattr(reading, name, 1)
    assert refusal(load, text).rule.startswith("at most 1")


def test_the_limits_count_over_all_files(
    load: Load, conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a folder would have no limit."""
    other = conf.parent / "acl" / "more.yml"
    other.parent.mkdir()
    other.write_text("accounts: [{accessKey: second1, secretKey: s3cret-s3cret}]\n")
    monkeypatch.setattr(reading, "ACCOUNTS_MAX", 1)
    error = refusal(load, ONE)
    assert (error.source, error.rule) == (str(other), "at most 1 in all files")
    other.write_text("globalWhiteRemoteAddresses: [10.0.0.1]\n")
    monkeypatch.setattr(reading, "WHITE_ADDRESSES_MAX", 1)
    error = refusal(load, ONE + "globalWhiteRemoteAddresses: [10.0.0.1]\n")
    assert (error.source, error.rule) == (str(other), "at most 1 in all files")
    monkeypatch.setattr(reading, "FILES_MAX", 0)
    assert refusal(load, ONE).rule == "at most 0 files"


def test_the_example_can_be_used_with_all_its_comments_removed(load: Load, conf: Path) -> None:
    """What an operator copies works; it needs the secrets that it names, and has none."""
    text = Path(__file__).parents[3].joinpath("conf/plain_acl.yml").read_text("utf-8")
    assert load(text).accounts == {}
    secrets = conf.parent / "secrets"
    secrets.mkdir()
    for name in ("order-service", "dashboard"):
        (secrets / name).write_text("s3cret-s3cret\n")
    head, _, accounts = text.partition("accounts: []\n")
    body = "".join(
        line.removeprefix("# ") + "\n"
        for line in accounts.splitlines()
        if line.startswith(("# -", "#   ", "# #"))
    )
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RMQLITE_OPERATOR_SECRET", "s3cret-s3cret")
        read = load(f"{head}accounts:\n{body}")
    assert {key: each.role for key, each in read.accounts.items()} == {
        "order-service": Role.USER,
        "operator": Role.ADMIN,
        "dashboard": Role.VIEWER,
    }
