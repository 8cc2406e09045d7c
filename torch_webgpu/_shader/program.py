"""The declarations of a WGSL program.

The compiler has accepted the program before it comes here. So nothing is checked, and only what a
launch depends on is read: types, module-scope variables, constants, and where functions stand.
"""

import ast
import operator
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from .types import (
    SCALARS,
    Array,
    Atomic,
    Matrix,
    Member,
    Other,
    Pointer,
    Scalar,
    Struct,
    Type,
    Vector,
)

_TOKEN = re.compile(
    r"(?P<blank>\s+|//[^\n\v\f\r\x85\u2028\u2029]*)"
    r"|(?P<comment>/\*)"
    r"|(?P<name>[^\W\d]\w*)"
    r"|(?P<number>0[xX][0-9a-fA-F]+[iu]?|\d[\w.]*(?:(?<=[eEpP])[+-]\w+)?)"
    r"|(?P<sign>&&|\|\||->|==|!=|<=|.)",
    re.DOTALL,
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
# vec3f and mat2x4h are predeclared names of vec3<f32> and mat2x4<f16>.
_SHORT = re.compile(r"(?:vec([234])|mat([234])x([234]))([fiuh])?")
_SUFFIXES = {"f": "f32", "i": "i32", "u": "u32", "h": "f16"}
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


class Token(NamedTuple):
    kind: str  # "name", "number" or "sign"
    text: str
    start: int  # in the source, in characters
    end: int


class Attribute(NamedTuple):
    name: str
    arguments: str
    start: int  # of the arguments, in the source
    end: int


class Variable(NamedTuple):
    """A variable at module scope."""

    name: str
    space: str  # "storage", "uniform", "workgroup", "private"; empty for textures and samplers
    writable: bool
    type: Type | None  # None: the initializer's
    type_text: str
    attributes: dict[str, Attribute]
    start: int  # of the declaration, with its attributes, in the source
    end: int


class Parameter(NamedTuple):
    name: str
    type: Type
    attributes: dict[str, Attribute]


@dataclass
class Function:
    name: str
    parameters: list[Parameter]
    attributes: dict[str, Attribute]
    open_list: int  # the token "(" of the parameters
    body: int  # the token "{" of the body
    end: int  # the token "}" of the body


def tokenize(source: str) -> list[Token]:
    tokens = []
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        assert match is not None and match.lastgroup is not None
        at = match.end()
        if match.lastgroup == "comment":
            depth = 1
            while depth > 0 and (mark := re.compile(r"/\*|\*/").search(source, at)):
                depth += 1 if mark[0] == "/*" else -1
                at = mark.end()
        elif match.lastgroup != "blank":
            tokens.append(Token(match.lastgroup, match[0], match.start(), match.end()))
    return tokens


@dataclass
class Program:
    """A program and the values that its ``override`` constants are given."""

    source: str
    constants: dict[str, float]
    tokens: list[Token] = field(init=False)
    variables: dict[str, Variable] = field(init=False, default_factory=dict)
    functions: dict[str, Function] = field(init=False, default_factory=dict)
    # The key that WebGPU knows each override by: its name, or the number of its @id.
    overrides: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.tokens = [
            *tokenize(self.source),
            Token("sign", "", len(self.source), len(self.source)),
        ]
        self._aliases: dict[str, int] = {}  # the token where the type starts
        self._structs: dict[str, int] = {}  # the token "{"
        self._known: dict[str, Struct] = {}
        self._values: dict[str, str] = {}  # expressions of const and override declarations
        declarations = self._split()
        # Types may be used before their declaration.
        for keyword, at in declarations:
            if keyword == "alias":
                self._aliases[self.text(at + 1)] = at + 3
            elif keyword == "struct":
                self._structs[self.text(at + 1)] = at + 2
        for keyword, at in declarations:
            if keyword in ("const", "override"):
                self._constant(keyword, at)
            elif keyword == "var":
                self._variable(at)
            elif keyword == "fn":
                self._function(at)

    def text(self, token: int) -> str:
        return self.tokens[token].text

    def closing(self, token: int) -> int:
        """The token that closes the bracket at `token`."""
        opening, closing = self.text(token), _CLOSING[self.text(token)]
        depth = 0
        while True:
            depth += (self.text(token) == opening) - (self.text(token) == closing)
            if depth == 0:
                return token
            token += 1

    def evaluate(self, expression: str) -> int:
        """The value of a constant integer expression. Raises NotImplementedError for one that calls
        functions."""

        def value(node: ast.AST) -> int:
            match node:
                case ast.Expression(body):
                    return value(body)
                case ast.Constant(int() as number):
                    return number
                case ast.Name(name) if name in self.constants:
                    return int(self.constants[name])
                case ast.Name(name) if name in self._values:
                    return self.evaluate(self._values[name])
                case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
                    return _OPERATORS[type(op)](value(left), value(right))
                case ast.Call(ast.Name("u32" | "i32"), [argument]):
                    return value(argument)
            raise NotImplementedError(f"the constant '{expression}' is not a plain integer")

        # Without the suffixes of numbers, and with integer division.
        parts = [
            t.text.rstrip("iu") if t.kind == "number" else t.text for t in tokenize(expression)
        ]
        try:
            return value(ast.parse(" ".join(parts).replace("/", "//"), mode="eval"))
        except SyntaxError:
            raise NotImplementedError(
                f"the constant '{expression}' is not a plain integer"
            ) from None

    def type_at(self, token: int) -> tuple[Type, int]:
        """The type that starts at `token`, and the token behind it."""
        name = self.text(token)
        arguments: list[tuple[int, int]] = []  # first token, token behind
        behind = token + 1
        if self.text(behind) == "<":
            arguments, behind = self.template(behind)

        def argument(index: int) -> Type:
            return self.type_at(arguments[index][0])[0]

        if short := _SHORT.fullmatch(name):
            count, columns, rows, suffix = short.groups()
            scalar = Scalar(_SUFFIXES[suffix]) if suffix else argument(0)
            assert isinstance(scalar, Scalar)
            if count:
                return Vector(int(count), scalar), behind
            return Matrix(int(columns), Vector(int(rows), scalar)), behind
        match name:
            case "array":
                first, end = arguments[0]
                count = self._between(*arguments[1]) if len(arguments) > 1 else None
                return Array(argument(0), self._between(first, end), count), behind
            case "atomic":
                scalar = argument(0)
                assert isinstance(scalar, Scalar)
                return Atomic(scalar), behind
            case "ptr":
                return Pointer(argument(1)), behind
        if name in SCALARS:
            return Scalar(name), behind
        if name in self._aliases:
            return self.type_at(self._aliases[name])[0], behind
        if name in self._structs:
            return self._struct(name), behind
        return Other(name), behind

    def _between(self, first: int, end: int) -> str:
        return self.source[self.tokens[first].start : self.tokens[end - 1].end]

    def template(self, token: int) -> tuple[list[tuple[int, int]], int]:
        """The arguments of the template list that "<" at `token` opens, and the token behind it."""
        arguments = []
        depth = 1
        token += 1
        first = token
        while depth > 0:
            text = self.text(token)
            if text in ("(", "["):
                token = self.closing(token)
            depth += (text == "<") - (text == ">")
            if (text == "," and depth == 1) or depth == 0:
                if token > first:
                    arguments.append((first, token))
                first = token + 1
            token += 1
        return arguments, token

    def attributes(self, token: int) -> tuple[dict[str, Attribute], int]:
        """The attributes from `token` on, and the token behind them."""
        found = {}
        while self.text(token) == "@":
            name, behind = self.text(token + 1), token + 2
            start = end = self.tokens[token + 1].end
            if self.text(behind) == "(":
                start = self.tokens[behind].end
                behind = self.closing(behind)
                end = self.tokens[behind].start
                behind += 1
            found[name] = Attribute(name, self.source[start:end], start, end)
            token = behind
        return found, token

    def _split(self) -> list[tuple[str, int]]:
        """The keyword of each declaration and its token."""
        declarations = []
        token = 0
        self._attributes_of: dict[int, tuple[int, dict[str, Attribute]]] = {}
        while self.text(token):
            start = token
            attributes, token = self.attributes(token)
            keyword = self.text(token)
            declarations.append((keyword, token))
            self._attributes_of[token] = (start, attributes)
            while self.text(token) not in (";", "{", ""):
                token = self.closing(token) if self.text(token) in ("(", "[") else token
                token += 1
            if self.text(token) == "{":
                token = self.closing(token)
            token += bool(self.text(token))
        return declarations

    def _constant(self, keyword: str, at: int) -> None:
        name = self.text(at + 1)
        end = at
        while self.text(end) != ";":
            end += 1
        equals = next((i for i in range(at, end) if self.text(i) == "="), None)
        if equals is not None:
            self._values[name] = self._between(equals + 1, end)
        if keyword == "override":
            attributes = self._attributes_of[at][1]
            self.overrides[name] = (
                attributes["id"].arguments.strip() if "id" in attributes else name
            )

    def _variable(self, at: int) -> None:
        start, attributes = self._attributes_of[at]
        at += 1
        space: list[str] = []
        if self.text(at) == "<":
            arguments, at = self.template(at)
            space = [self.text(first) for first, _ in arguments]
        name = self.text(at)
        kind = None
        behind = at + 1
        text = ""
        if self.text(behind) == ":":
            first = behind + 1
            kind, behind = self.type_at(first)
            text = self._between(first, behind)
        while self.text(behind) != ";":
            behind += 1
        self.variables[name] = Variable(
            name,
            space[0] if space else "",
            space[1:] == ["read_write"],
            kind,
            text,
            attributes,
            self.tokens[start].start,
            self.tokens[behind].end,
        )

    def _function(self, at: int) -> None:
        _, attributes = self._attributes_of[at]
        name, open_list = self.text(at + 1), at + 2
        close = self.closing(open_list)
        parameters = []
        token = open_list + 1
        while token < close:
            own, token = self.attributes(token)
            kind, behind = self.type_at(token + 2)
            parameters.append(Parameter(self.text(token), kind, own))
            token = behind + (self.text(behind) == ",")
        body = close
        while self.text(body) != "{":
            body += 1
        self.functions[name] = Function(
            name, parameters, attributes, open_list, body, self.closing(body)
        )

    def _struct(self, name: str) -> Struct:
        if name not in self._known:
            token = self._structs[name] + 1
            members = []
            while self.text(token) != "}":
                attributes, token = self.attributes(token)
                kind, behind = self.type_at(token + 2)
                builtin = attributes.get("builtin")
                members.append(
                    Member(
                        self.text(token),
                        kind,
                        self._number(attributes, "align"),
                        self._number(attributes, "size"),
                        builtin.arguments.strip() if builtin else "",
                    )
                )
                token = behind + (self.text(behind) == ",")
            self._known[name] = Struct(name, tuple(members))
        return self._known[name]

    def _number(self, attributes: dict[str, Attribute], name: str) -> int | None:
        return self.evaluate(attributes[name].arguments) if name in attributes else None
