"""What is reduced by what, and how the invocations of a workgroup combine their parts.

Sums, products and extremes are rows of the eager kernels' table. The rest have accumulators with
functions of the library (csrc/wgsl/lib/reduce.wgsl, compiled.wgsl).
"""

from dataclasses import dataclass, replace

import torch

from torch_webgpu.inductor import tables
from torch_webgpu.inductor.registers import DTYPES, WGSL_TYPES, kind_of


@dataclass(frozen=True)
class Accumulator:
    """How values are accumulated. The texts are WGSL."""

    type: str
    identity: str
    combine: str  # of accumulators a and b
    push: str  # the accumulator a with one more value v, at index i of the run
    results: tuple[tuple[str, torch.dtype], ...]  # of the final accumulator a
    push_four: str = ""  # the accumulator a with the values of a vec4 v; empty: one by one
    in_subgroup: str = ""  # of the accumulators a of a whole subgroup; empty: WGSL has none
    fields: tuple[str, ...] = ()  # of a struct
    # combine(a, b) and combine(b, a) may be rounded differently.
    has_order: bool = False

    def of_parts(self) -> "Accumulator":
        """The same, whose values are accumulators: those of the parts of a row."""
        return replace(self, push=tables.substitute(self.combine, {"b": "v"}), push_four="")


_ROWS = {"sum": "sum", "prod": "prod", "max": "max_values", "min": "min_values"}
# Four values at once: a shorter chain of steps that wait for each other, and fewer tests for NaN.
_FOUR_FLOATS = {
    "sum": "a + ((v.x + v.y) + (v.z + v.w))",
    "max": "push_four_max_f(a, v)",
    "min": "push_four_min_f(a, v)",
}
_TRUTH = {
    "any": ("false", "a || b"),
    "sum": ("false", "a || b"),
    "prod": ("true", "a && b"),
    "max": ("false", "a || b"),
    "min": ("true", "a && b"),
    "xor_sum": ("false", "a != b"),
}
_XOR = {"i": "0", "l": "vec2<u32>(0u)"}
# WGSL's own operations over a subgroup, by reduction and kind. Its extremes of numbers and NaN may
# be either.
_IN_SUBGROUP = {
    ("sum", "f"): "subgroupAdd(a)",
    ("sum", "i"): "subgroupAdd(a)",
    ("prod", "f"): "subgroupMul(a)",
    ("prod", "i"): "subgroupMul(a)",
    ("max", "f"): "select(subgroupMax(a), nan_f(), subgroupAny(is_nan_f(a)))",
    ("min", "f"): "select(subgroupMin(a), nan_f(), subgroupAny(is_nan_f(a)))",
    ("max", "i"): "subgroupMax(a)",
    ("min", "i"): "subgroupMin(a)",
    ("xor_sum", "i"): "subgroupXor(a)",
    ("xor_sum", "l"): "subgroupXor(a)",
    ("any", "b"): "subgroupAny(a)",
    ("sum", "b"): "subgroupAny(a)",
    ("prod", "b"): "subgroupAll(a)",
    ("max", "b"): "subgroupAny(a)",
    ("min", "b"): "subgroupAll(a)",
}
_MOMENT_FIELDS = ("mean", "squares", "count")
_MOMENTS = tuple((f"a.{part}", torch.float32) for part in _MOMENT_FIELDS)


def accumulator(reduction: str, dtype: torch.dtype, src_dtype: torch.dtype) -> Accumulator:
    """The accumulator of one of Inductor's reductions of values of `src_dtype` to `dtype`.

    Raises NotImplementedError for what no kernel reduces.
    """
    if reduction in ("argmax", "argmin"):
        return _indexed(reduction, src_dtype)
    if reduction in ("welford_reduce", "welford_combine"):
        return Accumulator(
            "Moments_f",
            "Moments_f(0.0, 0.0, 0.0)",
            "merge_moments_f(a, b)",
            "push_moment_f(a, v)",
            _MOMENTS,
            "push_four_moments_f(a, v)",
            fields=_MOMENT_FIELDS,
            has_order=True,
        )
    if reduction == "online_softmax_reduce":
        return Accumulator(
            "ExpSum_f",
            "ExpSum_f(lowest_f, 0.0)",
            "merge_exp_sums_f(a, b)",
            "push_exp_f(a, v)",
            (("a.most", torch.float32), ("a.total", torch.float32)),
            "push_four_exps_f(a, v)",
            fields=("most", "total"),
            has_order=True,
        )
    return _plain(reduction, dtype, src_dtype)


def _indexed(reduction: str, src_dtype: torch.dtype) -> Accumulator:
    kind = kind_of(src_dtype)
    row = tables.reduction(reduction, "i" if kind == "b" else kind)
    assert row is not None
    lifted = tables.substitute(row["lift"], {"x": "v"})
    push = tables.substitute(row["combine"], {"b": lifted})
    return Accumulator(
        row["accumulator"],
        row["identity"],
        row["combine"],
        push,
        ((row["finish"], torch.int64),),
        fields=("value", "index"),
    )


def _plain(reduction: str, dtype: torch.dtype, src_dtype: torch.dtype) -> Accumulator:
    # Sums are of the result's type; extremes are of the elements'.
    kind = kind_of(dtype if reduction in ("sum", "prod", "xor_sum") else src_dtype)
    if reduction == "any":
        kind = "b"
    if kind == "b" and reduction in _TRUTH:
        identity, combine = _TRUTH[reduction]
    elif reduction == "xor_sum" and kind in _XOR:
        identity, combine = _XOR[kind], "a ^ b"
    else:
        row = tables.reduction(_ROWS[reduction], kind) if reduction in _ROWS else None
        if row is None:
            raise NotImplementedError(f"reduction {reduction} of {src_dtype} to {dtype}")
        identity, combine = row["identity"], row["combine"]
    push = tables.substitute(combine, {"b": "v"})
    four = _FOUR_FLOATS.get(reduction, "") if kind == "f" else ""
    return Accumulator(
        WGSL_TYPES[kind],
        identity,
        combine,
        push,
        (("a", DTYPES[kind]),),
        four,
        _IN_SUBGROUP.get((reduction, kind), ""),
    )


def value_dtype(reduction: str, accumulator: Accumulator, src_dtype: torch.dtype) -> torch.dtype:
    """The register type that values are pushed in."""
    if reduction in ("argmax", "argmin"):
        kind = kind_of(src_dtype)
        return DTYPES["i" if kind == "b" else kind]
    if accumulator.type in ("Moments_f", "ExpSum_f"):
        return torch.float32
    return accumulator.results[0][1]


# Invocations of a row that combine the others' accumulators.
_HEADS = 16
WORKGROUP = 256
# Types of accumulators, as workgroup memory has them, that take one word.
ONE_WORD = frozenset({"f32", "i32", "u32"})
# Sizes of a target's smallest subgroup that texts tell apart.
_WIDTHS = (128, 64, 32, 16, 8, 4, 2, 1)
# What the functions that use subgroups count on.
SUBGROUP_WIDTH = "\n".join(
    [
        f"@{'if' if width == _WIDTHS[0] else 'elif'}(subgroups_of_{width}) "
        f"const subgroup_width = {width}u;"
        for width in _WIDTHS[:-1]
    ]
    + ["@elif(subgroups) const subgroup_width = 1u;"]
)
# The entry point sets it, for functions of accumulators that have an order.
SUBGROUP_LANE = "@if(subgroups) var<private> subgroup_lane: u32;"


@dataclass(frozen=True)
class Across:
    """The function ``name(value, lid, rlane)`` that combines the accumulators of the `lanes`
    invocations of a row, which are `stride` apart in the workgroup. All of them get the same bits.

    Its text has two forms. Without subgroups all goes through workgroup memory. With subgroups, a
    row's invocations in a subgroup combine theirs first, and what is left goes through workgroup
    memory once; nothing is left of a row that lies in one subgroup. A subgroup has consecutive
    `lid` and a power of two of them, so those of a row that it has for certain follow from the size
    of the target's smallest subgroup.

    `takes_turns`: the next call uses another array, so that this one's results may still be read
    meanwhile.
    """

    name: str
    accumulator: Accumulator
    shared: str  # the workgroup array
    lanes: int
    stride: int
    takes_turns: bool

    def text(self) -> str:
        return f"@if(subgroups)\n{self._by_subgroups()}\n@else\n{self._by_workgroup()}"

    def exchanged(self, width: int) -> int:
        """How many accumulators a workgroup exchanges where the smallest subgroup has `width`
        invocations."""
        is_whole = self.lanes * self.stride <= width
        return 0 if is_whole else WORKGROUP // max(1, width // self.stride)

    # ---- Texts that both forms use ----

    @property
    def _is_bool(self) -> bool:
        return self.accumulator.type == "bool"

    def _put(self, place: str, value: str) -> str:
        # Workgroup memory is not shared as bool by all drivers.
        word = f"select(0u, 1u, {value})" if self._is_bool else value
        return f"{self.shared}[{place}] = {word};"

    def _get(self, place: str) -> str:
        return f"({self.shared}[{place}] != 0u)" if self._is_bool else f"{self.shared}[{place}]"

    def _combine_with(self, other: str) -> str:
        """Combines `acc` with another accumulator."""
        combined = tables.fill_in(self.accumulator.combine, ["acc", "other"])
        return f"let other = {other};\nacc = {combined};"

    def _function(self, body: str) -> str:
        kind = self.accumulator.type
        return f"""
fn {self.name}(value: {kind}, lid: u32, rlane: u32) -> {kind} {{
var acc = value;
{body}
return acc;
}}
"""

    @property
    def _last(self) -> str:
        return "" if self.takes_turns else "workgroupBarrier();"

    # ---- With subgroups ----

    def _shuffled(self, function: str, by: str) -> str:
        """`acc` of another invocation of the subgroup."""
        kind = self.accumulator
        if self._is_bool:
            return f"({function}(select(0u, 1u, acc), {by}) != 0u)"
        if not kind.fields:
            return f"{function}(acc, {by})"
        parts = ", ".join(f"{function}(acc.{field}, {by})" for field in kind.fields)
        return f"{kind.type}({parts})"

    def _in_subgroup(self) -> str:
        """Combines accumulators of a row that a subgroup has for certain."""
        steps = []
        for apart in self._distances():
            other = self._shuffled("subgroupShuffleXor", f"{apart * self.stride}u")
            condition = f"subgroups_of_{2 * apart * self.stride}"
            steps.append(f"@if({condition}) {{\n{self._combine_with(other)}\n}}")
        by_steps = "\n".join(steps)
        if not self.accumulator.in_subgroup or self.stride > 1:
            return by_steps
        # A subgroup has no invocations of other rows.
        whole = "equal_subgroups"
        if 2 * self.lanes <= _WIDTHS[0]:
            whole += f" && !subgroups_of_{2 * self.lanes}"
        text = tables.fill_in(self.accumulator.in_subgroup, ["acc"])
        return f"@if({whole}) acc = {text};\n@else {{\n{by_steps}\n}}"

    def _distances(self) -> list[int]:
        """Between invocations of a row that may lie in one subgroup: powers of two."""
        most = min(self.lanes, _WIDTHS[0] // self.stride)
        return [1 << k for k in range(most.bit_length() - 1)]

    def _exchange(self) -> str:
        """Each subgroup gives one accumulator of each row, and combines all of the row."""
        row = "(lid - rlane) / width" if self.stride == 1 else f"lid - rlane * {self.stride}u"
        scale = "" if self.stride == 1 else f" * {self.stride}u"
        steps = []
        for apart in self._distances():
            # Where the invocations that share the parts are that many: width and parts are.
            least = 2 * apart * self.stride
            beyond = self.lanes * self.stride // apart
            if beyond <= least:
                break
            condition = f"subgroups_of_{least}"
            if beyond <= _WIDTHS[0]:
                condition += f" && !subgroups_of_{beyond}"
            other = self._shuffled("subgroupShuffleXor", f"{apart * self.stride}u")
            steps.append(f"@if({condition}) {{\n{self._combine_with(other)}\n}}")
        by_steps = "\n".join(steps)
        return f"""
const parts = {self.lanes}u / width;
const sharing = min(width, parts);
let row = {row};
if (rlane % width == 0u) {{
{self._put(f"row + rlane / width{scale}", "acc")}
}}
workgroupBarrier();
acc = {self._get(f"row + rlane % sharing{scale}")};
for (var turn = 1u; turn < parts / sharing; turn++) {{
{self._combine_with(self._get(f"row + (rlane % sharing + turn * sharing){scale}"))}
}}
{by_steps}
{self._last}"""

    def _by_subgroups(self) -> str:
        exchange = self._exchange()
        if self.lanes * self.stride <= _WIDTHS[0]:
            exchange = f"@if(!subgroups_of_{self.lanes * self.stride}) {{{exchange}\n}}"
        width = f"const width = max(subgroup_width / {self.stride}u, 1u);"
        same = ""
        if self.accumulator.has_order:
            # Invocations have combined the same accumulators, but in another order.
            first = f"subgroup_lane - rlane % width * {self.stride}u"
            same = f"let first = {first};\nacc = {self._shuffled('subgroupShuffle', 'first')};"
        return self._function(f"{width}\n{self._in_subgroup()}\n{exchange}\n{same}")

    # ---- Without ----

    def _by_workgroup(self) -> str:
        """Numbers are combined in two steps, because a barrier costs more than the reads: the first
        _HEADS invocations combine a share each, then every invocation combines their results.
        Structs are combined in a tree, because combining two of them costs more than a barrier."""
        if self.accumulator.fields:
            return self._function(self._tree())
        heads = min(self.lanes, _HEADS)
        share = f"""
if (rlane < {heads}u) {{
for (var k = {heads}u; k < {self.lanes}u; k += {heads}u) {{
{self._combine_with(self._get(f"lid + k * {self.stride}u"))}
}}
{self._put("lid", "acc")}
}}
workgroupBarrier();"""
        return self._function(f"""let row = lid - rlane * {self.stride}u;
{self._put("lid", "acc")}
workgroupBarrier();{share if self.lanes > heads else ""}
acc = {self._get("row")};
for (var k = 1u; k < {heads}u; k++) {{
{self._combine_with(self._get(f"row + k * {self.stride}u"))}
}}
{self._last}""")

    def _tree(self) -> str:
        return f"""{self._put("lid", "acc")}
for (var step = {self.lanes // 2}u; step > 0u; step >>= 1u) {{
workgroupBarrier();
if (rlane < step) {{
{self._combine_with(self._get(f"lid + step * {self.stride}u"))}
{self._put("lid", "acc")}
}}
}}
workgroupBarrier();
acc = {self._get(f"lid - rlane * {self.stride}u")};
{self._last}"""


def shared_array(name: str, stored: str, users: list[Across]) -> str:
    """The declarations of a workgroup array through which `users` exchange accumulators."""
    text = f"@if(!subgroups) var<workgroup> {name}: array<{stored}, {WORKGROUP}>;"
    for width in reversed(_WIDTHS):
        length = max(user.exchanged(width) for user in users)
        if length == 0:
            break
        branch = "else" if width == _WIDTHS[0] else f"elif(!subgroups_of_{2 * width})"
        text += f"\n@{branch} var<workgroup> {name}: array<{stored}, {length}>;"
    return text


def shared_type(accumulator: Accumulator) -> str:
    """The type of the workgroup array that accumulators are exchanged through."""
    return "u32" if accumulator.type == "bool" else accumulator.type
