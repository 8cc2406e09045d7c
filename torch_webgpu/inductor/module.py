"""The shader of a kernel, but for its operands: functions, workgroup memory, entry point."""

from typing import NamedTuple

from torch_webgpu.inductor import reductions
from torch_webgpu.inductor.reductions import WORKGROUP
from torch_webgpu.inductor.text import indented

# Characters of a kernel's name that tell which operators it fuses.
LONGEST_NAME = 90

_CHECKED_INDEX = """
fn checked_index(v: i32, limit: i32, fits: bool, from_end: bool, code: u32) -> i32 {
if (fits && v >= 0 && v < limit) { return v; }
complain(code, select(v, v - limit, from_end && v < 0), limit);
return 0;
}
"""


# The invocations of a subgroup have consecutive `lid`, which WGSL does not promise of the
# local_invocation_index.
_INVOCATION = """
@if(subgroups)
struct Invocation {
@builtin(subgroup_id) subgroup: u32,
@builtin(subgroup_size) subgroup_size: u32,
@builtin(subgroup_invocation_id) subgroup_lane: u32,
}
@else
struct Invocation {
@builtin(local_invocation_index) index: u32,
}
"""
_LID = """
@if(subgroups) let lid = at.subgroup * at.subgroup_size + at.subgroup_lane;
@else let lid = at.index;
"""


class Operand(NamedTuple):
    """What a kernel states of an operand; the words of `access` are those of `Access`."""

    name: str
    dtype: str  # as kernels name it
    access: str


class Access:
    """The words that say how a kernel uses an operand; without one it loads elements."""

    STORES = "stores"
    ADDS = "adds"  # atomically
    LANES = "lanes"  # moves all lanes at once
    ELEMENTS = "elements"  # stores single elements


class Module:
    """Gathers what the parts of a kernel share."""

    def __init__(self) -> None:
        self.operands: list[Operand] = []
        self.integers: list[str] = []
        self.checks: list[tuple[str, bool]] = []
        self.lanes = 1
        self._functions: dict[object, reductions.Across] = {}
        # Arrays of workgroup memory by type and turn, and whose turn it is.
        self._shared: dict[tuple[str, int], str] = {}
        self._turns: dict[str, int] = {}
        self._moves_lanes: set[str] = set()
        self._adds: set[str] = set()
        self._stores_elements: set[str] = set()

    # ---- What parts use ----

    def uses_lanes(self, operand: str) -> None:
        self._moves_lanes.add(operand)

    def adds_to(self, operand: str) -> None:
        self._adds.add(operand)

    def stores_elements(self, operand: str) -> None:
        self._stores_elements.add(operand)

    def check(self, message: str, raises: type[Exception] = RuntimeError) -> str:
        """The expression of the code that says that `message` happened: an IndexError, or a
        RuntimeError. It may contain {index} and {size}."""
        check = (message, raises is IndexError)
        if check not in self.checks:
            self.checks.append(check)
        return f"params.code_{self.checks.index(check)}"

    def across_workgroup(
        self, kind: reductions.Accumulator, lanes: int, stride: int, repeats: bool
    ) -> str:
        """The name of the function that combines accumulators of a row's invocations.

        Calls with small accumulators take turns between two arrays, so that none has to wait until
        all invocations have read the last one's results. `repeats`: the call is one of several with
        the same array.
        """
        stored = reductions.shared_type(kind)
        turn = 0
        takes_turns = not repeats and stored in reductions.ONE_WORD
        if takes_turns:
            turn = self._turns.get(stored, 0)
            self._turns[stored] = 1 - turn
        key = (kind.type, kind.combine, lanes, stride, turn, takes_turns)
        if key not in self._functions:
            shared = self._shared.setdefault((stored, turn), f"shared_{len(self._shared)}")
            name = f"across_row_{len(self._functions)}"
            function = reductions.Across(name, kind, shared, lanes, stride, takes_turns)
            self._functions[key] = function
        return self._functions[key].name

    # ---- The result ----

    def operand(self, name: str, dtype: str, is_stored: bool) -> Operand:
        access = []
        if is_stored or name in self._adds:
            access.append(Access.STORES)
        if name in self._adds:
            access.append(Access.ADDS)
        if name in self._moves_lanes:
            access.append(Access.LANES)
        if name in self._stores_elements:
            access.append(Access.ELEMENTS)
        return Operand(name, dtype, " ".join(access))

    def text(self, functions: list[str], main: list[str]) -> str:
        """All but bindings, parameters, accessors and library."""
        across = list(self._functions.values())
        parts = [function.text() for function in across]
        if any("{index}" in message for message, _ in self.checks):
            parts.append(_CHECKED_INDEX)
        for (stored, _), name in self._shared.items():
            users = [function for function in across if function.shared == name]
            parts.append(reductions.shared_array(name, stored, users))
        parts += functions
        invocation, lines = "@builtin(local_invocation_index) lid: u32", []
        if across:
            parts += [reductions.SUBGROUP_WIDTH, _INVOCATION]
            invocation, lines = "at: Invocation", [_LID]
        if any(function.accumulator.has_order for function in across):
            parts.append(reductions.SUBGROUP_LANE)
            lines.append("@if(subgroups) subgroup_lane = at.subgroup_lane;")
        parts += [
            f"@compute @workgroup_size({WORKGROUP})",
            "fn main(@builtin(workgroup_id) id: vec3<u32>,",
            "        @builtin(num_workgroups) groups: vec3<u32>,",
            f"        {invocation}) {{",
            "let group = bitcast<i32>(id.y * groups.x + id.x);",
            *lines,
            *main,
            "}",
        ]
        return indented("\n".join(parts))

    def definition(self, name: str, text: str) -> str:
        """The Python expression that makes the kernel, for the module that launches it."""
        operands = "".join(f"        {tuple(operand)!r},\n" for operand in self.operands)
        return (
            f"wgsl_kernel(\n    {name!r},\n    operands=[\n{operands}    ],\n"
            f"    integers={self.integers!r},\n    checks={self.checks!r},\n"
            f"    lanes={self.lanes},\n    text='''\n{text}''',\n)"
        )
