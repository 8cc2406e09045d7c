"""How a kernel reaches its operands, for one way that they lie in buffers.

Only a launch knows which operands share a buffer and which start at a multiple of their vectors.
Operands in plain slots have accessors of the eager kernels (csrc/wgsl/kernel_source.h), which go by
elements and words. A slot is wide if all its operands move aligned vectors of one size: it is bound
as an array of these.
"""

from dataclasses import dataclass

from torch_webgpu import _C, wgsl
from torch_webgpu.inductor.module import Access, Operand
from torch_webgpu.inductor.text import LANE, indented

Place = tuple[int, bool, bool]  # slot, wide, host: as csrc/launch/compiled_kernel.h has them

_COMPLAIN = """
@group(0) @binding(30) var<storage, read_write> errors: array<atomic<u32>>;
fn complain(code: u32, index: i32, size: i32) {
let claim = atomicCompareExchangeWeak(&errors[0], 0u, code);
if (claim.exchanged) {
atomicStore(&errors[1], bitcast<u32>(index));
atomicStore(&errors[2], bitcast<u32>(index >> 31u));
atomicStore(&errors[4], bitcast<u32>(size));
}
}
"""


@dataclass(frozen=True)
class Accessors:
    """Makes the text before a kernel's own: parameters, bindings, accessors."""

    operands: list[Operand]
    integers: list[str]
    checks: list[tuple[str, bool]]
    lanes: int

    def text(self, places: list[Place], declarations: str) -> str:
        """`declarations` are the bindings and accessors of the operands in plain slots."""
        parts = [self._parameters(places)]
        if self.checks:
            parts.append(_COMPLAIN)
        parts.append(declarations)
        bound = set()
        for operand, (slot, is_wide, is_host) in zip(self.operands, places, strict=True):
            if is_host:
                parts.append(_host_number(operand))
            elif is_wide:
                if slot not in bound:
                    parts.append(self._binding(slot, places))
                bound.add(slot)
                parts.append(_WideOperand(operand, slot, self.lanes).text())
            else:
                parts.append(_plain_operand(operand, self.lanes))
        return indented("\n".join(parts))

    def _parameters(self, places: list[Place]) -> str:
        fields = [f"{name}: i32" for name in self.integers]
        fields += [f"{operand.name}_at: u32" for operand in self.operands]
        fields += [f"code_{k}: u32" for k in range(len(self.checks))]
        for operand, (_, _, is_host) in zip(self.operands, places, strict=True):
            if is_host:
                fields += [f"{operand.name}_low: u32", f"{operand.name}_high: u32"]
        body = "".join(f"{field},\n" for field in fields)
        return f"struct Params {{\n{body}}}\n@group(0) @binding(31) var<uniform> params: Params;"

    def _binding(self, slot: int, places: list[Place]) -> str:
        there = [
            operand for operand, place in zip(self.operands, places, strict=True)
            if place[:2] == (slot, True)
        ]  # fmt: skip
        access = "read_write" if any(Access.STORES in o.access for o in there) else "read"
        element = _word_type(binding_width(vector_bytes(there[0], self.lanes)))
        return f"@group(0) @binding({slot}) var<storage, {access}> b{slot}: array<{element}>;"


def vector_bytes(operand: Operand, lanes: int) -> int:
    """The bytes of all lanes; 0 for an operand that moves elements, or lanes of less than a word.

    Also 0 if single narrow elements are stored: these stores are atomic, so all stores must be.
    """
    itemsize = _C.dtype_info(operand.dtype)[0]
    stores_parts = itemsize < 4 and Access.ELEMENTS in operand.access
    if Access.LANES not in operand.access or stores_parts or itemsize * lanes < 4:
        return 0
    return itemsize * lanes


def binding_width(size: int) -> int:
    """The words in an element of a wide slot's array."""
    return min(size // 4, 4)


def _word_type(width: int) -> str:
    return "u32" if width == 1 else f"vec{width}<u32>"


def _relative(operand: Operand) -> str:
    """An index from the tensor's start as one from the binding's start."""
    return f"(bitcast<u32>(i) + params.{operand.name}_at)"


def _host_number(operand: Operand) -> str:
    name = operand.name
    word = f"params.{name}_low"
    if _C.dtype_info(operand.dtype)[0] == 8:
        word = f"vec2<u32>({word}, params.{name}_high)"
    kind = wgsl.register_type(operand.dtype)
    value = wgsl.load(operand.dtype, word)
    return f"alias {name}_t = {kind};\nfn get_{name}(i: i32) -> {kind} {{ return {value}; }}\n"


def _plain_operand(operand: Operand, lanes: int) -> str:
    name, at = operand.name, _relative(operand)
    text = f"fn get_{name}(i: i32) -> {name}_t {{ return load_{name}({at}); }}\n"
    if Access.STORES in operand.access:
        text += f"fn set_{name}(i: i32, v: {name}_t) {{ store_{name}({at}, v); }}\n"
    if Access.ADDS in operand.access:
        text += f"fn add_{name}(i: i32, v: {name}_t) {{ atomic_add_{name}({at}, v); }}\n"
    if Access.LANES in operand.access:
        text += _lanes_by_elements(operand, lanes)
    return text


def _each_of(lanes: int, line: str) -> str:
    """The line for each of the lanes that exist. Not a loop: an array with a variable index lies in
    memory instead of registers, also where the code moves full vectors."""
    return "\n".join(f"if ({k} < left) {{ {line.replace(LANE, str(k))} }}" for k in range(lanes))


def _lanes_by_elements(operand: Operand, lanes: int) -> str:
    name = operand.name
    array = f"array<{name}_t, {lanes}>"
    text = f"""
fn get_lanes_{name}(i: i32, left: i32) -> {array} {{
var lanes = {array}();
{_each_of(lanes, f"lanes[{LANE}] = get_{name}(i + {LANE});")}
return lanes;
}}
"""
    if Access.STORES in operand.access:
        text += f"""
fn set_lanes_{name}(i: i32, v: {array}, left: i32) {{
{_each_of(lanes, f"set_{name}(i + {LANE}, v[{LANE}]);")}
}}
"""
    return text


class _WideOperand:
    """Accessors of an operand in a wide slot. Lanes start at a multiple of their number, so that
    they fill whole words; the last few elements of a range may end within one."""

    def __init__(self, operand: Operand, slot: int, lanes: int) -> None:
        self.operand = operand
        self.name = operand.name
        self.lanes = lanes
        self.bytes = _C.dtype_info(operand.dtype)[0]
        self.words = self.bytes * lanes // 4
        self.width = binding_width(self.bytes * lanes)
        self.buffer = f"b{slot}"
        self.array = f"array<{self.name}_t, {lanes}>"

    def text(self) -> str:
        parts = [f"alias {self.name}_t = {wgsl.register_type(self.operand.dtype)};", self._get()]
        parts.append(self._get_lanes())
        if Access.STORES in self.operand.access:
            parts += [self._set() if self.bytes >= 4 else self._set_narrow(), self._set_lanes()]
        return "\n".join(parts)

    def _word(self, index: str) -> str:
        """Word `index` (text) of the buffer."""
        if self.width == 1:
            return f"{self.buffer}[{index}]"
        return f"{self.buffer}[({index}) / {self.width}u][({index}) % {self.width}u]"

    def _from_words(self, words: list[str]) -> str:
        bits = words[0] if len(words) == 1 else f"vec2<u32>({', '.join(words)})"
        return wgsl.load(self.operand.dtype, bits)

    def _part(self, word: str, shift: str) -> str:
        mask = "0xffu" if self.bytes == 1 else "0xffffu"
        return f"(({word} >> {shift}) & {mask})"

    def _get(self) -> str:
        at = _relative(self.operand)
        if self.bytes < 4:
            per_word = 4 // self.bytes
            word = self._word(f"at / {per_word}u")
            value = self._from_words([self._part(word, f"(at % {per_word}u * {8 * self.bytes}u)")])
        else:
            count = self.bytes // 4
            value = self._from_words([self._word(f"at * {count}u + {k}u") for k in range(count)])
        return (
            f"fn get_{self.name}(i: i32) -> {self.name}_t {{\nlet at = {at};\nreturn {value};\n}}"
        )

    def _loaded(self, word: int) -> str:
        """Word `word` of all lanes, from the vectors v0, v1, ..."""
        place = f"v{word // self.width}"
        return place if self.width == 1 else f"{place}.{'xyzw'[word % self.width]}"

    def _lane_value(self, lane: int) -> str:
        if self.bytes >= 4:
            count = self.bytes // 4
            return self._from_words([self._loaded(lane * count + k) for k in range(count)])
        per_word = 4 // self.bytes
        shift = f"{lane % per_word * 8 * self.bytes}u"
        return self._from_words([self._part(self._loaded(lane // per_word), shift)])

    def _first_vector(self) -> str:
        scale = f"* {self.bytes}u / {4 * self.width}u"
        return f"let at = {_relative(self.operand)} {scale};"

    def _get_lanes(self) -> str:
        vectors = range(self.words // self.width)
        loads = "\n".join(f"let v{k} = {self.buffer}[at + {k}u];" for k in vectors)
        values = ", ".join(self._lane_value(lane) for lane in range(self.lanes))
        return f"""
fn get_lanes_{self.name}(i: i32, left: i32) -> {self.array} {{
if (left >= {self.lanes}) {{
{self._first_vector()}
{loads}
return {self.array}({values});
}}
var lanes = {self.array}();
{_each_of(self.lanes, f"lanes[{LANE}] = get_{self.name}(i + {LANE});")}
return lanes;
}}"""

    def _set(self) -> str:
        count = self.bytes // 4
        value = wgsl.store(self.operand.dtype, "v")
        lines = [f"let at = {_relative(self.operand)} * {count}u;", f"let bits = {value};"]
        for k in range(count):
            bits = "bits" if count == 1 else f"bits[{k}]"
            lines.append(f"{self._word(f'at + {k}u')} = {bits};")
        body = "\n".join(lines)
        return f"fn set_{self.name}(i: i32, v: {self.name}_t) {{\n{body}\n}}"

    def _set_narrow(self) -> str:
        """One element of a word that is this invocation's: for the last few, which fill none."""
        per_word = 4 // self.bytes
        mask = "0xffu" if self.bytes == 1 else "0xffffu"
        word = self._word(f"at / {per_word}u")
        return f"""
fn set_{self.name}(i: i32, v: {self.name}_t) {{
let at = {_relative(self.operand)};
let shift = at % {per_word}u * {8 * self.bytes}u;
{word} = ({word} & ~({mask} << shift)) | ({wgsl.store(self.operand.dtype, "v")} << shift);
}}"""

    def _stored(self, word: int) -> str:
        """Word `word` of all lanes, from the values v."""
        if self.bytes >= 4:
            count = self.bytes // 4
            value = wgsl.store(self.operand.dtype, f"v[{word // count}]")
            return value if count == 1 else f"({value})[{word % count}]"
        per_word = 4 // self.bytes
        parts = []
        for k in range(per_word):
            value = wgsl.store(self.operand.dtype, f"v[{word * per_word + k}]")
            parts.append(f"(({value}) << {k * 8 * self.bytes}u)")
        return " | ".join(parts)

    def _set_lanes(self) -> str:
        kind = _word_type(self.width)
        stores = []
        for k in range(self.words // self.width):
            words = ", ".join(self._stored(k * self.width + w) for w in range(self.width))
            stores.append(f"{self.buffer}[at + {k}u] = {kind}({words});")
        lines = "\n".join(stores)
        return f"""
fn set_lanes_{self.name}(i: i32, v: {self.array}, left: i32) {{
if (left >= {self.lanes}) {{
{self._first_vector()}
{lines}
return;
}}
{_each_of(self.lanes, f"set_{self.name}(i + {LANE}, v[{LANE}]);")}
}}"""
