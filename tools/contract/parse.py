"""From the text of a kernel file to its contract.

The syntax is described in csrc/wgsl/README.md. Only module-level text in the house's layout is
understood: a declaration starts in column 0 and ends with `;` or with `}` in column 0.
"""

from __future__ import annotations

import re
from pathlib import Path

from contract.model import (
    ACCESS,
    DTYPE_SETS,
    DTYPES,
    EXTENSIONS,
    LIST_ACCESS,
    MAX_LIST_TENSORS,
    Const,
    ContractError,
    Field,
    Kernel,
    Operand,
)
from contract.repeat import expand

DIRECTIVE = re.compile(r"^// @(\w+)\s*(.*)$")
# A line that was meant to be one.
NEARLY_DIRECTIVE = re.compile(r"^\s*//+\s*@\w")
NAME = r"[A-Za-z_]\w*"
OPERAND = re.compile(rf"^({NAME})(\[\])?\s*:\s*(\w+)\s*(.*)$")
CONST = re.compile(rf"^({NAME})\s*:\s*(u32|bool|\{{.*\}})\s*(?:in\s+(.+))?$")
IMPORT = re.compile(
    rf"^(@if\(.*\) )?import package((?:::{NAME})+)::(?:\{{([\w,\s]+)\}}|({NAME}));$"
)
STRUCT = re.compile(r"^struct Params \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
MEMBER = re.compile(rf"^\s*({NAME})\s*:\s*([^/]+?)\s*,?\s*(?://\s*(.*))?$")
TYPE = re.compile(r"^(?:array<\s*)?(vec4<(u32|i32|f32)>|u32|i32|f32)(?:\s*,\s*(\d+)u?\s*>)?$")
WORKGROUP = re.compile(r"@workgroup_size\(([^)]*)\)")
PRODUCT = re.compile(r"\w+(?:\s*\*\s*\w+)*")
CONDITION = re.compile(r"@(?:if|elif)\(([^)]*(?:\([^)]*\)[^)]*)*)\)")
# Stands on a line of its own before the declaration that it decorates.
ATTRIBUTE = re.compile(r"^@(?:(?:if|elif)\(.*\)|else|compute @workgroup_size\(.*\))\s*$")
PARAMS_WINDOW = 1024  # bytes of the uniform binding; kParamsWindow of runtime/pipeline.h
MAX_OPERANDS = 15  # kMaxOperands of launch/operand_launch.h
CONST_BITS = 64 - MAX_OPERANDS
DIRECTIVES = {"operand", "const", "region", "require", "errors", "enable", "grid"}
# Calls of what the build writes for an operand, and uses of the parameters.
ACCESSOR = re.compile(
    rf"\b(?:load|load2|load_vector|store|store2|store4|atomic_add|atomic_update)_({NAME})\("
)
EMPTY_VARIABLE = re.compile(rf"^[ \t]+(?:@.*\s)?var\s+({NAME})\s*:[^=;]*;", re.MULTILINE)
PARAM = re.compile(rf"(?<![\w.])p\.({NAME})")
GRID = re.compile(r"^(groups|invocations) (.+)$")
GRID_TERM = re.compile(r"[A-Za-z_][\w.]*|\d+|<<|>>|[-+*/%(),]|\s+")


def parse(path: Path, root: Path) -> Kernel:
    """The contract of a kernel file below `root` (csrc/ops). Raises ContractError."""
    return _Parser(path, root).kernel


def declarations(text: str) -> dict[str, str]:
    """Module-level declarations by name, in order. Alternatives of one name stay together."""
    found: dict[str, str] = {}
    lines = text.split("\n")
    i = 0
    while i < len(lines):
        start = i
        while i < len(lines) and ATTRIBUTE.match(lines[i]):
            i += 1
        match = re.match(
            rf"(?:@\w+(?:\(.*?\))?\s+)*(?:fn|const|var(?:<[^>]*>)?|struct|alias|override)\s+({NAME})",
            lines[i] if i < len(lines) else "",
        )
        if not match:
            i += 1
            continue
        # A block ends with the brace in column 0, anything else with the first `;` or `}` at a
        # line's end. A block may open behind parameters on several lines.
        opens = False
        while True:
            line = lines[i].split("//")[0].rstrip()
            opens = opens or line.endswith(("{", "("))
            if lines[i] == "}" if opens else line.endswith((";", "}")):
                break
            i += 1
            if i == len(lines):
                raise ContractError(f"the declaration of {match[1]} has no end")
        i += 1
        declaration = "\n".join(lines[start:i])
        if complaint := _empty_variable(declaration):
            raise ContractError(f"{match[1]}: {complaint}")
        before = found.get(match[1])
        found[match[1]] = declaration if before is None else f"{before}\n{declaration}"
    return found


def _empty_variable(code: str) -> str:
    """What to say of a variable in a function that has no value. Tint, and naga before 2026, clear
    it when the function starts, and not each time that a loop reaches it."""
    match = EMPTY_VARIABLE.search(code)
    return f"var {match[1]} needs a value, such as the zero `f32()` of its type" if match else ""


class _Parser:
    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self.root = root
        self.line = 0
        self.inherited: set[Path] = set()
        family = path.parent.relative_to(root).as_posix()
        self.kernel = Kernel(name=path.stem, family=family, doc="")
        text = self._read(path)
        self._directives(text)
        text = self._imports(text)
        self._params(text)
        self._workgroup(text)
        self._check_grid()
        self._conditions(text)
        self._check_operands()
        self._check_names(text)

    @staticmethod
    def _read(path: Path) -> str:
        """The text of a file, whose repetitions are written out."""
        try:
            return expand(path.read_text(encoding="utf-8"))
        except ContractError as error:
            raise ContractError(f"{path}:{error}") from error

    def fail(self, why: str) -> None:
        where = f"{self.path}:{self.line}" if self.line else str(self.path)
        raise ContractError(f"{where}: {why}")

    # ---- Directives

    def _directives(self, text: str) -> None:
        doc: list[str] = []
        in_head = True
        for self.line, line in enumerate(text.split("\n"), 1):
            match = DIRECTIVE.match(line)
            if match is None:
                if NEARLY_DIRECTIVE.match(line):
                    self.fail("a directive starts in column 0 with `// @`")
                in_head = in_head and line.startswith("//")
                if in_head:
                    doc.append(line[2:].strip())
                if IMPORT.match(line):
                    self._inherit(line)
                continue
            self._directive(match)
        self.line = 0
        self.kernel.doc = " ".join(word for word in doc if word)

    def _directive(self, match: re.Match) -> None:
        keyword, rest = match[1], match[2].split("//")[0].strip()
        if keyword not in DIRECTIVES:
            self.fail(f"unknown directive @{keyword}; there are {sorted(DIRECTIVES)}")
        getattr(self, f"_{keyword}")(rest)

    def _inherit(self, line: str) -> None:
        """What a file states that declarations are imported from, the kernel states too; but where
        both declare a name, the kernel's own stands."""
        source = self._imported(line)[0]
        if source in self.inherited:
            return
        self.inherited.add(source)
        for inherited in source.read_text(encoding="utf-8").split("\n"):
            match = DIRECTIVE.match(inherited)
            if match is None:
                continue
            name = re.match(NAME, match[2])
            known = {o.name for o in self.kernel.operands} | {c.name for c in self.kernel.consts}
            known |= set(self.kernel.regions)
            if match[1] == "grid" and self.kernel.grid_unit:
                continue
            if match[1] == "require" or not (name and name[0] in known):
                self._directive(match)

    def _operand(self, text: str) -> None:
        match = OPERAND.match(text)
        many = match is not None and match[2] is not None
        choices = LIST_ACCESS if many else ACCESS
        if match is None or match[3] not in choices:
            self.fail(
                "an operand is `NAME: ACCESS [DTYPES | like OTHER | of TYPE] [akin OTHER] "
                "[optional]`, "
                f"ACCESS one of {[*choices]}"
            )
        name, access, rest = match[1], match[3], match[4]
        optional = bool(re.search(r"\boptional\b", rest))
        rest = re.sub(r"\boptional\b", "", rest)
        like = re.search(rf"\blike ({NAME})", rest)
        rest = re.sub(rf"\blike {NAME}", "", rest)
        akin = re.search(rf"\bakin ({NAME})", rest)
        rest = re.sub(rf"\bakin {NAME}", "", rest).strip()
        like_name = ""
        if like:
            others = {operand.name: operand for operand in self.kernel.operands}
            if akin:
                self.fail(f"{name}: `like` and `akin` exclude each other")
            if like[1] not in others:
                self.fail(f"{name} is like {like[1]}, but no operand above has that name")
            dtypes = others[like[1]].dtypes
            if rest:
                dtypes = tuple(dtype for dtype in dtypes if dtype in self._dtypes(rest))
            like_name = others[like[1]].like or like[1]
        elif element := re.fullmatch(r"of ([\w<>, ]+)", rest):
            if access not in ("in", "out") or many:
                self.fail("`of TYPE` goes with `in` and `out`, and not with lists")
            self.kernel.operands.append(
                Operand(name, access, ("bits8",), optional, element=element[1])
            )
            return
        else:
            dtypes = self._dtypes(rest or "any")
        self.kernel.operands.append(
            Operand(
                name,
                access,
                dtypes,
                optional,
                like_name,
                many,
                akin=akin[1] if akin else "",
            )
        )

    def _dtypes(self, text: str) -> tuple[str, ...]:
        chosen: list[str] = []
        for word in text.strip("{}").replace(",", " ").split():
            if word not in DTYPE_SETS and word not in DTYPES:
                self.fail(f"{word} is no dtype and no set of dtypes ({[*DTYPE_SETS]})")
            chosen += DTYPE_SETS.get(word, (word,))
        return tuple(dict.fromkeys(chosen))

    def _const(self, text: str) -> None:
        match = CONST.match(text)
        if match is None:
            self.fail("a const is `NAME: bool`, `NAME: u32 in {1, 2}` or `NAME: {choice, ...}`")
        name, kind, values = match[1], match[2], match[3]
        if kind == "bool":
            const = Const(name, "bool", (0, 1))
        elif kind == "u32":
            const = Const(name, "u32", self._range(values or ""))
        else:
            names = tuple(word.strip() for word in kind.strip("{}").split(","))
            const = Const(name, "enum", tuple(range(len(names))), names)
        taken = self.kernel.condition_names() | {other.name for other in self.kernel.consts}
        if taken & {const.name, *const.names}:
            self.fail(f"{const.name} or one of its values is declared already")
        self.kernel.consts.append(const)

    def _range(self, text: str) -> tuple[int, ...]:
        span = re.fullmatch(r"(\d+)\.\.(\d+)", text.strip())
        if span:
            return tuple(range(int(span[1]), int(span[2]) + 1))
        listed = re.fullmatch(r"\{\s*\d+(?:\s*,\s*\d+)*\s*\}", text.strip())
        if not listed:
            self.fail("the values of a u32 are `in {1, 2, 4}` or `in 1..8`, both ends included")
        return tuple(sorted(int(word) for word in text.strip(" {}").split(",")))

    def _region(self, text: str) -> None:
        match = re.fullmatch(rf"({NAME})\s*(?:=\s*([^:]+?)\s*)?(?::.*)?", text)
        if match is None or match[1] in self.kernel.regions:
            self.fail("a region is `NAME [= DEFAULT]: what it declares`, each name once")
        self.kernel.regions.append(match[1])
        if match[2]:
            self.kernel.region_defaults[match[1]] = match[2]

    def _require(self, text: str) -> None:
        known = self.kernel.condition_names() | {const.name for const in self.kernel.consts}
        for name in re.findall(NAME, text):
            if name not in known:
                self.fail(f"@require {text} asks for {name}, which nothing above declares")
        if not re.fullmatch(r"[\w\s()!&|=<>+*/%-]+", text):
            self.fail("@require is an expression of C over constants, their names and has_OPERAND")
        self.kernel.requirements.append(text)

    def _errors(self, text: str) -> None:
        self.kernel.reports_errors = True

    def _grid(self, rest: str) -> None:
        match = GRID.match(rest)
        if match is None:
            self.fail("@grid wants `groups COUNT` or `invocations COUNT`")
        self.kernel.grid_unit, self.kernel.grid_count = match[1], match[2]

    def _check_grid(self) -> None:
        """The count is an expression that C++, Python and JavaScript all can evaluate."""
        count = self.kernel.grid_count
        if GRID_TERM.sub("", count):
            self.fail(f"@grid: {GRID_TERM.sub('', count)!r} in {count!r} is not understood")
        fields = {f"p.{f.name}" for f in self.kernel.params if f.base == "u32" and not f.is_vector}
        consts = {const.name for const in self.kernel.consts if const.kind != "enum"}
        for name in re.findall(r"[A-Za-z_][\w.]*", count):
            if name not in fields | consts | {"ceil_div"}:
                self.fail(f"@grid: {name} is no number of Params and no constant")

    def _enable(self, text: str) -> None:
        for name in text.replace(",", " ").split():
            if name not in EXTENSIONS:
                self.fail(f"@enable {name}: the extensions are {[*EXTENSIONS]}")
            self.kernel.enables.append(name)

    # ---- Text

    def _imports(self, text: str) -> str:
        """`import package::norm::row::{row_sum};` brings declarations of csrc/ops/norm/row.wgsl
        here, with those that they use and that this file does not declare itself."""
        own = declarations(text)
        out: list[str] = []
        brought: set[tuple[Path, str]] = set()
        for self.line, line in enumerate(text.split("\n"), 1):
            match = IMPORT.match(line)
            if match is None:
                if re.match(r"(@.*\s)?import ", line):
                    self.fail(
                        "an import is `[@if(CONDITION)] import package::FOLDER::FILE::{NAME};`"
                    )
                out.append(line)
                continue
            source, wanted = self._imported(line)
            known = declarations(self._read(source))
            for name in wanted:
                if name not in known:
                    self.fail(f"{source.name} declares no {name}")
            for name in wanted:  # grows
                for other in known:
                    is_used = re.search(rf"\b{other}\b", known[name])
                    if is_used and other not in wanted and other not in own:
                        wanted.append(other)
            # In the file's order, each once.
            new = [name for name in known if name in wanted and (source, name) not in brought]
            brought.update((source, name) for name in new)
            for name in new:
                if match[1] and known[name].startswith("@if"):
                    self.fail(f"{name} has a condition of its own")
                out.append((match[1] or "") + known[name])
        self.line = 0
        return "\n".join(out)

    def _imported(self, line: str) -> tuple[Path, list[str]]:
        """The file and the names of an import."""
        match = IMPORT.match(line)
        parts = match[2].strip(":").split("::")
        source = self.root.joinpath(*parts).with_suffix(".wgsl")
        if not source.is_file():
            self.fail(f"there is no {source.relative_to(self.root)}")
        return source, [w.strip() for w in (match[3] or match[4]).split(",") if w.strip()]

    def _params(self, text: str) -> None:
        structs = STRUCT.findall(text)
        if len(structs) > 1:  # imported ones and the kernel's own: one struct, in this order
            whole = "struct Params {\n" + "".join(structs) + "}"
            start = STRUCT.search(text).start()
            text = text[:start] + whole + "\n" + STRUCT.sub("", text[start:])
        match = STRUCT.search(text)
        fields: list[Field] = []
        offset = 0

        def add(name: str, base: str, is_vector: bool, count: int, comment: str) -> None:
            nonlocal offset
            alignment = 16 if is_vector else 4
            offset = -(-offset // alignment) * alignment
            fields.append(Field(name, base, is_vector, count, offset, comment))
            offset += fields[-1].size

        for line in match[1].split("\n") if match else []:
            if not line.strip() or line.strip().startswith("//"):
                continue
            member = MEMBER.match(line)
            if not line.split("//")[0].rstrip().endswith(","):
                self.fail(f"Params: a comma is missing behind `{line.strip()}`")
            kind = TYPE.match(member[2]) if member else None
            array = member is not None and member[2].startswith("array")
            if member is None or kind is None or (array and not (kind[2] and kind[3])):
                self.fail(
                    f"Params: `{line.strip()}`; "
                    "a field is u32, i32, f32, a vec4 of them, or an array of vec4"
                )
            base = kind[2] or kind[1]
            add(member[1], base, kind[2] is not None, int(kind[3] or 0), member[3] or "")
        starts = [
            f"{operand.name}_at"
            for operand in self.kernel.operands
            if not operand.many and not operand.element
        ]
        declared = {f.name for f in fields}
        if self.kernel.lists and "lists" in declared:
            self.fail("Params: lists is added by the build")
        for name in starts:
            if name in declared:
                self.fail(f"Params: {name} is added by the build")
        # Scalars behind an array would lie behind its padding for nothing: they go first.
        scalars_at = next((i for i, f in enumerate(fields) if f.is_vector), len(fields))
        mine = "".join(f"  {name}: u32,\n" for name in starts)
        body = match[1] if match else ""
        if starts or match or self.kernel.lists:
            lines = body.split("\n")
            first_vector = fields[scalars_at].name if scalars_at < len(fields) else None
            at = next(
                (
                    i
                    for i, ln in enumerate(lines)
                    if first_vector and re.match(rf"\s*{first_vector}\s*:", ln)
                ),
                len(lines) - 1 if lines and not lines[-1] else len(lines),
            )
            while first_vector and at > 0 and lines[at - 1].strip().startswith("//"):
                at -= 1
            body = "\n".join([*lines[:at], *mine.split("\n")[:-1], *lines[at:]])
            old = [(f.name, f.base, f.is_vector, f.count, f.comment) for f in fields]
            fields.clear()
            offset = 0
            for entry in old[:scalars_at]:
                add(*entry)
            for name in starts:
                add(name, "u32", False, 0, "where the operand starts in its binding, in elements")
            for entry in old[scalars_at:]:
                add(*entry)
            if self.kernel.lists:
                count = MAX_LIST_TENSORS * self.kernel.list_stride
                body = f"{body.rstrip()}\n  lists: array<vec4<u32>, {count}>,"
                add("lists", "u32", True, count, "of each tensor, see ListLaunch")
            struct = f"struct Params {{\n{body.strip(chr(10))}\n}}"
            text = (
                text[: match.start()] + struct + text[match.end() :]
                if match
                else struct + "\n" + text
            )
        if offset > PARAMS_WINDOW:
            self.fail(f"Params take {offset} bytes, more than {PARAMS_WINDOW}")
        self.kernel.params = fields
        self.kernel.params_bytes = -(-offset // 16) * 16
        if fields:
            text += "\n@group(0) @binding(31) var<uniform> p: Params;\n"
        if self.kernel.reports_errors:
            text += "@group(0) @binding(30) var<storage, read_write> errors: array<atomic<u32>>;\n"
        if re.search(r"var<uniform>\s+p\b.*\n.*var<uniform>\s+p\b", text, re.DOTALL):
            self.fail("the binding of Params is added by the build")
        self.kernel.text = text

    def _workgroup(self, text: str) -> None:
        sizes = WORKGROUP.findall(text)
        numbers = {c.name: max(c.values) for c in self.kernel.consts if c.kind == "u32"}
        words = re.findall(r"\w+", sizes[0]) if len(sizes) == 1 else []
        known = all(word.isdigit() or word in numbers for word in words)
        parts = [part.strip() for part in sizes[0].split(",")] if words and known else []
        if not 1 <= len(parts) <= 3 or not all(PRODUCT.fullmatch(part) for part in parts):
            self.fail(
                "a kernel has one entry point, with @workgroup_size of one to three numbers, or "
                "products of numbers and constants"
            )
        self.kernel.workgroup = 0 if any(word in numbers for word in words) else 1
        for word in words:
            self.kernel.workgroup *= int(word) if word.isdigit() else 1

    def _conditions(self, text: str) -> None:
        names = self.kernel.condition_names() | self.kernel.dtype_conditions()
        for condition in CONDITION.findall(text):
            for name in re.findall(NAME, condition):
                if name not in names:
                    self.fail(f"@if({condition}) asks for {name}, which nothing declares")

    def _check_names(self, text: str) -> None:
        """What the text takes of Params and of operands is there. A shader's compiler would say the
        same, but only when the kernel first runs."""
        code = re.sub(r"//.*", "", text)
        if complaint := _empty_variable(code):
            self.fail(complaint)
        fields = [f.name for f in self.kernel.params]
        for name in PARAM.findall(code):
            if name not in fields:
                self.fail(f"p.{name}: Params has no such field, only {', '.join(fields)}")
        operands = [operand.name for operand in self.kernel.operands]
        for call in ACCESSOR.finditer(code):
            function = call[0].removesuffix("(")
            known = call[1] in operands or call[1].removeprefix("vector_") in operands
            if not known and not re.search(rf"\bfn {function}\(", code):
                self.fail(f"{function}: no operand is called {call[1]}, only {', '.join(operands)}")

    def _check_operands(self) -> None:
        names = [operand.name for operand in self.kernel.operands]
        if len(names) > MAX_OPERANDS:
            self.fail(f"{len(names)} operands, more than {MAX_OPERANDS}")
        if len(set(names)) != len(names):
            self.fail("two operands have one name")
        for operand in self.kernel.operands:
            if operand.many and operand.access != "numbers":
                vectors = next(o for o in self.kernel.lists if o.access != "numbers")
                if operand is not vectors and operand.like != vectors.name:
                    self.fail(f"the list {operand.name} must be `like {vectors.name}`")
            if operand.akin and operand.akin not in names:
                self.fail(f"{operand.name} is akin to {operand.akin}, which is no operand")
        bits = sum(const.key_bits for const in self.kernel.consts)
        if bits > CONST_BITS:
            self.fail(f"its constants take {bits} bits of the key, more than {CONST_BITS}")
