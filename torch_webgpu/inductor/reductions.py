"""What is reduced by what, and how the invocations of a workgroup combine their parts.

Sums, products and extremes are rows of the eager kernels' table. The rest have accumulators with
functions of the library (csrc/wgsl/lib/reduce.wgsl, compiled.wgsl).
"""

from dataclasses import dataclass

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


_ROWS = {"sum": "sum", "prod": "prod", "max": "max_values", "min": "min_values"}
# Four values at once: a shorter chain of steps that wait for each other, and fewer tests for NaN.
_FOUR_FLOATS = {
    "sum": "a + ((v.x + v.y) + (v.z + v.w))",
    "max": "push_four_max_f(a, v)",
    "min": "push_four_min_f(a, v)",
}
_TRUTH = {
    "any": ("false", "a || b"),
    "max": ("false", "a || b"),
    "min": ("true", "a && b"),
    "xor_sum": ("false", "a != b"),
}
_XOR = {"i": "0", "l": "vec2<u32>(0u)"}
_MOMENTS = tuple((f"a.{part}", torch.float32) for part in ("mean", "squares", "count"))


def accumulator(reduction: str, dtype: torch.dtype, src_dtype: torch.dtype) -> Accumulator:
    """The accumulator of one of Inductor's reductions of values of `src_dtype` to `dtype`.

    Raises NotImplementedError for what no kernel reduces.
    """
    if reduction in ("argmax", "argmin"):
        return _indexed(reduction, src_dtype)
    if reduction == "welford_reduce":
        return Accumulator(
            "Moments_f",
            "Moments_f(0.0, 0.0, 0.0)",
            "merge_moments_f(a, b)",
            "push_moment_f(a, v)",
            _MOMENTS,
            "push_four_moments_f(a, v)",
        )
    if reduction == "welford_combine":
        return Accumulator(
            "Moments_f",
            "Moments_f(0.0, 0.0, 0.0)",
            "merge_moments_f(a, b)",
            "merge_moments_f(a, v)",
            _MOMENTS,
        )
    if reduction == "online_softmax_reduce":
        return Accumulator(
            "ExpSum_f",
            "ExpSum_f(lowest_f, 0.0)",
            "merge_exp_sums_f(a, b)",
            "push_exp_f(a, v)",
            (("a.most", torch.float32), ("a.total", torch.float32)),
            "push_four_exps_f(a, v)",
        )
    return _plain(reduction, dtype, src_dtype)


def _indexed(reduction: str, src_dtype: torch.dtype) -> Accumulator:
    kind = kind_of(src_dtype)
    row = tables.reduction(reduction, "i" if kind == "b" else kind)
    assert row is not None
    lifted = tables.substitute(row["lift"], {"x": "v"})
    push = tables.substitute(row["combine"], {"b": lifted})
    return Accumulator(
        row["accumulator"], row["identity"], row["combine"], push, ((row["finish"], torch.int64),)
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
    return Accumulator(WGSL_TYPES[kind], identity, combine, push, (("a", DTYPES[kind]),), four)


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
# Types of accumulators, as workgroup memory has them, that take one word.
ONE_WORD = frozenset({"f32", "i32", "u32"})


def across_workgroup(
    name: str, accumulator: Accumulator, shared: str, lanes: int, stride: int, takes_turns: bool
) -> str:
    """The function `name(value, lid, rlane)` that combines the accumulators of the `lanes`
    invocations of a row, which are `stride` apart in the workgroup.

    Numbers are combined in two steps, because a barrier costs more than the reads: the first _HEADS
    invocations combine a share each, then every invocation combines their results. Structs are
    combined in a tree, because combining two of them costs more than a barrier. `takes_turns`: the
    next call uses another array, so that this one's results may still be read meanwhile.
    """
    is_bool = accumulator.type == "bool"  # workgroup memory is not shared as bool by all drivers

    def put(place: str, value: str) -> str:
        return f"{shared}[{place}] = {f'select(0u, 1u, {value})' if is_bool else value};"

    def get(place: str) -> str:
        return f"({shared}[{place}] != 0u)" if is_bool else f"{shared}[{place}]"

    combined = tables.fill_in(accumulator.combine, ["acc", "other"])
    last = "" if takes_turns else "workgroupBarrier();"
    if accumulator.type in WGSL_TYPES.values():
        heads = min(lanes, _HEADS)
        share = f"""
if (rlane < {heads}u) {{
for (var k = {heads}u; k < {lanes}u; k += {heads}u) {{
let other = {get(f"lid + k * {stride}u")};
acc = {combined};
}}
{put("lid", "acc")}
}}
workgroupBarrier();"""
        return f"""
fn {name}(value: {accumulator.type}, lid: u32, rlane: u32) -> {accumulator.type} {{
var acc = value;
let row = lid - rlane * {stride}u;
{put("lid", "acc")}
workgroupBarrier();{share if lanes > heads else ""}
acc = {get("row")};
for (var k = 1u; k < {heads}u; k++) {{
let other = {get(f"row + k * {stride}u")};
acc = {combined};
}}
{last}
return acc;
}}
"""
    return f"""
fn {name}(value: {accumulator.type}, lid: u32, rlane: u32) -> {accumulator.type} {{
var acc = value;
{put("lid", "acc")}
for (var step = {lanes // 2}u; step > 0u; step >>= 1u) {{
workgroupBarrier();
if (rlane < step) {{
let other = {get(f"lid + step * {stride}u")};
acc = {combined};
{put("lid", "acc")}
}}
}}
workgroupBarrier();
acc = {get(f"lid - rlane * {stride}u")};
{last}
return acc;
}}
"""


def shared_type(accumulator: Accumulator) -> str:
    """The type of the workgroup array that accumulators are exchanged through."""
    return "u32" if accumulator.type == "bool" else accumulator.type
