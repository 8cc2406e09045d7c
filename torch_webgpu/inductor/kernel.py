"""One generated kernel: the loads, stores and loops of fused nodes as WGSL.

The text names its operands by accessors only, which `accessors` makes when it is known how the
operands lie: ``get_x(i)``, ``set_x(i, v)``, ``add_x(i, v)``, and ``get_lanes_x(i, left)`` and
``set_lanes_x(i, v, left)`` for all lanes of an invocation, of which `left` exist.

A pointwise kernel gives an invocation one element, `lanes` neighbours, or, where operands lie
transposed to others, 4 x 4 elements of a tile that is its workgroup's. A reduction gives a row to
`row_lanes` invocations of a workgroup, each of which again takes `lanes` neighbours at a time; what
follows the loop goes on in the same kernel. Where memory runs across the rows, an invocation takes
`lanes` neighbouring rows instead, with an accumulator for each.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import sympy
import torch
from torch._inductor.codegen.common import (
    CSEVariable,
    DeferredLine,
    IndentedBuffer,
    PythonPrinter,
    SizeArg,
    TensorArg,
)
from torch._inductor.codegen.simd import SIMDKernel
from torch._inductor.codegen.simd_kernel_features import EnableReduction
from torch._inductor.dependencies import WeakDep
from torch._inductor.ir import MutationOutput
from torch._inductor.runtime.runtime_utils import next_power_of_2
from torch._inductor.utils import generate_assert
from torch._inductor.virtualized import OpsValue, V
from torch.utils._sympy.functions import FloorDiv
from torch.utils._sympy.symbol import SymT, symbol_is_type
from torch.utils._sympy.value_ranges import ValueRanges

from torch_webgpu.inductor import lanes, reductions, registers, tables
from torch_webgpu.inductor.kept import KeptValues
from torch_webgpu.inductor.lanes import Run
from torch_webgpu.inductor.module import Module, Operand
from torch_webgpu.inductor.overrides import WgslOverrides, WgslVariables, as_register
from torch_webgpu.inductor.printer import (
    high_word,
    host_numbers,
    index_text,
    indices_below,
    is_integer,
    low_word,
)
from torch_webgpu.inductor.reductions import WORKGROUP
from torch_webgpu.inductor.text import (
    LANE,
    LET,
    TURN,
    Push,
    Repeated,
    declared,
    renamed,
    take_invariant,
)

# Elements of a row that an invocation takes, if that leaves enough invocations for the device.
_ELEMENTS_OF_A_LANE = 16
_ENOUGH_INVOCATIONS = 1 << 15
# Elements of a row that an invocation may keep in registers, of all operands; and those of one loop
# that is written out for it.
_MOST_KEPT = 64
_MOST_WRITTEN_OUT = 32
# Elements of one turn of a long loop. Their loads come first, so that several are under way.
_UNROLLED = 4
# Workgroups that keep the device busy, of a few rows each.
_ENOUGH_WORKGROUPS = 256
# Columns, and rows, of a workgroup's tile: 16 x 16 invocations.
_TILE = 64

_aten = torch.ops.aten
# Their indices count along one dimension, the second argument, and raise RuntimeError as in eager
# mode; those of the others raise IndexError.
_ALONG_DIMENSION = {_aten.gather, _aten.scatter, _aten.scatter_add, _aten.scatter_reduce}
_OTHER_INDEXING = {
    *(_aten.index, _aten.index_put, _aten.index_select, _aten.index_add, _aten.index_copy),
    *(_aten.index_fill, _aten.embedding, _aten.take, _aten.nll_loss_forward),
}


def accessed_buffers(nodes: Iterable[Any]) -> set[str]:
    """What nodes load and store. They may also wait for buffers, which need have no elements, and
    for what computes a size that they use, which is no tensor."""
    return {
        dep.name
        for node in nodes
        for dep in node.read_writes.reads_and_writes()
        if not isinstance(dep, WeakDep) and _is_tensor(dep.name)
    }


def _is_tensor(name: str) -> bool:
    buffer: Any = V.graph.try_get_buffer(name)
    # What an operator wrote into a tensor has a name of its own, without a layout.
    return isinstance(buffer, MutationOutput) or buffer.has_tensor_output()


class WgslKernel(WgslVariables, SIMDKernel):
    """Inductor drives it through `load`, `store`, `reduction` and `codegen_body`."""

    overrides = WgslOverrides
    newvar_prefix = "let "
    suffix = ";"
    sexpr = staticmethod(index_text)
    kexpr = staticmethod(index_text)
    pexpr = PythonPrinter().doprint

    def __init__(self, tiling: dict[str, sympy.Expr], **kwargs: Any) -> None:
        super().__init__(tiling, **kwargs)
        self._load_mask: str | None = None
        self.module = Module()
        self.part = 0  # of the module
        self.numbers = itertools.count()
        self.is_part_of_combo = False
        self.lanes = 1
        self.row_lanes = 1
        self.is_outer = False
        self.takes_rows = False  # lanes are rows
        self.stored_before = False  # anything, before the loop whose body is being gathered
        self.loaded: set[str] = set()  # memory, so far; see _memory()
        # A row's first lane stores what other lanes may still have to load.
        self.stores_loaded = False
        # What all lanes load at once, by its text; and what they store: buffer, operand, place,
        # name of the array, condition.
        self.lane_loads: dict[str, str] = {}
        self.lane_load_code = IndentedBuffer()
        self.lane_stores: list[tuple[str, str, str, str, str]] = []
        # Columns and rows of what tiles cover. Loads of whole vectors: operand, place, whether they
        # run down; with the names of their arrays. Stores: buffer, operand, place, array.
        self.tile: tuple[int, int] | None = None
        self.tile_loads: dict[tuple[str, str, bool], str] = {}
        self.tile_stores: list[tuple[str, str, str, str, bool]] = []
        # Reductions: accumulators, indices within the loop, and what follows it. `fours` are the
        # arrays that gather the lanes' values for one update: name, update.
        self.before_loop = IndentedBuffer()
        self.loop_indexing = IndentedBuffer()
        self.after_loop = IndentedBuffer()
        self.fours: list[tuple[str, str]] = []
        self.tail = IndentedBuffer()  # what follows the loop, where lanes are rows
        # Short rows stay in registers from one loop to the next, whose turns are written out then.
        # By operand and place: the array that holds an invocation's part.
        self.turns = 0
        self.kept: dict[tuple[str, str], str] = {}
        self.kept_values = 0
        self.kept_loads: list[str] = []  # of this loop
        self.computed = KeptValues()
        self.stored: set[str] = set()  # operands, so far

    @contextlib.contextmanager
    def set_current_node(self, node: Any) -> Iterator[None]:
        with super().set_current_node(node):
            # Inductor's bounds are those of integers that never wrap; `emit` is given others.
            self.node_to_bounds = None
            yield

    # ---- Numbers that the host computes ----

    def rename_indexing(self, index: Any) -> Any:
        """Replaces what the launch knows by names of arguments: sizes, and real numbers computed
        from sizes. The host computes these in double precision, as it does for constant sizes."""
        if isinstance(index, (list, tuple)):
            return [self.rename_indexing(part) for part in index]
        names = {}
        for part in host_numbers(index):
            name = self.args._lookup("ks", self.args.sizevars, part)
            names[part] = sympy.Symbol(name, integer=is_integer(part) or None, real=True)
        return super().rename_indexing(index.xreplace(names) if names else index)

    def host_integer(self, expr: sympy.Expr) -> str:
        """An integer that depends on sizes alone, as int64: a value, which may pass 31 bits."""
        words = (
            self.args._lookup("ks", self.args.sizevars, word(expr))
            for word in (low_word, high_word)
        )
        return f"vec2<u32>({', '.join(f'bitcast<u32>({word})' for word in words)})"

    # ---- The shape of the workgroup ----

    def finalize_indexing(self, indices: Sequence[sympy.Expr]) -> None:
        """Inductor has collected every index: what runs along memory decides the shape."""
        indices = [self.simplify_indexing(index) for index in indices]
        trees = {tree.prefix: tree for tree in self.range_trees}
        self.x_tree = trees["x"]
        results = lanes.size_hint(self.features.numel)
        if not self.features.is_reduction():
            self.lane_tree = self.x_tree
            if results >= lanes.MIN_TILED:
                self.tile = lanes.choose_tile(self, indices, self.lane_tree)
            if self.tile is not None:
                self.lanes = 4
            elif results >= lanes.MIN_RESULTS:
                self.lanes = lanes.choose(self, indices, self.lane_tree, self._widest_operand())
            return
        self.lane_tree = self.row_tree = trees["r0_"]
        length = lanes.size_hint(self.features.reduction_numel)
        # What is read or written once a row does not count.
        in_row = [index for index in indices if lanes.depends_on(self, index, self.row_tree)]
        self.is_outer = self._runs_along(in_row, self.x_tree) > self._runs_along(
            in_row, self.row_tree
        )
        if self.is_outer and results * length >= lanes.MIN_RESULTS and self._has_one_loop():
            width = self._widest_operand()
            self.lanes = lanes.choose(self, indices, self.x_tree, width, self.x_tree.numel)
            self.takes_rows = self.lanes > 1
            if self.takes_rows:
                self.lane_tree = self.x_tree
        # In an outer reduction neighbouring invocations take columns that are neighbours in memory.
        most = WORKGROUP // self._columns(results) if self.is_outer else WORKGROUP
        each = _ELEMENTS_OF_A_LANE
        if results * length < each * _ENOUGH_INVOCATIONS:
            each //= 4
        self.row_lanes = max(1, min(most, next_power_of_2(max(1, -(-length // each)))))
        if not self.is_outer:
            self.lanes = lanes.choose(
                self, indices, self.lane_tree, self._widest_operand(), self.lane_tree.numel
            )
            self.turns = self._turns()

    def _turns(self) -> int:
        """The turns of a loop over the row, if they are few and there are several such loops."""
        length = self.row_tree.numel
        if self.lanes == 1 or self._has_one_loop() or not isinstance(length, sympy.Integer):
            return 0
        turns = -(-int(length) // (self.row_lanes * self.lanes))
        return turns if turns * self.lanes <= _MOST_WRITTEN_OUT else 0

    def _has_one_loop(self) -> bool:
        return EnableReduction not in self.features.node_schedule

    def _columns(self, results: int) -> int:
        """How many invocations lie across the columns of an outer reduction: as few as move whole
        lines of memory, if that keeps more workgroups busy."""
        if not self.takes_rows:
            return min(next_power_of_2(results), 32)
        each = next_power_of_2(-(-results // (self.lanes * _ENOUGH_WORKGROUPS)))
        return max(4, min(each, 32))

    def _runs_along(self, indices: Iterable[sympy.Expr], tree: Any) -> int:
        return sum(lanes.has_unit_stride(self, index, tree) for index in indices)

    def _widest_operand(self) -> int:
        names = accessed_buffers(self.features.scheduler_nodes())
        # Parts of a combination share operands, hence the number of lanes.
        least = 4 if self.is_part_of_combo else 1
        return max(least, *(V.graph.get_dtype(name).itemsize for name in names))

    @property
    def rows(self) -> int:
        """Rows of a workgroup of a reduction."""
        return WORKGROUP // self.row_lanes

    @property
    def results_of_a_workgroup(self) -> int:
        if not self.features.is_reduction():
            return WORKGROUP * self.lanes
        return self.rows * (self.lanes if self.takes_rows else 1)

    def _in_lanes(self) -> bool:
        return self.lanes > 1 and (not self.features.is_reduction() or self.inside_reduction)

    def dtype_to_str(self, dtype: torch.dtype) -> str:
        return registers.wgsl_type(dtype)

    # ---- Loads ----

    def load(self, name: str, index: sympy.Expr) -> CSEVariable:
        operand = self.args.input(name)
        self.loaded.add(self._memory(name))
        dtype = V.graph.get_dtype(name)
        run = Run.APART
        runs_down = self._tile_direction(index)
        if self.tile is None and self._in_lanes() and self._load_mask is None:
            run = lanes.run_of(self, self.simplify_indexing(index), self.lane_tree, self.lanes)
        place = self.index_to_str(self.prepare_indexing(index))
        element = f"get_{operand}({place})"
        if runs_down is not None:
            key = (operand, place, runs_down)
            array = self.tile_loads.setdefault(key, f"tile{len(self.tile_loads)}")
            self.module.uses_lanes(operand)
            element = _of_tile(array, runs_down)
        elif run is Run.VECTOR:
            self.module.uses_lanes(operand)
            kept = self._kept(operand, place, dtype) if self.turns else None
            vector = kept or self._loaded_once(f"get_lanes_{operand}({place}, left)")
            element = f"{vector}[{LANE}]"
        elif run is Run.SAME:
            element = self._loaded_once(element)
        is_float = registers.kind_of(dtype) == "f"
        return self.cse.generate(
            self.loads,
            registers.from_operand(element, dtype),
            dtype=torch.float32 if is_float else dtype,
            shape=(),
        )

    def _kept(self, operand: str, place: str, dtype: torch.dtype) -> str | None:
        """The array that keeps a part of a row's operand in registers. None if too few registers
        are left, or if the operand was stored."""
        if operand in self.stored:
            return None
        key = (operand, place)
        if key not in self.kept:
            values = self.turns * self.lanes * max(1, dtype.itemsize // 4)
            if self.kept_values + values > _MOST_KEPT:
                return None
            self.kept_values += values
            self.kept[key] = array = f"kept{len(self.kept)}"
            kind = f"array<array<{operand}_t, {self.lanes}>, {self.turns}>"
            self.body.writeline(f"var {array} = {kind}();")
            self.kept_loads.append(f"{array}[{TURN}] = get_lanes_{operand}({place}, left);")
        return f"{self.kept[key]}[{TURN}]"

    def _keep_computed(self) -> IndentedBuffer:
        """Has this loop take from registers what earlier loops computed. Returns declarations."""
        values = self.turns * self.lanes

        def type_of(name: str) -> str | None:
            variable = self.cse.varname_map.get(name)
            if variable is None or registers.kind_of(variable.dtype) != "f":
                return None
            return f"array<array<f32, {self.lanes}>, {self.turns}>"

        def may_keep() -> bool:
            fits = self.kept_values + values <= _MOST_KEPT
            self.kept_values += values if fits else 0
            return fits

        changing = {"r0_index", "r0_first", *declared(self.before_loop, self.loop_indexing)}
        changing |= declared(self.lane_load_code)
        return self.computed.see_loop([self.loads, self.compute], changing, type_of, may_keep)

    def _tile_direction(self, index: sympy.Expr) -> bool | None:
        """Whether an operand's vectors in a tile run down a column; None if it moves elements."""
        if self.tile is None or self._load_mask is not None:
            return None
        index = self.simplify_indexing(index)
        if lanes.run_of(self, index, self.lane_tree, 4) is Run.VECTOR:
            return False
        return True if lanes.runs_down(self, index, self.lane_tree, self.tile) else None

    def _loaded_once(self, text: str) -> str:
        """The name of what is loaded before the lanes take their turns."""
        if text not in self.lane_loads:
            self.lane_loads[text] = self._name("all")
            self.lane_load_code.writeline(f"let {self.lane_loads[text]} = {text};")
        return self.lane_loads[text]

    def _name(self, prefix: str) -> str:
        return f"{prefix}{next(self.numbers)}"

    def branch(
        self, mask: CSEVariable, body: Callable[[], Any], other: float | int | bool
    ) -> CSEVariable:
        """`body()` where the mask holds, else `other`: a real branch, so that no load is out of
        range."""
        inner = IndentedBuffer()
        outer_mask = self._load_mask
        with self.swap_buffers(inner):
            self.cse.iter_buffer_ids = itertools.count()
            self.cse.name_prefix += "_in"
            self._load_mask = str(mask) if outer_mask is None else f"{outer_mask} && {mask}"
            try:
                value = body()
            finally:
                self._load_mask = outer_mask
        if isinstance(value, OpsValue):
            value = value.value
        key = f"{mask}: {inner.getvalue()} {value} or {other}"
        known = self.cse.try_get(key)
        if known:
            return known
        result = self.cse.newvar(dtype=value.dtype, shape=())
        self.cse.put(key, result)
        kind = registers.wgsl_type(value.dtype)
        otherwise = registers.literal(other, value.dtype)
        self.compute.writeline(f"var {result}: {kind} = {otherwise};")
        self.compute.writeline(f"if ({mask}) {{")
        self.compute.splice(inner)
        self.compute.writelines([f"{result} = {value};", "}"])
        return result

    # ---- Indices that are data ----

    def checked_index(self, var: CSEVariable, size: sympy.Expr, check: bool) -> CSEVariable:
        """The index as i32; 0, and an error at the next synchronization, if it is out of range."""
        index = as_register(var, torch.int32)
        has_lower = var.bounds.lower >= 0
        has_upper = isinstance(size, sympy.Number) and var.bounds.upper < size
        if generate_assert(check) and not (has_lower and has_upper):
            limit = self.index_to_str(self.prepare_indexing(size))
            origins = self.current_node.node.get_origins()
            message, raises, counts_from_end = _index_error(origins)
            code = self.module.check(message, raises)
            from_end = "true" if counts_from_end else "false"
            fits = f"all({var} == l_from_i({index}))" if var.dtype == torch.int64 else "true"
            index = f"checked_index({index}, {limit}, {fits}, {from_end}, {code})"
        return self.cse.generate(self.compute, index, dtype=torch.int32, shape=())

    def check_bounds(self, expr: sympy.Expr, size: sympy.Expr, lower: bool, upper: bool) -> None:
        """Nothing: `checked_index` has checked the index where it can still be replaced."""

    def device_assert_async(self, cond: CSEVariable, msg: str) -> None:
        code = self.module.check(msg)
        self.compute.writeline(f"if (!({cond})) {{ complain({code}, 0, 0); }}")

    def symbol_ranges(self, expr: sympy.Expr) -> dict[sympy.Symbol, ValueRanges[Any]]:
        """What the symbols of an index may be."""
        ranges = {}
        for symbol in expr.free_symbols:
            entry = self.range_tree_nodes.get(symbol)
            is_size = symbol_is_type(symbol, (SymT.SIZE, SymT.PRECOMPUTED_SIZE))
            number = ValueRanges(0 if is_size else -(1 << 31), (1 << 31) - 1)
            ranges[symbol] = number if entry is None else indices_below(entry.length)
        return ranges

    # ---- Stores ----

    def _memory(self, name: str) -> str:
        """The same name for all buffers that lie in the same memory: one that is mutated, or reused
        for a result, has another name afterwards, and may be two operands."""
        name = V.graph.scheduler.mutation_real_name.get(name, name)
        return getattr(self.args.inplace_buffers.get(name), "inner_name", name)

    def _see_store_of_row(self, name: str) -> None:
        """One lane stores a row's element. Others of the row, which load it in a loop, must have
        done so: codegen_body() has them meet first."""
        if self.row_lanes > 1 and self._memory(name) in self.loaded:
            self.stores_loaded = True

    def store(
        self, name: str, index: sympy.Expr, value: CSEVariable, mode: str | None = None
    ) -> None:
        operand = self.args.output(name)
        self.stored.add(operand)
        dtype = V.graph.get_dtype(name)
        place = self.index_to_str(self.prepare_indexing(index))
        text = registers.to_operand(as_register(value, dtype), dtype)
        guards = []
        if self.features.is_reduction():
            guards = ["xmask"] if self.inside_reduction else ["xmask", "rlane == 0"]
            if not self.inside_reduction:
                self._see_store_of_row(name)
        if mode not in (None, "atomic_add"):
            raise NotImplementedError(f"a store with mode {mode}")
        runs_down = self._tile_direction(index) if mode is None else None
        if runs_down is not None:
            array = self._name(f"{operand}_tile")
            self.module.uses_lanes(operand)
            self.tile_stores.append((name, operand, place, array, runs_down))
            self.stores.writeline(DeferredLine(name, f"{_of_tile(array, runs_down)} = {text};"))
            return
        if mode is None and self.tile is None and self._stores_vector(index):
            array = self._name(f"{operand}_lanes")
            self.module.uses_lanes(operand)
            self.lane_stores.append((name, operand, place, array, " && ".join(guards)))
            self.stores.writeline(DeferredLine(name, f"{array}[{LANE}] = {text};"))
            return
        if mode == "atomic_add":
            self.module.adds_to(operand)
            line = f"add_{operand}({place}, {text});"
        else:
            self.module.stores_elements(operand)
            line = f"set_{operand}({place}, {text});"
        if self._in_lanes() and not self.features.is_reduction():
            guards.append(f"{LANE} < left")
        line = f"if ({' && '.join(guards)}) {{ {line} }}" if guards else line
        self.stores.writeline(DeferredLine(name, line))

    def _stores_vector(self, index: sympy.Expr) -> bool:
        if not self._in_lanes() or self._load_mask is not None:
            return False
        run = lanes.run_of(self, self.simplify_indexing(index), self.lane_tree, self.lanes)
        return run is Run.VECTOR

    def store_reduction(self, name: str, index: sympy.Expr, value: CSEVariable) -> None:
        operand = self.args.output(name)
        self.stored.add(operand)
        self._see_store_of_row(name)
        dtype = V.graph.get_dtype(name)
        place = self.index_to_str(self.prepare_indexing(index))
        text = registers.to_operand(as_register(value, dtype), dtype)
        self.module.stores_elements(operand)
        line = f"if (xmask && rlane == 0) {{ set_{operand}({place}, {text}); }}"
        self.after_loop.writeline(DeferredLine(name, line))

    # ---- Reductions ----

    def reduction(
        self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: str, value: Any
    ) -> Any:
        key = (src_dtype, reduction_type, value)
        if key not in self.cse.reduction_cache:
            self.cse.reduction_cache[key] = self._reduce(dtype, src_dtype, reduction_type, value)
        return self.cse.reduction_cache[key]

    def _reduce(
        self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: str, value: Any
    ) -> Any:
        assert self.inside_reduction and self._load_mask is None
        kind = reductions.accumulator(reduction_type, dtype, src_dtype)
        if isinstance(value, tuple):
            kind = kind.of_parts()
        name = acc = self._name("acc")
        if self.takes_rows:
            acc = f"{name}[{LANE}]"
            start = ", ".join([kind.identity] * self.lanes)
            self.before_loop.writeline(f"var {name} = array<{kind.type}, {self.lanes}>({start});")
        else:
            self.before_loop.writeline(f"var {name}: {kind.type} = {kind.identity};")
        pushed_dtype = reductions.value_dtype(reduction_type, kind, src_dtype)
        if isinstance(value, tuple):
            parts = ", ".join(as_register(part, pushed_dtype) for part in value)
            pushed = f"{kind.type}({parts})"
        else:
            pushed = as_register(value, pushed_dtype)
        names = {"a": acc, "v": pushed, "i": "bitcast<u32>(r0_index)"}
        push = f"{acc} = {tables.substitute(kind.push, names)};"
        if kind.push_four and not self.takes_rows:
            array = f"{acc}_lanes"
            update = tables.substitute(kind.push_four, {"a": acc, "v": "four"})
            updates = []
            for first in range(0, max(self.lanes, _UNROLLED), 4):
                values = ", ".join(f"{array}[{first + k}]" for k in range(4))
                updates.append(f"{{ let four = vec4<f32>({values}); {acc} = {update}; }}")
            if self.lanes > 1:
                self.fours += [(array, text) for text in updates]
                self.compute.writeline(f"{array}[{LANE}] = {pushed};")
            else:
                self.compute.writeline(Push(push, array, pushed, updates[0]))
        else:
            self.compute.writeline(push)
        total = self._across_row(name, acc, kind)
        results = []
        for text, result_dtype in kind.results:
            final = dtype if len(kind.results) == 1 else result_dtype
            final = torch.float32 if final in registers.HALVES else final
            text = tables.substitute(text, {"a": total})
            text = registers.wrap(registers.convert(text, result_dtype, final), final)
            results.append(self._result(text, final))
        return tuple(results) if len(results) > 1 else results[0]

    def _across_row(self, name: str, acc: str, kind: reductions.Accumulator) -> str:
        if self.row_lanes == 1:
            return acc
        stride = self.rows if self.is_outer else 1
        function = self.module.across_workgroup(kind, self.row_lanes, stride, self.takes_rows)
        total = f"{name}_row"
        self.after_loop.writeline(f"let {total} = {function}({acc}, lid, bitcast<u32>(rlane));")
        return total

    def _result(self, text: str, dtype: torch.dtype) -> CSEVariable:
        name = self._name("red")
        self.after_loop.writeline(f"let {name} = {text};")
        return self.create_cse_var(name, ValueRanges.unknown(), dtype, ())

    # ---- Loops ----

    def codegen_iteration_ranges_entry(self, entry: Any) -> None:
        line = f"let {entry.name} = {self.index_to_str(entry.expr)};"
        (self.loop_indexing if entry.is_reduction else self.indexing_code).writeline(line)

    def codegen_body(self) -> None:
        """Writes what has gathered: a loop over the row, or what stands outside of one."""
        parts = (self.loop_indexing, self.loads, self.compute, self.stores, self.after_loop)
        if not any(parts):
            return
        behind_loop = self.tail if self.takes_rows else self.body
        if self.features.is_reduction() and self.inside_reduction:
            self._write_loop()
            self._meet_before_stores()
            behind_loop.splice(self.after_loop)
            self._forget_loop()
        else:
            for part in (self.loads, self.compute):
                behind_loop.splice(part)
            self._meet_before_stores()
            behind_loop.splice(self.stores)
        for part in (self.before_loop, *parts):
            part.clear()
        self.stored_before = bool(self.stored)

    def _meet_before_stores(self) -> None:
        if self.stores_loaded:
            self.body.writeline("storageBarrier();")
            self.stores_loaded = False

    def _forget_loop(self) -> None:
        """After a loop, only the results of reductions stay known."""
        kept: list[CSEVariable] = []
        for item in self.cse.reduction_cache.values():
            kept.extend(item if isinstance(item, tuple) else (item,))
        self.cse.invalidate(set(kept))
        for tree in self.range_trees:
            if tree.is_reduction:
                tree.cache_clear()

    def _write_loop(self) -> None:
        code = self.body
        numel = self.index_to_str(self.row_tree.numel)
        changing = {"r0_index", "r0_first", LANE, *declared(self.before_loop)}
        if self.takes_rows:
            changing |= {"xindex", *declared(self.indexing_code)}
        changing.update(array for array, _ in self.fours)
        if self.stored_before:  # what one invocation stored may be what another loads
            code.writeline("storageBarrier();")
        code.splice(self.before_loop)
        invariant = take_invariant(
            [self.loop_indexing, self.lane_load_code, self.loads, self.compute], changing
        )
        code.splice(invariant)
        self.computed.see_invariant(invariant)
        if self.takes_rows:
            self._write_rows(numel)
            return
        step = self.row_lanes * self.lanes
        if self.turns:
            code.splice(self._keep_computed())
            self._write_turns(step, numel)
            return
        if self.lanes == 1:
            self._write_single_elements(numel)
            return
        code.writeline(
            f"for (var r0_first = rlane * {self.lanes}; r0_first < {numel}; r0_first += {step}) {{"
        )
        code.splice(self._lanes_code("r0_index", "r0_first", self.loop_indexing))
        code.writeline("}")

    def _write_rows(self, numel: str) -> None:
        """A loop in which lanes are rows. Where the turns come out even, it takes _UNROLLED of them
        at once."""
        code = self.body
        step = self.row_lanes
        exact = V.graph.sizevars.statically_known_multiple_of(self.row_tree.numel, _UNROLLED * step)
        turns = _UNROLLED if exact else 1
        loads = self.lane_load_code
        self.lane_load_code = IndentedBuffer()
        names = {"r0_index", *declared(self.loop_indexing, loads)}
        suffixes = [{name: f"{name}_{turn}" for name in names} for turn in range(turns)]
        body = self._lanes_code("xindex", "xfirst", self.indexing_code)
        code.writeline(
            f"for (var r0_next = rlane; r0_next < {numel}; r0_next += {turns * step}) {{"
        )
        code.writeline("let xindex = xfirst;")
        code.splice(self.indexing_code)
        for turn, suffixed in enumerate(suffixes):
            code.writeline(f"let r0_index_{turn} = r0_next + {turn * step};")
            for buffer in (self.loop_indexing, loads):
                code.writelines(renamed(buffer, suffixed))
        for suffixed in suffixes:
            code.writeline("{")
            code.writelines(renamed(body, suffixed))
            code.writeline("}")
        code.writeline("}")

    def _write_single_elements(self, numel: str) -> None:
        """A loop whose operands move single elements: of a long row _UNROLLED of them a turn, then
        the rest."""
        code = self.body
        step = self.row_lanes
        code.writelines(["{", "var r0_next = rlane;"])
        if self._may_unroll():
            ahead = (_UNROLLED - 1) * step
            code.writeline(f"for (; r0_next < {numel} - {ahead}; r0_next += {_UNROLLED * step}) {{")
            code.splice(self._unrolled())
            code.writeline("}")
        code.writeline(f"for (; r0_next < {numel}; r0_next += {step}) {{")
        code.writeline("let r0_index = r0_next;")
        for part in (self.loop_indexing, self.loads, self.compute, self.stores):
            code.splice(part)
        code.writelines(["}", "}"])

    def _may_unroll(self) -> bool:
        """Whether a row takes several turns, and nothing but plain declarations precede loads."""
        lines = [*self.loop_indexing._lines, *self.loads._lines]
        return lanes.size_hint(self.row_tree.numel) >= 2 * _UNROLLED * self.row_lanes and all(
            isinstance(line, str) and LET.match(line) for line in lines
        )

    def _unrolled(self) -> IndentedBuffer:
        code = IndentedBuffer()
        names = {"r0_index", *declared(self.loop_indexing, self.loads)}

        def suffixed(part: int) -> dict[str, str]:
            return {name: f"{name}_{part}" for name in names}

        pushes = [line for line in self.compute._lines if isinstance(line, Push)]
        compute = IndentedBuffer()
        for line in self.compute._lines:
            compute.writeline(line.to_array() if isinstance(line, Push) else line)
        for push in pushes:
            code.writeline(f"var {push.array} = array<f32, {_UNROLLED}>();")
        for part in range(_UNROLLED):
            code.writeline(f"let r0_index_{part} = r0_next + {part * self.row_lanes};")
            for buffer in (self.loop_indexing, self.loads):
                code.writelines(renamed(buffer, suffixed(part)))
        for part in range(_UNROLLED):
            code.writeline("{")
            for buffer in (compute, self.stores):
                code.writelines(renamed(buffer, {**suffixed(part), LANE: str(part)}))
            code.writeline("}")
        code.writelines(push.update for push in pushes)
        return code

    def _write_turns(self, step: int, numel: str) -> None:
        """A loop written out, with the loads that stay in registers ahead of all else."""
        kept_loads = IndentedBuffer()
        if self.kept_loads:
            kept_loads.writeline("let r0_index = r0_first;")
            kept_loads.splice(self.loop_indexing)
            kept_loads.writelines(self.kept_loads)
            self.kept_loads = []
        body = self._lanes_code("r0_index", "r0_first", self.loop_indexing)
        for part in (kept_loads, body):
            if not part:
                continue
            turn = IndentedBuffer()
            turn.writeline(f"let r0_first = rlane * {self.lanes} + {TURN} * {step};")
            if int(self.row_tree.numel) % step:
                turn.writeline(f"if (r0_first < {numel}) {{")
                turn.splice(part)
                turn.writeline("}")
            else:
                turn.splice(part)
            self.body.writeline(Repeated(turn, self.turns, TURN))

    def _lanes_code(
        self, variable: str, first: str, indexing: IndentedBuffer, last: str | None = None
    ) -> IndentedBuffer:
        """What all lanes load at once, the body for each lane, what all lanes store at once."""
        code = IndentedBuffer()
        code.writeline(f"let {variable} = {first};")
        code.splice(indexing)
        code.splice(self.lane_load_code)
        changing = {variable, LANE, *declared(indexing, self.before_loop)}
        changing.update(array for array, _ in self.fours)
        code.splice(take_invariant([self.loads, self.compute], changing))
        for name, operand, _, array, _ in self.lane_stores:
            line = f"var {array} = array<{operand}_t, {self.lanes}>();"
            code.writeline(DeferredLine(name, line))
        for array in dict.fromkeys(array for array, _ in self.fours):
            code.writeline(f"var {array} = array<f32, {self.lanes}>();")
        each = IndentedBuffer()
        place = f"{first} + {LANE}"
        each.writeline(f"let {variable} = {place if last is None else f'min({place}, {last})'};")
        for part in (indexing, self.loads, self.compute, self.stores):
            each.splice(part)
        code.writeline(Repeated(each, self.lanes))
        code.writelines(update for _, update in self.fours)
        for name, operand, place, array, guard in self.lane_stores:
            line = f"set_lanes_{operand}({place}, {array}, left);"
            line = f"if ({guard}) {{ {line} }}" if guard else line
            code.writeline(DeferredLine(name, line))
        self.lane_loads.clear()
        self.lane_load_code = IndentedBuffer()
        self.lane_stores = []
        self.fours = []
        return code

    # ---- The whole ----

    def function(self) -> str:
        """WGSL of ``part_N(group, lid)``, which does the work of one workgroup."""
        code = IndentedBuffer()
        code.writeline(f"fn part_{self.part}(group: i32, lid: u32) {{")
        code.writeline(f"let xnumel = params.{self.numel_name};")
        if self.features.is_reduction():
            if self.lanes > 1:
                code.writeline(f"const left = {self.lanes};")
            self.codegen_body()
            self._write_sizes(code)
            self._write_row(code)
            if self.takes_rows:
                code.splice(self.body)
                each = IndentedBuffer()
                each.writeline(f"let xindex = xfirst + {LANE};")
                each.splice(self.indexing_code)
                each.splice(self.tail)
                code.writeline(Repeated(each, self.lanes))
            else:
                code.splice(self.indexing_code)
                code.splice(self.body)
        elif self.tile is not None:
            self._write_sizes(code)
            self._write_tile(code, *self.tile)
        elif self.lanes > 1:
            self._write_sizes(code)
            self._write_pointwise_lanes(code)
        else:
            self.codegen_body()
            self._write_sizes(code)
            code.writeline(f"let xindex = group * {WORKGROUP} + bitcast<i32>(lid);")
            code.writeline("if (xindex >= xnumel) { return; }")
            code.splice(self.indexing_code)
            code.splice(self.body)
        code.writeline("}")
        return code.getvalue()

    def _write_pointwise_lanes(self, code: IndentedBuffer) -> None:
        changing = {"xindex", "first", "left", LANE, *declared(self.indexing_code)}
        code.splice(take_invariant([self.lane_load_code, self.loads, self.compute], changing))
        code.writeline(f"let first = (group * {WORKGROUP} + bitcast<i32>(lid)) * {self.lanes};")
        code.writeline("let left = xnumel - first;")
        code.writeline("if (left <= 0) { return; }")
        is_exact = V.graph.sizevars.statically_known_multiple_of(self.x_numel(), self.lanes)
        last = None if is_exact else "xnumel - 1"
        code.splice(self._lanes_code("xindex", "first", self.indexing_code, last))

    def _write_tile(self, code: IndentedBuffer, columns: int, rows: int) -> None:
        arrays = {*self.tile_loads.values(), *(store[3] for store in self.tile_stores)}
        changing = {"xindex", "first", LANE, *declared(self.indexing_code), *arrays}
        code.splice(take_invariant([self.loads, self.compute], changing))
        across, down = -(-columns // _TILE), -(-rows // _TILE)
        code.writelines(
            [
                f"let column = group % {across} * {_TILE} + bitcast<i32>(lid % {_TILE // 4}u) * 4;",
                f"let tile_row = group / {across} % {down} * {_TILE};",
                f"let row = tile_row + bitcast<i32>(lid / {_TILE // 4}u) * 4;",
                f"if (column >= {columns} || row >= {rows}) {{ return; }}",
                f"let first = (group / {across * down} * {rows} + row) * {columns} + column;",
                "const left = 16;",
            ]
        )
        indexing = self.indexing_code.getvalue()

        def for_each_vector(runs_down: bool, line: str) -> str:
            step = 1 if runs_down else columns
            return "\n".join(
                f"{{\nlet xindex = first + {k * step};\n{indexing}{line.format(k=k)}\n}}"
                for k in range(4)
            )

        for (operand, place, runs_down), array in self.tile_loads.items():
            code.writeline(f"var {array} = array<array<{operand}_t, 4>, 4>();")
            load = f"{array}[{{k}}] = get_lanes_{operand}({place}, 4);"
            code.writeline(for_each_vector(runs_down, load))
        for name, operand, _, array, _ in self.tile_stores:
            code.writeline(DeferredLine(name, f"var {array} = array<array<{operand}_t, 4>, 4>();"))
        each = IndentedBuffer()
        each.writeline(f"let xindex = first + {LANE} / 4 * {columns} + {LANE} % 4;")
        for part in (self.indexing_code, self.loads, self.compute, self.stores):
            each.splice(part)
        code.writeline(Repeated(each, 16))
        for name, operand, place, array, runs_down in self.tile_stores:
            store = f"set_lanes_{operand}({place}, {array}[{{k}}], 4);"
            code.writeline(DeferredLine(name, for_each_vector(runs_down, store)))

    def _write_row(self, code: IndentedBuffer) -> None:
        by_rows, by_lanes = f"{self.rows}u", f"{self.row_lanes}u"
        row, lane = (
            (f"lid % {by_rows}", f"lid / {by_rows}")
            if self.is_outer
            else (f"lid / {by_lanes}", f"lid % {by_lanes}")
        )
        each = self.lanes if self.takes_rows else 1  # of which xnumel is a multiple
        place = f"(group * {self.rows} + bitcast<i32>({row}))"
        code.writelines(
            [
                f"let rlane = bitcast<i32>({lane});",
                f"let xplace = {place if each == 1 else f'{place} * {each}'};",
                "let xmask = xplace < xnumel;",
                f"let {'xfirst' if self.takes_rows else 'xindex'} = min(xplace, xnumel - {each});",
            ]
        )

    def _write_sizes(self, code: IndentedBuffer) -> None:
        for given, arg in self.signature():
            if isinstance(arg, SizeArg):
                word = f"params.{arg.name}"
                is_real = not is_integer(sympy.sympify(given))
                code.writeline(f"let {arg.name} = {f'bitcast<f32>({word})' if is_real else word};")

    @property
    def numel_name(self) -> str:
        return "xnumel" if self.part == 0 else f"xnumel_{self.part}"

    def x_numel(self) -> sympy.Expr:
        return V.graph.sizevars.simplify(self.x_tree.numel)

    def groups(self) -> sympy.Expr:
        """How many workgroups there are."""
        if self.tile is not None:
            columns, rows = self.tile
            tiles = -(-columns // _TILE) * -(-rows // _TILE)
            return V.graph.sizevars.simplify(FloorDiv(self.x_numel(), columns * rows) * tiles)
        each = self.results_of_a_workgroup
        return V.graph.sizevars.simplify(FloorDiv(self.x_numel() + each - 1, each))

    def signature(self) -> list[tuple[Any, Any]]:
        """The arguments outside and inside of the kernel."""
        _, call_args, signature, _ = self.args.python_argdefs()
        return list(zip(call_args, signature, strict=True))

    def size_names(self) -> list[str]:
        return [arg.name for _, arg in self.signature() if isinstance(arg, SizeArg)]

    @property
    def prefix(self) -> str:
        """The beginning of the kernel's name, as Inductor's other kernels have it."""
        return "red" if self.features.is_reduction() else "poi"

    def codegen_kernel(self, name: str | None = None) -> str:
        function = self.function()
        self.module.integers = [self.numel_name, *self.size_names()]
        self.module.operands = self.operands()
        self.module.lanes = self.lanes
        return self.module.text([function], [f"part_{self.part}(group, lid);"])

    def operands(self) -> list[Operand]:
        stored = {*self.args.output_buffers.values()}
        stored.update(
            getattr(buffer, "inner_name", "") for buffer in self.args.inplace_buffers.values()
        )
        return [
            self.module.operand(arg.name, registers.OPERAND_TYPES[arg.dtype], arg.name in stored)
            for _, arg in self.signature()
            if isinstance(arg, TensorArg)
        ]

    def call_arguments(self) -> tuple[list[str], list[str]]:
        """Tensors and sizes, as the wrapper's text."""
        tensors, sizes = [], []
        for given, arg in self.signature():
            if isinstance(arg, TensorArg):
                tensors.append(str(given))
            elif isinstance(arg, SizeArg):
                expr = sympy.sympify(given)
                for symbol in expr.free_symbols:
                    V.graph.wrapper_code.ensure_size_computed(symbol)
                text = self.pexpr(expr)
                sizes.append(text if is_integer(expr) else f"float_bits({text})")
        return tensors, sizes

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        tensors, sizes = self.call_arguments()
        launch(name, tensors, [self.pexpr(self.x_numel()), *sizes, self.pexpr(self.groups())])


def _index_error(origins: Iterable[torch.fx.Node]) -> tuple[str, type[Exception], bool]:
    """The error of an index out of range in code that comes from these calls: eager mode's, if it
    is clear which of them has the index. And whether negative indices count from the end: Inductor
    has added the size to them then."""
    found: set[tuple[str, int] | None] = set()
    counts_from_end = False
    for node in origins:
        operator = getattr(node.target, "overloadpacket", None)
        written = getattr(node.meta.get("original_aten"), "overloadpacket", operator)
        counts_from_end |= operator in _OTHER_INDEXING
        if operator in _ALONG_DIMENSION and written in _ALONG_DIMENSION:
            x, dim, *_ = cast("tuple[torch.fx.Node, int]", node.args)
            found.add((operator.__name__, dim % max(x.meta["val"].dim(), 1)))
        elif operator in _ALONG_DIMENSION | _OTHER_INDEXING:
            found.add(None)
    counts_from_end |= not found
    is_other = not found or None in found
    if is_other or len(found) > 1:
        message = "index {index} is out of bounds for dimension with size {size}"
        return message, IndexError if is_other else RuntimeError, counts_from_end
    ((name, dim),) = filter(None, found)
    message = f"{name}(): index {{index}} is out of bounds for dimension {dim} with size {{size}}"
    return message, RuntimeError, counts_from_end


def _of_tile(array: str, runs_down: bool) -> str:
    """A lane's element of the four vectors of a tile's operand."""
    vector, element = f"{LANE} / 4", f"{LANE} % 4"
    return f"{array}[{element}][{vector}]" if runs_down else f"{array}[{vector}][{element}]"


def launch(name: str, tensors: list[str], integers: list[str]) -> None:
    """Has the wrapper call a kernel: tensors, integers, and last the number of workgroups."""
    V.graph.wrapper_code.generate_kernel_call(
        name,
        tensors + integers,
        device=V.graph.get_current_device_or_throw(),
        triton=False,
        arg_types=["tensor"] * len(tensors) + [int] * len(integers),
    )
