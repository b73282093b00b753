"""Files that should not be read, and files that say anything: the only error is ConfigInvalid."""

from __future__ import annotations

import os
import socket
import traceback
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rmqlite.features.accounts import reading
from rmqlite.features.accounts.plain_yaml import FILE_BYTES_MAX, LOADERS, YamlWrong, read_yaml
from rmqlite.features.accounts.reading import load_accounts
from rmqlite.kernel.words.errors import ConfigInvalid
from tests.features.accounts.conftest import Load
from tests.support.thinned import few, part_of

SECRET = "qZx7Jw0Kv9"
REFERRING = "accounts:\n- accessKey: service\n  secretFile: {}\n"
BLOCK = f"""\
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: service
  secretKey: {SECRET}
  whiteRemoteAddress: ''
  admin: false
  defaultTopicPerm: DENY
  topicPerms:
  - topicA=DENY
  - "topicB=PUB|SUB"
- secretKey: "{SECRET}"
  accessKey: 'another'
  role: viewer
"""
FLOW = (
    '{"accounts":[{"accessKey":"service","secretKey":"' + SECRET + '","whiteRemoteAddress":"",'
    '"topicPerms":["t=PUB","u=SUB"],"defaultTopicPerm":"DENY"},{accessKey: another, secretKey: '
    + SECRET
    + ", role: viewer}]}"
)


def refusal(path: Path) -> ConfigInvalid:
    with pytest.raises(ConfigInvalid) as caught:
        load_accounts(path)
    return caught.value


def make(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "dangling link":
        path.symlink_to(path.parent / "nowhere")
    elif kind == "circle":
        path.symlink_to(path)
    elif kind == "bytes":
        path.write_bytes(b"accounts:\xff" + SECRET.encode())
    elif kind == "long":
        path.write_bytes(b"#" * (FILE_BYTES_MAX + 1))


KINDS = {
    "pipe": "a regular file",
    "folder": "a regular file",
    "socket": "a file that can be read",
    "device": "a regular file",
    "dangling link": "a file that can be read: No such file or directory",
    "circle": "a file that can be read",
    "nothing": "a file that can be read: No such file or directory",
    "bytes": "text in UTF-8",
    "long": "at most ",
}


@pytest.mark.parametrize(("kind", "rule"), KINDS.items())
def test_only_a_regular_file_of_text_is_read(conf: Path, kind: str, rule: str) -> None:
    """A pipe would wait for ever, a device has no end; the file is named."""
    make(conf, kind)
    error = refusal(conf)
    assert (error.source, error.line, error.field, error.value) == (
        *(str(conf), 0, "file", str(conf)),
    )
    assert error.rule.startswith(rule)


@pytest.mark.parametrize(("kind", "rule"), KINDS.items())
def test_only_a_regular_file_of_text_holds_a_secret(
    load: Load, conf: Path, kind: str, rule: str
) -> None:
    """The same, told at the key that names it."""
    make(conf.parent / "secret", kind)
    with pytest.raises(ConfigInvalid) as caught:
        load(REFERRING.format("secret"))
    error = caught.value
    assert (error.source, error.line, error.field, error.value) == (
        *(str(conf), 3, "secretFile", "secret"),
    )
    assert error.rule.startswith(rule)
    assert SECRET not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "longer than 6 characters"),
        ("sixsix\n", "longer than 6 characters"),
        (f"{SECRET}\n{SECRET}\n", "a file of one line"),
        (SECRET * 410, "at most 4,096 bytes"),
    ],
)
def test_a_secrets_file_has_one_line_and_is_never_repeated(
    load: Load, conf: Path, text: str, rule: str
) -> None:
    """What is in it may be half of a secret."""
    (conf.parent / "secret").write_text(text)
    with pytest.raises(ConfigInvalid) as caught:
        load(REFERRING.format("secret"))
    assert caught.value.rule.startswith(rule)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_secret_may_be_in_a_file_or_in_the_environment(
    load: Load, conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the file of accounts can be shown to others; the line's end is no part of it."""
    monkeypatch.setenv("ACCESS_OF_ANOTHER", f"{SECRET}-2")
    (conf.parent / "secret").write_bytes(b"\xef\xbb\xbf" + SECRET.encode() + b"\r\n")
    (conf.parent / "secret").chmod(0o600)
    text = REFERRING.format("secret") + "- {accessKey: another, secretEnv: ACCESS_OF_ANOTHER}\n"
    read = load(text)
    secrets = [each.secret.get_secret_value() for each in read.accounts.values()]
    assert secrets == [SECRET, f"{SECRET}-2"]
    assert read.files == (conf, conf.parent / "secret")
    assert read.warnings == ()
    monkeypatch.setenv("ACCESS_OF_ANOTHER", "sixsix")
    with pytest.raises(ConfigInvalid, match="longer than 6") as caught:
        load(text)
    assert "sixsix" not in str(caught.value)


def test_links_are_followed(conf: Path, tmp_path: Path) -> None:
    """Kubernetes mounts every secret as one; the mode that counts is that of the file."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path, text in ((conf, REFERRING.format("secret")), (conf.parent / "secret", SECRET)):
        target = elsewhere / path.name
        target.write_text(text)
        target.chmod(0o600)
        path.symlink_to(target)
    read = load_accounts(conf)
    assert list(read.accounts) == ["service"]
    assert read.warnings == ()
    (elsewhere / "secret").chmod(0o640)
    assert len(load_accounts(conf).warnings) == 1


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o622, 0o601, 0o660])
def test_a_file_that_is_open_to_others_is_warned_of(conf: Path, mode: int) -> None:
    """Once for each file, of accounts or of a secret; the accounts count."""
    secret = conf.parent / "secret"
    secret.write_text(SECRET)
    conf.write_text(REFERRING.format("secret") + "- {accessKey: another, secretFile: ./secret}\n")
    conf.chmod(mode)
    secret.chmod(mode)
    read = load_accounts(conf)
    assert len(read.accounts) == 2
    assert read.warnings == tuple(
        f"{path} is open to others than its owner (mode {mode:03o}): chmod 600 {path}"
        for path in (conf, secret)
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_told(load: Load, conf: Path) -> None:
    """With the system's words."""
    load("")
    conf.chmod(0)
    assert "Permission denied" in refusal(conf).rule


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "[{b: "])
def test_no_depth_reaches_the_stack(loader: object, opening: str) -> None:
    """A hundred thousand brackets are half a second for the one who writes them."""
    with pytest.raises(YamlWrong):
        read_yaml(opening * 100_000, loader)


def test_a_bomb_of_aliases_is_refused_at_its_first_anchor(load: Load) -> None:
    """Ten lines would stand for a billion values."""
    text = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    with pytest.raises(ConfigInvalid, match="no anchors and aliases") as caught:
        load(text)
    assert caught.value.line == 1


def check(conf: Path, data: bytes) -> None:
    """Load these bytes; the only error is ConfigInvalid, and no trace of it has the secret."""
    conf.write_bytes(data)
    try:
        read = load_accounts(conf)
    except ConfigInvalid as error:
        told = [str(error), error.field, error.value, error.rule]
        told.append("".join(traceback.format_exception(error)))
        assert [each for each in told if SECRET in each] == []
    else:
        accounts = [each for each in read.accounts.values() if SECRET not in each.access_key]
        assert [each for each in accounts if SECRET in repr(each)] == []


FUZZ = settings(
    max_examples=part_of(400),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
PIECES = st.sampled_from(
    [
        *("accounts", "accessKey", "secretKey", "topicPerms", "role", "viewer", "service", "t=PUB"),
        *(
            ":",
            ": ",
            "\n",
            "\n  ",
            "\n- ",
            "- ",
            ",",
            "[",
            "]",
            "{",
            "}",
            "'",
            '"',
            "\\",
            "#",
            " #",
        ),
        *("&a ", "*a", "!", "!!str ", "%", "%TAG ! x\n", "---\n", "...\n", "? ", "|\n  ", ">\n  "),
        *("\t", "\r", "\x00", "\u2028", "\ufeff", "é", "<<: ", "~", "0x1", "*", "|-", "\x85"),
    ]
)


@FUZZ
@given(st.lists(PIECES, max_size=40))
@example(["accounts", ":", "\n- ", "!!str ", "accessKey"])
def test_any_yaml_is_accounts_or_config_invalid(conf: Path, pieces: list[str]) -> None:
    """Pieces of YAML in any order."""
    check(conf, "".join(pieces).encode())


@FUZZ
@given(st.binary(max_size=200))
def test_any_bytes_are_accounts_or_config_invalid(conf: Path, data: bytes) -> None:
    """Also what is no text."""
    check(conf, data)


@pytest.mark.parametrize("loader", LOADERS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("text", [BLOCK, FLOW], ids=["block", "flow"])
@settings(FUZZ, max_examples=few(40))
@given(data=st.data())
def test_a_slip_of_the_hand_never_shows_a_secret(
    conf: Path, text: str, loader: object, data: st.DataObject
) -> None:
    """A right file in which one or two pieces outside the secret are lost, added or replaced."""
    places = [at for at in range(len(text)) if not _in_secret(text, at)]
    mistaken = text
    # From the end, so that the places before stay where they are.
    for at in sorted(data.draw(st.sets(st.sampled_from(places), max_size=2)), reverse=True):
        piece = data.draw(st.just("") | PIECES)
        lost = data.draw(st.integers(0, 1))
        mistaken = mistaken[:at] + piece + mistaken[at + lost :]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "read_yaml", lambda each: read_yaml(each, loader))
        check(conf, mistaken.encode())


def test_the_files_before_the_slip_are_right(conf: Path) -> None:
    """Else the tests of slips would look at nothing."""
    for text in (BLOCK, FLOW):
        conf.write_text(text)
        secrets = [each.secret.get_secret_value() for each in load_accounts(conf).accounts.values()]
        assert secrets == [SECRET, SECRET]


def _in_secret(text: str, at: int) -> bool:
    return any(text.startswith(SECRET, at - back) for back in range(len(SECRET)) if back <= at)


def test_every_single_lost_character_is_harmless(conf: Path) -> None:
    """All of them, not a sample."""
    for text in (BLOCK, FLOW):
        for at in range(len(text)):
            if not _in_secret(text, at):
                check(conf, (text[:at] + text[at + 1 :]).encode())
