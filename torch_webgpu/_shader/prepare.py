"""The text of one kernel as the device gets it.

The device runs without the checks that WebGPU prescribes for shaders, because the backend's own
kernels guard their bounds. A user's kernel gets these checks as text:

- an index into memory that invocations share, or into an array of a declared type, is clamped to
  the last element;
- workgroup variables start as zeros.

Bindings move to the numbers that the backend's pipelines use: storage buffers count from 0 in the
order of their numbers, and all uniforms are members of one struct at the number of the parameters.
"""

import math
import re
from dataclasses import dataclass, field

from torch_webgpu import _C

from .program import Function, Program, Variable
from .types import (
    Array,
    Atomic,
    Layout,
    Matrix,
    Other,
    Pointer,
    Struct,
    Type,
    Vector,
    element_of,
    has_atomics,
)

_UNIFORMS = "torch_webgpu_uniforms"
_LANE = "torch_webgpu_lane"
_VALUE_ENDS = (")", "]")
_KEYWORDS = ("return", "if", "while", "switch", "for")
_GENERIC = re.compile(r"vec[234]|mat[234]x[234]|array|bitcast")


@dataclass
class Prepared:
    """A kernel ready to compile, and what a launch fills."""

    source: str
    storage: list[Variable]  # in the order of the shader's bindings
    uniforms: list[Variable]
    arguments: list[Variable]  # both, in the order of their numbers in the program
    workgroup_size: tuple[int, int, int]
    layout: Layout


@dataclass
class _Scope:
    """Names that a block declares; None where the type is not known."""

    types: dict[str, Type | None] = field(default_factory=dict)
    end: int = -1  # the token that closes it


@dataclass
class _Walk:
    """Goes through the function bodies once: which names they use, and where indices stand."""

    program: Program
    edits: list[tuple[int, int, str]] = field(default_factory=list)  # start, end, text
    uses: dict[str, set[str]] = field(default_factory=dict)  # by function: variables, functions
    uniform_uses: list[tuple[str, int]] = field(default_factory=list)  # name, token

    def run(self) -> None:
        for function in self.program.functions.values():
            self._body(function)

    def _body(self, function: Function) -> None:
        text = self.program.text
        used = self.uses.setdefault(function.name, set())
        top = _Scope({p.name: p.type for p in function.parameters}, function.end)
        scopes = [top]
        # A name is in scope only after its declaration: (token of the ";", name, type).
        pending: list[tuple[int, str, Type | None]] = []
        token = function.body + 1
        while token < function.end:
            while pending and token >= pending[0][0]:
                _, name, kind = pending.pop(0)
                scopes[-1].types[name] = kind
            while scopes[-1].end < token:
                scopes.pop()
            word = text(token)
            if word == "{":
                scopes.append(_Scope(end=self.program.closing(token)))
            elif word == "for":
                # The loop's variable lives as long as its body.
                body = self.program.closing(token + 1) + 1
                while text(body) == "@":
                    body = self.program.attributes(body)[1]
                scopes.append(_Scope(end=self.program.closing(body)))
            elif word in ("let", "var", "const"):
                declaration, token = self._declaration(token, scopes)
                pending.append(declaration)
            elif self.program.tokens[token].kind == "name" and text(token - 1) not in (".", "@"):
                self._name(token, scopes, used)
            token += 1

    def _declaration(
        self, token: int, scopes: list[_Scope]
    ) -> tuple[tuple[int, str, Type | None], int]:
        """The entry for `pending` (see above) of a declaration, and the token of its name."""
        text = self.program.text
        keyword, token = text(token), token + 1
        if text(token) == "<":
            token = self.program.template(token)[1]
        at_name, behind = token, token + 1
        kind: Type | None = None
        if text(behind) == ":":
            kind, behind = self.program.type_at(behind + 1)
        elif keyword == "let" and text(behind) == "=":
            kind = self._pointer(behind + 1, scopes)
        end = behind
        while text(end) != ";":
            end = self.program.closing(end) if text(end) in ("(", "[") else end
            end += 1
        return (end, text(at_name), kind), at_name

    def _pointer(self, token: int, scopes: list[_Scope]) -> Type | None:
        """The type of a declaration's value, where that is an address or another pointer."""
        text = self.program.text
        takes_address = text(token) == "&"
        root = token + takes_address
        while text(root) in ("(", "*", "&"):
            root += 1
        found, kind = self._lookup(text(root), scopes)
        if not found or (root > token and not takes_address):
            return None
        result, _, end = self._chain(root, kind)
        if text(end) == ";":
            if takes_address:
                return Pointer(result) if result is not None else None
            return result if isinstance(result, Pointer) else None
        return None

    def _lookup(self, name: str, scopes: list[_Scope]) -> tuple[bool, Type | None]:
        for scope in reversed(scopes):
            if name in scope.types:
                return True, scope.types[name]
        variable = self.program.variables.get(name)
        return variable is not None, variable.type if variable else None

    def _name(self, token: int, scopes: list[_Scope], used: set[str]) -> None:
        name = self.program.text(token)
        is_local = any(name in scope.types for scope in scopes)
        variable = None if is_local else self.program.variables.get(name)
        if variable is not None:
            used.add(name)
            if variable.space == "uniform":
                self.uniform_uses.append((name, token))
        elif not is_local and name in self.program.functions:
            used.add(name)
            return
        found, kind = self._lookup(name, scopes)
        if not found or kind is None:
            return
        _, indices, end = self._chain(token, kind)
        for opening, limit in indices:
            self._clamp(opening, limit)
        self._check_address(token, end, variable, kind)

    def _check_address(self, token: int, end: int, variable: Variable | None, kind: Type) -> None:
        """Refuses a pointer to shared memory that the walk could not follow: its address may only
        be named by `let` or given to a function."""
        text = self.program.text
        shared = variable is not None and variable.space in ("storage", "workgroup")
        if not shared and not isinstance(kind, Pointer):
            return
        first = token
        while text(first - 1) in ("(", "*") and text(end) == ")":
            first -= 1
            if text(first) == "(" and not self._is_call(first):
                end += 1
            elif text(first) == "(":
                first += 1
                break
        before = text(first - 1)
        unary = before == "&" and (
            (self.program.tokens[first - 2].kind == "sign" and text(first - 2) not in _VALUE_ENDS)
            or text(first - 2) == "return"
        )
        if not unary:
            return
        ahead = text(first - 2)
        is_argument = ahead == "," or (ahead == "(" and self._is_call(first - 2))
        if (ahead == "=" and text(end) == ";") or (is_argument and text(end) in (")", ",")):
            return
        line = self.program.source.count("\n", 0, self.program.tokens[token].start) + 1
        raise NotImplementedError(
            f"line {line}: the address of '{text(token)}' may be named by 'let' or be a function's "
            "argument, nothing else"
        )

    def _is_call(self, opening: int) -> bool:
        """Whether "(" belongs to a call, and not to an expression in parentheses."""
        before = self.program.tokens[opening - 1]
        if before.text == ">":
            return self._ends_template(opening - 1)
        return before.kind == "name" and before.text not in _KEYWORDS

    def _ends_template(self, token: int) -> bool:
        """Whether ">" ends the arguments of a type, as in `vec2<f32>(x)`."""
        text = self.program.text
        depth = 0
        while text(token) not in (";", "{", "}"):
            depth += (text(token) == ">") - (text(token) == "<")
            if depth == 0:
                return _GENERIC.fullmatch(text(token - 1)) is not None
            token -= 1
        return False

    def _chain(
        self, root: int, kind: Type | None
    ) -> tuple[Type | None, list[tuple[int, str]], int]:
        """Follows what stands behind a name: members and indices.

        Returns the type of the whole, each index that needs a limit (the token "[", the largest
        index), and the token behind.
        """
        program, text = self.program, self.program.text
        path = text(root)
        indices = []
        first, token = root, root + 1
        while kind is not None:
            if text(token) in (".", "[") and isinstance(kind, Pointer):
                # `p[i]` and `p.m` mean `(*p)[i]` and `(*p).m`.
                kind, path = kind.target, f"(*{path})"
            if text(token) == "[":
                close = program.closing(token)
                limit = self._limit(kind, path)
                if limit is not None:
                    indices.append((token, limit))
                path += program.source[program.tokens[token].start : program.tokens[close].end]
                kind = element_of(kind)
                token = close + 1
            elif text(token) == ".":
                name = text(token + 1)
                members = kind.members if isinstance(kind, Struct) else ()
                kind = next((m.type for m in members if m.name == name), None)
                path += f".{name}"
                token += 2
            elif text(token) == ")" and text(first - 1) == "*" and isinstance(kind, Pointer):
                kind, path, first = kind.target, f"(*{path})", first - 1
            elif text(token) == ")" and text(first - 1) == "(" and not self._is_call(first - 1):
                first, token = first - 1, token + 1
            else:
                break
        return kind, indices, token

    def _limit(self, kind: Type, path: str) -> str | None:
        match kind:
            case Array(_, _, None):
                return f"arrayLength(&{path}) - 1u"
            case Array(_, _, count):
                return f"u32({count}) - 1u"
            case Vector(count) | Matrix(count):
                return f"{count - 1}u"
        return None

    def _clamp(self, opening: int, limit: str) -> None:
        tokens = self.program.tokens
        closing = self.program.closing(opening)
        constant = opening + 2 == closing and tokens[opening + 1].kind == "number"
        if constant and not limit.startswith("arrayLength"):
            return  # the compiler has checked the index against the limit
        start, end = tokens[opening].end, tokens[closing].start
        self.edits.append((start, start, "min(u32("))
        self.edits.append((end, end, f"), {limit})"))


def entry_points(program: Program) -> list[str]:
    return [name for name, f in program.functions.items() if "compute" in f.attributes]


def prepare(program: Program, entry: str) -> Prepared:
    """Prepares one entry point. Raises NotImplementedError, with what is not supported, for a
    kernel that a launch cannot supply with all that it uses."""
    walk = _Walk(program)
    walk.run()
    used = _closure(walk.uses, entry)
    variables = [v for name, v in program.variables.items() if name in used]
    arguments = sorted(
        (v for v in variables if "binding" in v.attributes),
        key=lambda v: program.evaluate(v.attributes["binding"].arguments),
    )
    for variable in arguments:
        _check_binding(program, variable)
    storage = [v for v in arguments if v.space == "storage"]
    uniforms = [v for v in arguments if v.space == "uniform"]
    layout = Layout(program.evaluate)
    uniform_bytes = sum(-(-layout.size(v.type) // 16) * 16 for v in uniforms if v.type)
    if uniform_bytes > _C.params_window:
        raise NotImplementedError(
            f"the uniforms of {entry}() take {uniform_bytes} bytes, and at most {_C.params_window} "
            "are possible"
        )
    size = workgroup_size(program, entry)

    edits = walk.edits
    for number, variable in enumerate(storage):
        binding = variable.attributes["binding"]
        edits.append((binding.start, binding.end, str(number)))
    edits += _start_with_zeros(program)
    edits += _replace_uniforms(program, uniforms, walk.uniform_uses)
    workgroup = [v for v in variables if v.space == "workgroup"]
    if workgroup:
        edits += _clear(program, program.functions[entry], workgroup, math.prod(size))
    return Prepared(_apply(program.source, edits), storage, uniforms, arguments, size, layout)


def called_functions(program: Program, entry: str) -> set[str]:
    """The program's functions that an entry point calls, directly or through others."""
    names = program.functions.keys()
    uses = {
        name: {program.text(k) for k in range(function.body, function.end)} & names
        for name, function in program.functions.items()
    }
    return _closure(uses, entry)


def _closure(uses: dict[str, set[str]], entry: str) -> set[str]:
    used: set[str] = set()
    open_names = [entry]
    while open_names:
        for name in uses.get(open_names.pop(), set()) - used:
            used.add(name)
            open_names.append(name)
    return used


def _check_binding(program: Program, variable: Variable) -> None:
    if program.evaluate(variable.attributes["group"].arguments) != 0:
        raise NotImplementedError(f"'{variable.name}' is in another group than @group(0)")
    if variable.space not in ("storage", "uniform") or isinstance(variable.type, Other):
        raise NotImplementedError(
            f"'{variable.name}': an argument is a storage buffer or a uniform, never a texture"
        )


def workgroup_size(program: Program, entry: str) -> tuple[int, int, int]:
    text = program.functions[entry].attributes["workgroup_size"].arguments
    sizes = [program.evaluate(part) for part in _split(text)]
    x, y, z = [*sizes, 1, 1][:3]
    return x, y, z


def _split(text: str) -> list[str]:
    """The parts between commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "(<") - (char in ")>")
        if char == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [part for part in [*parts, text[start:]] if part.strip()]


def _replace_uniforms(
    program: Program, uniforms: list[Variable], uses: list[tuple[str, int]]
) -> list[tuple[int, int, str]]:
    if not uniforms:
        return []
    names = {variable.name for variable in uniforms}
    edits = [(variable.start, variable.end, "") for variable in uniforms]
    for name, token in uses:
        if name in names:
            place = program.tokens[token]
            edits.append((place.start, place.end, f"{_UNIFORMS}.{name}"))
    members = " ".join(f"@align(16) {v.name}: {v.type_text}," for v in uniforms)
    end = len(program.source)
    edits.append(
        (
            end,
            end,
            f"\nstruct {_UNIFORMS}_type {{ {members} }}\n"
            f"@group(0) @binding({_C.params_binding}) "
            f"var<uniform> {_UNIFORMS}: {_UNIFORMS}_type;\n",
        )
    )
    return edits


def _start_with_zeros(program: Program) -> list[tuple[int, int, str]]:
    """Gives the variables of functions that have no value their zero value. WGSL says that they
    have it each time that a loop reaches them, but Tint clears them when the function starts."""
    edits = []
    for function in program.functions.values():
        for at in range(function.body, function.end):
            if program.text(at) != "var":
                continue
            end = at
            while program.text(end) not in ("=", ";"):
                end += 1
            if program.text(end) == "=":
                continue
            colon = next(i for i in range(at, end) if program.text(i) == ":")
            kind = program.source[program.tokens[colon + 1].start : program.tokens[end - 1].end]
            start = program.tokens[end].start
            edits.append((start, start, f" = {kind}()"))
    return edits


def _clear(
    program: Program, function: Function, variables: list[Variable], invocations: int
) -> list[tuple[int, int, str]]:
    """Makes a kernel start with zeros in its workgroup variables."""
    edits = []
    lane = ""
    for parameter in function.parameters:
        builtin = parameter.attributes.get("builtin")
        if builtin and builtin.arguments.strip() == "local_invocation_index":
            lane = parameter.name
        elif isinstance(parameter.type, Struct):
            for member in parameter.type.members:
                if member.builtin == "local_invocation_index":
                    lane = f"{parameter.name}.{member.name}"
    if not lane:
        lane = _LANE
        start = program.tokens[function.open_list].end
        edits.append((start, start, f"@builtin(local_invocation_index) {lane}: u32, "))
    statements = []
    for variable in variables:
        if isinstance(variable.type, Array):
            index = f"{_LANE}_0"
            element = f"{variable.name}[{index}]"
            zero = _zero(element, variable.type.element, variable.type.text, 1)
            statements.append(
                f"for (var {index} = {lane}; {index} < u32({variable.type.count}); "
                f"{index} += {invocations}u) "
                f"{{ {zero} }}"
            )
        elif variable.type is not None:
            zero = _zero(variable.name, variable.type, variable.type_text, 0)
            statements.append(f"if ({lane} == 0u) {{ {zero} }}")
    start = program.tokens[function.body].end
    edits.append((start, start, f" {' '.join(statements)} workgroupBarrier(); "))
    return edits


def _zero(path: str, kind: Type, text: str, depth: int) -> str:
    """Statements that clear `path`. Atomics have no value that could be assigned."""
    match kind:
        case Atomic():
            return f"atomicStore(&{path}, 0);"
        case Array(element, element_text, count):
            index = f"{_LANE}_{depth}"
            inner = _zero(f"{path}[{index}]", element, element_text, depth + 1)
            return f"for (var {index} = 0u; {index} < u32({count}); {index}++) {{ {inner} }}"
        case Struct() if has_atomics(kind):
            return " ".join(
                _zero(f"{path}.{m.name}", m.type, _type_text(m.type), depth) for m in kind.members
            )
    return f"{path} = {text}();"


def _type_text(kind: Type) -> str:
    match kind:
        case Vector(count, scalar):
            return f"vec{count}<{scalar.name}>"
        case Matrix(columns, column):
            return f"mat{columns}x{column.count}<{column.scalar.name}>"
        case Pointer() | Array() | Atomic():
            return ""
    return kind.name


def _apply(source: str, edits: list[tuple[int, int, str]]) -> str:
    out = []
    at = 0
    for start, end, text in sorted(edits, key=lambda edit: edit[:2]):
        out += [source[at:start], text]
        at = end
    return "".join([*out, source[at:]])
