"""score_mod, mask_mod and gradients of flex_attention as WGSL statements.

They fill the regions of csrc/ops/attention/score.wgsl, which says what they may read.
"""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch import fx
from torch._inductor import ir
from torch._inductor.codegen.common import CSEVariable, Kernel
from torch._inductor.graph import GraphLowering
from torch._inductor.subgraph_lowering import PointwiseSubgraphLowering
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import guard_or_false
from torch.utils._sympy.value_ranges import ValueRanges

from torch_webgpu import wgsl
from torch_webgpu.inductor import registers, tables
from torch_webgpu.inductor.overrides import (
    WgslOverrides,
    WgslVariables,
    as_register,
    emit,
    number_of,
)
from torch_webgpu.inductor.printer import index_text

_log = logging.getLogger(__name__)

# ScoreProgram of csrc/ops/attention/score_program.h.
_MOST_CAPTURED = 3
_MOST_NUMBERS = 8
_MOST_DIMS = 4
_PLACE = ("b", "h", "q", "k")
_INT32 = torch.iinfo(torch.int32)


class UnfitError(Exception):
    """The kernels cannot compute the function."""


class Number(NamedTuple):
    """An integer that the texts read: the captured value itself, or a size of a captured tensor."""

    captured: Any
    dim: int | None = None


class Reads:
    """What the functions of one call read: tensors, and integers that are known when it runs."""

    def __init__(self, shape_env: Any) -> None:
        self.shape_env = shape_env
        self.tensors: list[fx.Node] = []
        self.numbers: list[Number] = []
        self.dtypes: dict[str, torch.dtype] = {}
        self.words: dict[str, str] = {}  # WGSL of the symbols that stand for strides and numbers

    def box(self, node: Any) -> Any:
        """The value as an input of Inductor's lowerings."""
        if not isinstance(node, fx.Node):
            return node
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            # The kernels compute integers as i32. A program is compiled again for a number beyond.
            if not isinstance(value, torch.SymInt) or not (
                guard_or_false(value >= _INT32.min) and guard_or_false(value <= _INT32.max)
            ):
                raise UnfitError
            return self._number(Number(node))
        return self._tensor(node, value)

    def _tensor(self, node: fx.Node, value: torch.Tensor) -> Any:
        is_readable = value.device.type == "webgpu" and value.dtype in _READERS
        if not is_readable or value.dim() > _MOST_DIMS or value.layout != torch.strided:
            raise UnfitError
        if node not in self.tensors:
            if len(self.tensors) == _MOST_CAPTURED:
                raise UnfitError
            self.tensors.append(node)
        place = self.tensors.index(node)
        name = f"captured{place}"
        self.dtypes[name] = value.dtype
        sizes = [
            sympy.Integer(size) if isinstance(size, int) else self._number(Number(node, dim))
            for dim, size in enumerate(value.shape)
        ]
        strides = [sympy.Symbol(f"{name}_stride{d}", integer=True) for d in range(value.dim())]
        for d, stride in enumerate(strides):
            self.words[str(stride)] = f"bitcast<i32>(p.captured_strides[{place}][{d}])"
        layout = ir.FixedLayout(value.device, value.dtype, sizes, strides)
        return ir.TensorBox.create(ir.InputBuffer(name=name, layout=layout))

    def _number(self, number: Number) -> sympy.Symbol:
        if number not in self.numbers:
            if len(self.numbers) == _MOST_NUMBERS:
                raise UnfitError
            self.numbers.append(number)
        place = self.numbers.index(number)
        symbol = sympy.Symbol(f"number{place}", integer=True)
        self.words[str(symbol)] = f"bitcast<i32>(p.numbers[{place // 4}][{place % 4}])"
        return symbol


# How an element of a captured tensor is read, by its size in bytes.
_SIZES = {1: "captured_8", 2: "captured_16", 4: "captured_32", 8: "captured_64"}
_READERS = {
    dtype: _SIZES[dtype.itemsize]
    for dtype in registers.OPERAND_TYPES
    if dtype.itemsize in _SIZES and dtype not in registers.EAGER_ONLY and not dtype.is_complex
}


class _ScoreOverrides(WgslOverrides):
    def truediv(self, a: Any, b: Any) -> CSEVariable:
        # WGSL's quotient, which may be off by 2.5 units in the last place, is enough for a score.
        # The exact one takes several times as long.
        number = number_of(b)
        if number is not None and 2.0**-60 < abs(number) < 2.0**60:
            return emit(f"{as_register(a, torch.float32)} / {b}", torch.float32)
        return super().truediv(a, b)

    def constant(self, value: Any, dtype: torch.dtype) -> CSEVariable:
        # Inductor gives constants the dtype of what they meet: here places are int32, in eager mode
        # they are int64.
        is_int = registers.kind_of(dtype) in "iu" and dtype != torch.int64
        if is_int and not _INT32.min <= value <= _INT32.max:
            raise UnfitError
        return super().constant(value, dtype)


class _ScoreKernel(WgslVariables, Kernel):
    """Writes a function's operations as statements."""

    overrides = _ScoreOverrides
    newvar_prefix = "let "
    suffix = ";"

    def __init__(self, reads: Reads, inputs: dict[str, torch.dtype]) -> None:
        super().__init__(increase_kernel_count=False)
        self.reads = reads
        self.inputs = inputs

    def load(self, name: str, index: sympy.Expr) -> CSEVariable:
        if name in self.inputs:
            dtype = self.inputs[name]
            if dtype == torch.int32:
                bounds = ValueRanges(0, (1 << 31) - 1)
                return self.cse.generate(
                    self.compute, name, bounds=bounds, dtype=torch.int32, shape=()
                )
            return self.cse.generate(self.compute, name, dtype=torch.float32, shape=())
        dtype = self.reads.dtypes[name]
        tensor = name.removeprefix("captured")
        bits = f"{_READERS[dtype]}({tensor}u, {self.index_to_str(index)})"
        value = registers.from_operand(wgsl.load(dtype, bits), dtype)
        is_float = registers.kind_of(dtype) == "f"
        return self.cse.generate(
            self.compute, value, dtype=torch.float32 if is_float else dtype, shape=()
        )

    def prepare_indexing(self, expr: sympy.Expr, *args: Any) -> sympy.Expr:
        return expr

    def index_to_str(self, expr: sympy.Expr) -> str:
        return tables.substitute(index_text(expr), self.reads.words)

    def rename_indexing(self, index: Any) -> Any:
        return index

    def checked_index(self, var: CSEVariable, size: sympy.Expr, check: bool) -> CSEVariable:
        """The index as i32. Outside of its range the kernels read another element, as CUDA's read
        what lies there."""
        text = as_register(var, torch.int32)
        if text == str(var):
            return var
        return self.cse.generate(self.compute, text, dtype=torch.int32, shape=())

    def check_bounds(self, *args: Any) -> None:
        """Nothing, see above."""

    def symbol_ranges(self, expr: sympy.Expr) -> dict[sympy.Symbol, ValueRanges[Any]]:
        """Any integer that is an i32."""
        return {symbol: ValueRanges(_INT32.min, _INT32.max) for symbol in expr.free_symbols}

    def _unfit(self, *args: Any, **kwargs: Any) -> Any:
        raise UnfitError

    store = branch = device_assert_async = host_integer = _unfit

    def remove_kernel_local_buffers(self) -> None:
        """Nothing: there are no buffers."""


def text_of(
    module: fx.GraphModule,
    names: Sequence[str],
    query: torch.Tensor,
    captured: Sequence[Any],
    reads: Reads,
) -> str:
    """The statements of a function that set `result` to its first result, f32 or bool. Empty if it
    keeps what `result` starts with: `given`, `score` or true.

    `names`: its parameters in score.wgsl; those that are no place have the dtype of `query`.
    `captured`: what follows them, as nodes of the graph or numbers. `reads` collects what the text
    reads. Raises UnfitError for what the kernels cannot compute.
    """
    inputs = {name: torch.int32 if name in _PLACE else query.dtype for name in names}
    try:
        # Of an empty graph: a lowering takes a graph away from its module.
        empty = fx.Graph()
        empty.output(())
        root = GraphLowering(fx.GraphModule({}, empty), shape_env=reads.shape_env)
        with V.set_graph_handler(root), root.set_current_device(query.device):
            layouts = [ir.FixedLayout(query.device, inputs[name], [], []) for name in names]
            boxes = [
                ir.TensorBox.create(ir.InputBuffer(name=name, layout=layout))
                for name, layout in zip(names, layouts, strict=True)
            ]
            return _text_of(root, module, [*boxes, *map(reads.box, captured)], inputs, reads)
    except Exception as error:
        # Lowerings were not made for tensors whose strides are known later. They raise errors of
        # many kinds for what they cannot do here, and the call has another way.
        _log.info("flex_attention composed of operators: %s: %s", type(error).__name__, error)
        raise UnfitError from error


def _text_of(
    root: GraphLowering,
    module: fx.GraphModule,
    arguments: Sequence[Any],
    inputs: dict[str, torch.dtype],
    reads: Reads,
) -> str:
    lowering = PointwiseSubgraphLowering(_first_result(module), root_graph_lowering=root)
    with V.set_graph_handler(lowering):
        lowering.run(*arguments)
        result: Any = lowering.graph_outputs
        kind = torch.float32 if "score" in inputs else torch.bool
        if result is None:  # the gradient of what does not depend on the score
            return "result = 0.0;"
        if not isinstance(result, ir.TensorBox):
            return f"result = {registers.literal(result, kind)};"
        if result.get_size():
            raise UnfitError
        kernel = _ScoreKernel(reads, inputs)
        with kernel:
            text = as_register(result.make_loader()(()), kind)
            # What `result` starts with.
            start = "given" if "given" in inputs else "score" if "score" in inputs else "true"
            first = kernel.cse.try_get(start)
    if first is not None and text == str(first):
        return ""
    # One line: Inductor writes the text into its code as it is.
    return " ".join([*(str(line) for line in kernel.compute._lines), f"result = {text};"])


def _first_result(module: fx.GraphModule) -> fx.GraphModule:
    """The module without its other results, such as gradients of captured tensors."""
    graph = fx.Graph()
    results: Any = graph.graph_copy(module.graph, {})
    graph.output(results[0] if isinstance(results, tuple | list) else results)
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users:
            graph.erase_node(node)
    return fx.GraphModule(module, graph)
