"""An SQL92 expression as a tree: RocketMQ 4.9's grammar (reference §9.5).

    or          and { OR and }
    and         equality { AND equality }
    equality    comparison { (= | <>) comparison  |  IS [NOT] NULL }
    comparison  unary { (> | >= | < | <=) unary  |  [NOT] BETWEEN unary AND unary
                        |  [NOT] IN ( text {, text} ) }
    unary       { + | - | NOT } primary
    primary     number  |  'text'  |  TRUE  |  FALSE  |  NULL  |  property  |  ( or )

NOT binds as a minus sign does, tighter than a comparison: `NOT a = 3` is `(NOT a) = 3`.

Unlike RocketMQ, the whole text must be an expression: RocketMQ drops what stands behind a first
complete one without a word, for example `b = 4` in `a = 3 b = 4`, and all of `LIKE 'x%'`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple, NoReturn

from rmqlite.features.sql.sql_tree import (
    DOUBLE_MAX,
    LONG_MAX,
    And,
    Compared,
    In,
    IsNull,
    IsTrue,
    Literal,
    Negated,
    Node,
    Not,
    Or,
    Property,
    Value,
    is_condition,
    order,
)
from rmqlite.kernel.words.errors import ExpressionInvalid

NESTING_MAX: Final = 64
"""How deep the parts of an expression may stand in each other: the parser and the evaluation call
themselves for each level.  An AND or OR of many parts is one level."""
FIELD: Final = "sql"

_TOKEN: Final = re.compile(
    r"""
      (?P<blank>[ \t\n\r\f]+ | --[^\n\r]*[\n\r] | /\*[^*]*\*+(?:[^*/][^*]*\*+)*/)
    | (?P<word>[A-Za-z_$][A-Za-z0-9_$]*)
    | (?P<double>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    | (?P<whole>[0-9]+[lL]?)
    | (?P<text>'(?:''|[^'])*')
    | (?P<sign><>|>=|<=|[=<>(),+-])
    """,
    re.VERBOSE,
)
_KEYWORDS: Final = {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"}
_CONSTANTS: Final[dict[str, Value]] = {"TRUE": True, "FALSE": False, "NULL": None}
_END: Final = ""
_OPERAND: Final = "a property, a number, a text in single quotes, TRUE, FALSE, NULL or ("
_COMPARABLE: Final = "> >= < <= and BETWEEN compare properties and numbers"


class _Token(NamedTuple):
    """what: the sign, the keyword in capitals, or the kind of token; _END behind the last one."""

    what: str
    text: str
    at: int


class _Part(NamedTuple):
    """A part of the tree, the place where its text begins, and how many levels it has."""

    node: Node
    at: int
    depth: int = 0


def parse(text: str) -> Node:
    """The condition that a text is.  Raises ExpressionInvalid."""
    return _Parser(text).condition()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._scanned()
        self._token = next(self._tokens)
        self._nesting = 0

    def condition(self) -> Node:
        part = self._or()
        rest = self._token
        # A comment that the text ends with needs no line end: RocketMQ does not look at it.
        if rest.what != _END and not self._text.startswith("--", rest.at):
            self._refuse(rest.at, "expected AND, OR, a comparison or the end")
        return self._as_condition(part).node

    # ---- the grammar, from the loosest binding to the tightest

    def _or(self) -> _Part:
        parts = [self._and()]
        while self._taken("OR"):
            parts.append(self._and())
        return self._joined(Or, parts)

    def _and(self) -> _Part:
        parts = [self._equality()]
        while self._taken("AND"):
            parts.append(self._equality())
        return self._joined(And, parts)

    def _equality(self) -> _Part:
        part = self._comparison()
        while True:
            if self._taken("="):
                part = self._equal(part, self._comparison())
            elif self._taken("<>"):
                part = self._inverted(self._equal(part, self._comparison()))
            elif self._taken("IS"):
                is_inverted = self._taken("NOT")
                self._expect("NULL", "NULL or NOT NULL behind IS")
                part = self._above(IsNull(part.node), part)
                part = self._inverted(part) if is_inverted else part
            else:
                return part

    def _comparison(self) -> _Part:
        part = self._unary()
        while True:
            sign = self._token.what
            if sign in (">", ">=", "<", "<="):
                self._advance()
                part = self._ordered(sign, part, self._unary())
                continue
            is_inverted = self._taken("NOT")
            if self._taken("BETWEEN"):
                part = self._between(part, is_inverted=is_inverted)
            elif self._taken("IN"):
                part = self._in(part)
                part = self._inverted(part) if is_inverted else part
            elif is_inverted:
                self._refuse(self._token.at, "expected BETWEEN or IN behind NOT")
            else:
                return part

    def _unary(self) -> _Part:
        token = self._token
        if token.what not in ("+", "-", "NOT"):
            return self._primary()
        self._advance()
        self._deeper(token.at)
        part = self._unary()
        self._nesting -= 1
        if token.what == "+":
            return part
        if token.what == "-":
            return self._above(Negated(part.node), part, at=token.at)
        return self._inverted(self._as_condition(part), at=token.at)

    def _primary(self) -> _Part:
        token = self._token
        if token.what == "(":
            self._advance()
            self._deeper(token.at)
            part = self._or()
            self._nesting -= 1
            self._expect(")", ") or another part of the condition")
            return part
        return _Part(self._operand(token), token.at)

    def _operand(self, token: _Token) -> Node:
        if token.what == "word":
            self._advance()
            return Property(token.text)
        if token.what == "text":
            self._advance()
            return Literal(_unquoted(token))
        if token.what == "whole":
            self._advance()
            return Literal(self._whole(token))
        if token.what == "double":
            self._advance()
            return Literal(self._double(token))
        if token.what in _CONSTANTS:
            self._advance()
            return Literal(_CONSTANTS[token.what])
        self._refuse(token.at, f"expected {_OPERAND}")

    # ---- what stands for itself

    def _whole(self, token: _Token) -> int:
        if token.text[0] == "0" and len(token.text) > 1:
            self._refuse(token.at, "a whole number begins with 1 to 9, or is 0")
        digits = token.text.rstrip("lL")
        if len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
            self._refuse(token.at, f"a whole number is at most {LONG_MAX}")
        return int(digits)

    def _double(self, token: _Token) -> float:
        number = float(token.text)
        if number > DOUBLE_MAX:
            self._refuse(token.at, f"a number is at most {DOUBLE_MAX}")
        if number == 0:
            self._refuse(token.at, "a number with a point or an exponent is above 0; write 0")
        return number

    # ---- parts made of parts, with RocketMQ's rules about what can be compared

    def _equal(self, left: _Part, right: _Part) -> _Part:
        for part in (left, right):
            if isinstance(part.node, Literal) and part.node.value is None:
                self._refuse(part.at, "nothing is equal to NULL; write IS NULL or IS NOT NULL")
        if isinstance(left.node, Literal) and isinstance(right.node, Literal):
            other = right.node.value
            if isinstance(left.node.value, bool) and not isinstance(other, bool):
                self._refuse(right.at, "TRUE and FALSE are compared with conditions")
        return self._above(Compared("=", left.node, right.node), left, right)

    def _ordered(self, sign: str, left: _Part, right: _Part) -> _Part:
        for part in (left, right):
            if is_condition(part.node):
                self._refuse(part.at, f"{_COMPARABLE}, not conditions, TRUE, FALSE or NULL")
            if isinstance(part.node, Literal) and isinstance(part.node.value, str):
                self._refuse(part.at, f"{_COMPARABLE}, not texts")
        return self._above(Compared(sign, left.node, right.node), left, right)

    def _between(self, part: _Part, *, is_inverted: bool) -> _Part:
        low = self._unary()
        self._expect("AND", "AND and the end of the range")
        high = self._unary()
        if is_inverted:
            return self._joined(Or, [self._ordered("<", part, low), self._ordered(">", part, high)])
        both = [self._ordered(">=", part, low), self._ordered("<=", part, high)]
        if isinstance(low.node, Literal) and isinstance(high.node, Literal):
            first, last = low.node.value, high.node.value
            # Texts are refused above.
            if isinstance(first, int | float) and isinstance(last, int | float):
                is_backward = first > last if type(first) is type(last) else _above(first, last)
                if is_backward:
                    self._refuse(low.at, "a range begins with its lower end")
        return self._joined(And, both)

    def _in(self, part: _Part) -> _Part:
        if not isinstance(part.node, Property):
            self._refuse(part.at, "IN looks at a property")
        self._expect("(", "( behind IN")
        texts = [self._text_in_list()]
        while self._taken(","):
            texts.append(self._text_in_list())
        self._expect(")", ", or ) in the list of IN")
        return self._above(In(part.node, frozenset(texts)), part)

    def _text_in_list(self) -> str:
        token = self._token
        if token.what != "text":
            self._refuse(token.at, "expected a text in single quotes: IN compares texts")
        self._advance()
        return _unquoted(token)

    def _as_condition(self, part: _Part) -> _Part:
        if isinstance(part.node, Property):
            return self._above(IsTrue(part.node), part)
        if not is_condition(part.node):
            self._refuse(part.at, "expected a condition: a value alone is neither true nor false")
        return part

    def _inverted(self, part: _Part, at: int | None = None) -> _Part:
        return self._above(Not(part.node), part, at=at)

    def _joined(self, kind: type[And | Or], parts: list[_Part]) -> _Part:
        if len(parts) == 1:
            return parts[0]
        parts = [self._as_condition(part) for part in parts]
        return self._above(kind(tuple([part.node for part in parts])), *parts)

    def _above(self, node: Node, *parts: _Part, at: int | None = None) -> _Part:
        """A part one level above others; it begins with the first of them, or at `at`."""
        at = parts[0].at if at is None else at
        depth = 1 + max([part.depth for part in parts])
        if depth > NESTING_MAX:
            self._refuse_depth(at)
        return _Part(node, at, depth)

    def _deeper(self, at: int) -> None:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            self._refuse_depth(at)

    # ---- tokens

    def _taken(self, what: str) -> bool:
        """Is this the next token?  Then go behind it."""
        if self._token.what != what:
            return False
        self._advance()
        return True

    def _expect(self, what: str, expected: str) -> None:
        if not self._taken(what):
            self._refuse(self._token.at, f"expected {expected}")

    def _advance(self) -> None:
        self._token = next(self._tokens)

    def _scanned(self) -> Iterator[_Token]:
        """The tokens; what cannot be one is refused when the parser comes to it."""
        at, text = 0, self._text
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                self._refuse(at, _why_no_token(text, at))
            kind, token = found.lastgroup, found[0]
            if kind == "word" and token.upper() in _KEYWORDS:
                yield _Token(token.upper(), token, at)
            elif kind != "blank":
                yield _Token(token if kind == "sign" else str(kind), token, at)
            at = found.end()
        yield _Token(_END, "", at)

    def _refuse_depth(self, at: int) -> NoReturn:
        self._refuse(at, f"the parts stand in each other more than {NESTING_MAX} levels deep")

    def _refuse(self, at: int, rule: str) -> NoReturn:
        raise ExpressionInvalid(FIELD, self._text, rule, at=at)


def _unquoted(token: _Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _above(first: float, last: float) -> bool:
    """Of a whole number and a double: as RocketMQ compares them."""
    return order(float(first), float(last)) > 0


def _why_no_token(text: str, at: int) -> str:
    if text.startswith("!=", at):
        return "write <> for unequal"
    if text[at] == "'":
        return "the text has no end: expected another single quote"
    if text[at] in '"`':
        return "a text stands in single quotes, the name of a property in none"
    if text.startswith("/*", at):
        return "the comment has no end: expected */"
    return "the character has no meaning outside of a text"
