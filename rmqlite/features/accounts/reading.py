"""Reads plain_acl.yml, and the files of the folder acl beside it, into accounts.

The format is RocketMQ 4.x's, with three keys of ours: secretFile and secretEnv instead of
secretKey, and role.  RocketMQ ignores a key that it does not know and takes a right that it does
not know for DENY; here both are errors, as everything is that can be understood in two ways.

An error names file, line, key and rule.  It never has a secret in it: the value of a key is
repeated only if it cannot have swallowed another line of the file (_shown), of YAML's own errors
only the words before the first quoted piece are used, and pydantic's are not passed on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import SecretStr

from rmqlite.features.accounts.accounts import (
    ACCOUNTS_MAX,
    DENY,
    PERMS_MAX,
    WHITE_ADDRESSES_MAX,
    Account,
    Accounts,
    Perm,
    Role,
    parse_perm,
)
from rmqlite.features.accounts.plain_yaml import FILE_BYTES_MAX, Node, YamlWrong, read_yaml
from rmqlite.kernel.config.addresses import NO_ADDRESS, AddressPattern, parse_addresses
from rmqlite.kernel.words.errors import ConfigInvalid, InvalidName
from rmqlite.kernel.words.limits import ACCESS_KEY_CHARS_MAX, ACCESS_KEY_CHARS_MIN
from rmqlite.kernel.words.names import check_group, check_topic, group_of, is_retry
from rmqlite.kernel.words.visible import did_you_mean
from rmqlite.protocols.shared.secret_files import from_environment, read_text

FOLDER: Final = "acl"
FILES_MAX: Final = 1_000
SECRET_BYTES_MAX: Final = 4_096
FILE_KEYS: Final = ("globalWhiteRemoteAddresses", "accounts", "dataVersion")
"""RocketMQ's tools write dataVersion; it has no meaning here."""
ACCOUNT_KEYS: Final = (
    *("accessKey", "secretKey", "secretFile", "secretEnv", "whiteRemoteAddress", "admin", "role"),
    *("defaultTopicPerm", "defaultGroupPerm", "topicPerms", "groupPerms"),
)
_SECRETS: Final = ("secretKey", "secretFile", "secretEnv")
_HIDDEN: Final = "***"
_PLAIN_VALUE: Final = re.compile(r"[!#-&(-~]*")
"""ASCII without blanks and quotes."""
_ENV_NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
_T = TypeVar("_T")


def load_accounts(path: Path | str) -> Accounts:
    """The accounts of a file and of the folder beside it.  Raises ConfigInvalid."""
    reading = _Reading()
    for each in files_of(Path(path)):
        _FileReading(reading, each).read()
    return Accounts(
        accounts=reading.accounts,
        global_white_remote_addresses=tuple(reading.white),
        warnings=tuple(dict.fromkeys(reading.warnings)),
        files=tuple(dict.fromkeys(reading.files)),
    )


def files_of(path: Path) -> list[Path]:
    """The file itself, then those of the folder by name; hidden ones are an editor's."""
    folder = path.parent / FOLDER
    try:
        found = [
            each
            for each in (folder.iterdir() if folder.is_dir() else ())
            if each.suffix in (".yml", ".yaml") and not each.name.startswith(".")
        ]
    except OSError as error:
        rule = f"a folder that can be read: {error.strerror}"
        raise ConfigInvalid(str(path), 0, "folder", folder, rule) from error
    if len(found) > FILES_MAX:
        raise ConfigInvalid(str(path), 0, "folder", folder, f"at most {FILES_MAX:,} files")
    return [path, *sorted(found)]


class _Reading:
    """What all files have said so far."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.places: dict[str, str] = {}
        """Access key -> "file:line"."""
        self.white: list[AddressPattern] = []
        self.warnings: list[str] = []
        self.files: list[Path] = []

    def text(self, path: Path, bytes_max: int) -> str:
        """The text of a file, with its warning kept.  Raises ValueError."""
        text, warning = read_text(path, bytes_max)
        self.files.append(path)
        if warning:
            self.warnings.append(warning)
        return text


class _FileReading:
    """One file."""

    def __init__(self, reading: _Reading, path: Path) -> None:
        self._all = reading
        self._path = path

    def read(self) -> None:
        try:
            root = read_yaml(self._all.text(self._path, FILE_BYTES_MAX))
        except YamlWrong as error:
            key = error.key if error.key in (*FILE_KEYS, *ACCOUNT_KEYS) else "file"
            raise self._refusal(error.line, key, None, error.rule) from None
        except ValueError as error:
            raise ConfigInvalid(str(self._path), 0, "file", self._path, str(error)) from None
        if root is None:
            return
        given = self._mapping(root, "file", FILE_KEYS)
        for node in self._list(given, "globalWhiteRemoteAddresses", WHITE_ADDRESSES_MAX):
            self._white_address(node)
        for node in self._list(given, "accounts", ACCOUNTS_MAX):
            self._account(node)

    def _white_address(self, node: Node) -> None:
        key = "globalWhiteRemoteAddresses"
        pattern = self._parsed(node, key, parse_addresses, NO_ADDRESS)
        if pattern is NO_ADDRESS:
            return
        if len(self._all.white) == WHITE_ADDRESSES_MAX:
            rule = f"at most {WHITE_ADDRESSES_MAX:,} in all files"
            raise self._refusal(node.line, key, node, rule)
        if pattern.is_all:
            self._warn(node, "everybody may do everything, without an account")
        self._all.white.append(pattern)

    def _account(self, node: Node) -> None:
        given = self._mapping(node, "accounts", ACCOUNT_KEYS)
        access_key = self._access_key(node, given)
        secret = self._secret(node, given)
        white_key = "whiteRemoteAddress"
        white = self._parsed(given.get(white_key), white_key, parse_addresses, NO_ADDRESS)
        if white.is_all:
            meaning = f"whoever knows the access key {access_key} needs no secret"
            self._warn(given[white_key], meaning)
        topic_perms = self._perms(given, "topicPerms", _topic)
        group_perms = self._perms(given, "groupPerms", _group)
        rights: dict[str, Any] = {
            "defaultTopicPerm": self._default_perm(given, "defaultTopicPerm"),
            "defaultGroupPerm": self._default_perm(given, "defaultGroupPerm"),
            "topicPerms": topic_perms,
            "groupPerms": group_perms,
        }
        role = self._role(given, rights)
        # RocketMQ keeps a group's rights under the name of its retry topic.
        for topic in [each for each in topic_perms if is_retry(each)]:
            group = group_of(topic) or ""
            if group in group_perms:
                rule = f"groupPerms has rights for group {group} already"
                raise self._refusal(given["topicPerms"].line, "topicPerms", None, rule)
            group_perms[group] = topic_perms.pop(topic)
        self._all.accounts[access_key] = Account(
            access_key=access_key,
            secret=SecretStr(secret),
            role=role,
            white_remote_address=white,
            default_topic_perm=rights["defaultTopicPerm"],
            default_group_perm=rights["defaultGroupPerm"],
            topic_perms=topic_perms,
            group_perms=group_perms,
        )

    def _access_key(self, account: Node, given: Mapping[str, Node]) -> str:
        key = "accessKey"
        node = given.get(key)
        access_key = self._parsed(node, key, _access_key, "")
        if node is None or not access_key:
            raise self._refusal(account.line, key, None, "every account has one")
        if access_key in self._all.places:
            rule = f"{self._all.places[access_key]} has this account already"
            raise self._refusal(node.line, key, node, rule)
        if len(self._all.places) == ACCOUNTS_MAX:
            raise self._refusal(node.line, key, node, f"at most {ACCOUNTS_MAX:,} in all files")
        self._all.places[access_key] = f"{self._path}:{node.line}"
        return access_key

    def _secret(self, account: Node, given: Mapping[str, Node]) -> str:
        found = [key for key in _SECRETS if key in given and given[key].value is not None]
        if not found:
            raise self._refusal(account.line, "secretKey", None, f"one of {', '.join(_SECRETS)}")
        if len(found) > 1:
            rule = f"only one of {', '.join(_SECRETS)}"
            raise self._refusal(given[found[1]].line, found[1], None, rule)
        key = found[0]
        read = {"secretKey": _long, "secretFile": self._secret_in_file, "secretEnv": _secret_in_env}
        return self._parsed(given[key], key, read[key], "")

    def _secret_in_file(self, name: str) -> str:
        text = self._all.text(self._path.parent / name, SECRET_BYTES_MAX).rstrip("\r\n")
        if "\n" in text:
            raise ValueError("a file of one line, the secret")
        return _long(text)

    def _role(self, given: Mapping[str, Node], rights: Mapping[str, object]) -> Role:
        is_admin = self._parsed(given.get("admin"), "admin", _switch, False)
        if not self._parsed(given.get("role"), "role", _viewer, False):
            return Role.ADMIN if is_admin else Role.USER
        for key, is_given in {"admin": is_admin, **rights}.items():
            if is_given:
                rule = "not with role: viewer, which looks at everything and changes nothing"
                raise self._refusal(given[key].line, key, None, rule)
        return Role.VIEWER

    def _default_perm(self, given: Mapping[str, Node], key: str) -> Perm:
        return self._parsed(given.get(key), key, parse_perm, DENY)

    def _perms(
        self, given: Mapping[str, Node], key: str, read_name: Callable[[str], str]
    ) -> dict[str, Perm]:
        def read(text: str) -> tuple[str, Perm]:
            name, equals, perm = text.partition("=")
            if not equals:
                raise ValueError("a name, = and its rights, such as orders=PUB|SUB")
            return read_name(name.strip()), parse_perm(perm)

        perms: dict[str, Perm] = {}
        for node in self._list(given, key, PERMS_MAX):
            name, perm = self._parsed(node, key, read, ("", DENY))
            if not name or name in perms:
                rule = f"{name} is there already" if name else "a name and its rights"
                raise self._refusal(node.line, key, node, rule)
            perms[name] = perm
        return perms

    def _mapping(self, node: Node, key: str, known: Collection[str]) -> Mapping[str, Node]:
        if not isinstance(node.value, dict):
            raise self._refusal(node.line, key, node, f"keys and values: {', '.join(known)}")
        for name, below in node.value.items():
            if name not in known:
                raise self._unknown(name, below.line, known)
        return node.value

    def _list(self, given: Mapping[str, Node], key: str, at_most: int) -> list[Node]:
        node = given.get(key)
        if node is None or node.value is None:
            return []
        if not isinstance(node.value, list):
            raise self._refusal(node.line, key, node, "a list, each value after a - ")
        if len(node.value) > at_most:
            raise self._refusal(node.line, key, None, f"at most {at_most:,}")
        return node.value

    def _parsed(self, node: Node | None, key: str, read: Callable[[str], _T], absent: _T) -> _T:
        """The value of a scalar; `absent` if there is none."""
        if node is None or node.value is None:
            return absent
        if not isinstance(node.value, str):
            raise self._refusal(node.line, key, node, "one value, neither a list nor keys")
        try:
            return read(node.value)
        except ValueError as error:
            rule = str(error)
        # Here, not above: so the error has no context that could hold the value.
        raise self._refusal(node.line, key, node, rule)

    def _unknown(self, name: str, line: int, known: Collection[str]) -> ConfigInvalid:
        near = did_you_mean(name, known)
        if not near or not name.isalpha():
            # It may be anything, also a secret whose own key is missing.
            rule = f"no such key; the keys here are {', '.join(known)}"
            return self._refusal(line, _HIDDEN, None, rule)
        return ConfigInvalid(str(self._path), line, name, _HIDDEN, f"no such key{near}")

    def _refusal(self, line: int, key: str, node: Node | None, rule: str) -> ConfigInvalid:
        return ConfigInvalid(str(self._path), line, key, _shown(key, node), rule)

    def _warn(self, node: Node, meaning: str) -> None:
        self._all.warnings.append(f"{self._path}:{node.line}: {node.value!r}: {meaning}")


def _shown(key: str, node: Node | None) -> str:
    """A value as an error repeats it.

    A text with a blank or a quote is not repeated: where a quote is missing, the value of one key
    reaches over the lines of others.
    """
    if node is None or node.value is None:
        return ""
    if key == "secretKey" or not isinstance(node.value, str):
        return _HIDDEN
    if key == "secretEnv" and not _ENV_NAME.fullmatch(node.value):
        return _HIDDEN
    return node.value if _PLAIN_VALUE.fullmatch(node.value) else _HIDDEN


def _long(text: str) -> str:
    # YAML's escapes and the environment can hold halves of characters, which no client can sign.
    if any("\ud800" <= each <= "\udfff" for each in text):
        raise ValueError("text that UTF-8 can express")
    if len(text) < ACCESS_KEY_CHARS_MIN:
        raise ValueError(f"longer than {ACCESS_KEY_CHARS_MIN - 1} characters")
    return text


def _access_key(text: str) -> str:
    if len(text) > ACCESS_KEY_CHARS_MAX or not text.isprintable() or " " in text:
        raise ValueError(f"at most {ACCESS_KEY_CHARS_MAX} printable characters, without blanks")
    return _long(text)


def _secret_in_env(name: str) -> str:
    if not _ENV_NAME.fullmatch(name):
        raise ValueError("the name of an environment variable: A to Z, 0 to 9 and _")
    secret = from_environment(name)
    if secret is None:
        raise ValueError("there is no such environment variable")
    return _long(secret)


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _viewer(text: str) -> bool:
    if text != Role.VIEWER:
        raise ValueError("viewer; for an administrator write admin: true")
    return True


def _topic(name: str) -> str:
    return _named(name, check_topic)


def _group(name: str) -> str:
    if group_of(name) is not None:
        raise ValueError("the name of a group, without %RETRY% or %DLQ%")
    return _named(name, check_group)


def _named(name: str, check: Callable[[str], None]) -> str:
    try:
        check(name)
    except InvalidName as error:
        raise ValueError(f"a name has {error.rule}; there are no patterns") from error
    return name
