"""Matrix products that compute what follows them, element by element, before they store.

The hand-written kernels of products take an expression of each element `value` and of the elements
`e` and `f` of two further matrices at its place. A group of pointwise nodes becomes one if nothing
else reads the product, if it stores one buffer, and if that and its operands lie as matrices.
"""

import math
from typing import Any, NamedTuple

import sympy
import torch
from torch._inductor import config, ir
from torch._inductor.codegen.common import CSEVariable, Kernel
from torch._inductor.scheduler import (
    ExternKernelSchedulerNode,
    FusedSchedulerNode,
    SchedulerNode,
)
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from torch_webgpu.inductor import tables
from torch_webgpu.inductor.choices import DTYPES, Product, product_of
from torch_webgpu.inductor.module import LONGEST_NAME
from torch_webgpu.inductor.overrides import KnownNumbers, WgslOverrides
from torch_webgpu.inductor.text import lets

# An expression that uses a value twice contains it twice.
_LONGEST_EXPRESSION = 1000

_PLACE = sympy.symbols("batch row column", integer=True, nonnegative=True)


class _UnfitError(Exception):
    """The nodes cannot be an expression of a product's elements."""


class _Matrix(NamedTuple):
    """A buffer as a matrix, or as a batch of them."""

    name: str
    offset: sympy.Expr
    strides: tuple[sympy.Expr, ...]  # of batch, row and column


class _Epilogue(KnownNumbers, Kernel):
    """Writes nodes as one expression, at the places of a product's elements."""

    overrides = WgslOverrides
    newvar_prefix = "let "
    suffix = ";"

    def __init__(self, product: Any, adds: bool, inner: set[str]) -> None:
        super().__init__(increase_kernel_count=False)
        layout = product.get_layout()
        self.product = product.get_name()
        self.dtype = product.get_dtype()
        self.left = ["e", "f"]
        self.value = "value"
        if adds:
            self.value = f"value + {self.left.pop(0)}"
        self.inner = inner  # buffers that nothing outside reads
        self.sizes = (sympy.S.One,) * (3 - len(layout.size)) + tuple(layout.size)
        strides = (sympy.S.Zero,) * (3 - len(layout.size)) + tuple(layout.stride)
        self.matrix = _Matrix(self.product, sympy.sympify(layout.offset), strides)
        self.operands: dict[_Matrix, str] = {}
        self.stored: dict[str, _Matrix] = {}
        self.result = ""

    # ---- What the ops ask of a kernel ----

    def load(self, name: str, index: sympy.Expr) -> CSEVariable:
        matrix = self._matrix(name, index)
        if name == self.product:
            if not self._same(matrix):
                raise _UnfitError
            text = self.value
        else:
            if matrix not in self.operands:
                if not self.left:
                    raise _UnfitError
                self.operands[matrix] = self.left.pop(0)
            text = self.operands[matrix]
        return self.cse.generate(self.compute, text, dtype=torch.float32, shape=())

    def store(self, name: str, index: sympy.Expr, value: CSEVariable, mode: Any = None) -> None:
        if mode is not None:
            raise _UnfitError
        if name in self.inner:
            return
        if self.stored or value.dtype != torch.float32:
            raise _UnfitError
        self.stored[name] = self._matrix(name, index)
        self.result = str(value)

    def prepare_indexing(self, *args: Any) -> Any:
        raise _UnfitError

    branch = checked_index = device_assert_async = symbol_ranges = prepare_indexing

    def remove_kernel_local_buffers(self) -> None:
        """Nothing: `inner` has these buffers already."""

    # ---- The nodes ----

    def add(self, node: SchedulerNode) -> None:
        """Writes a node, whose loops run over the elements of the product in their order."""
        (sizes, reduced) = node.get_ranges()
        numel = math.prod(self.sizes)
        if reduced or not V.graph.sizevars.statically_known_equals(math.prod(sizes), numel):
            raise _UnfitError
        variables: list[sympy.Expr] = []
        stride = sympy.S.One
        for size in reversed(sizes):
            is_outermost = len(variables) == len(sizes) - 1
            place = self._quotient(stride)
            if not is_outermost:
                place = ModularIndexing(place, 1, size)
            variables.insert(0, self._simplified(place))
            stride = stride * size
        with self, self.set_current_node(node), V.graph.set_current_device(node.get_device()):
            node._body(variables, [])

    def _quotient(self, stride: sympy.Expr) -> sympy.Expr:
        """The row-major index of an element, divided by `stride` and rounded down. Terms too small
        to change the quotient are left out, which only some versions of Inductor's
        simplification do."""
        batch, row, column = _PLACE
        number = (batch * self.sizes[1] + row) * self.sizes[2] + column
        for weight, rest in (
            (self.sizes[1] * self.sizes[2], batch),
            (self.sizes[2], batch * self.sizes[1] + row),
        ):
            factor = sympy.simplify(stride / weight)
            if factor.is_Integer and factor >= 1:
                return FloorDiv(sympy.expand(rest), factor)
        return FloorDiv(sympy.expand(number), stride)

    def expression(self) -> str:
        """All of it as one expression, without variables."""
        if not self.stored:
            raise _UnfitError
        texts: dict[str, str] = {}
        for name, text in lets(self.compute):
            texts[name] = f"({tables.substitute(text, texts)})"
            if len(texts[name]) > _LONGEST_EXPRESSION:
                raise _UnfitError
        return texts[self.result]

    def _simplified(self, expr: sympy.Expr) -> sympy.Expr:
        ranges = dict(zip(_PLACE, self.sizes, strict=True))
        return V.graph.sizevars.simplify_with_ranges(expr, ranges)

    def _matrix(self, name: str, index: sympy.Expr) -> _Matrix:
        if V.graph.get_dtype(name) != self.dtype:
            raise _UnfitError
        index = sympy.expand(self._simplified(index))
        strides = tuple(index.coeff(symbol) for symbol in _PLACE)
        offset = index.subs(dict.fromkeys(_PLACE, 0))
        rest = index - sum(s * symbol for s, symbol in zip(strides, _PLACE, strict=True))
        known = (*strides, offset, rest)
        if sympy.expand(rest - offset) != 0 or any(x.free_symbols & set(_PLACE) for x in known):
            raise _UnfitError
        return _Matrix(name, offset, strides)

    def _same(self, matrix: _Matrix) -> bool:
        """Whether the matrix lies as the product. Strides of dimensions of size 1 may differ."""
        equal = V.graph.sizevars.statically_known_equals
        return equal(matrix.offset, self.matrix.offset) and all(
            equal(one, other) or equal(size, 1)
            for one, other, size in zip(
                matrix.strides, self.matrix.strides, self.sizes, strict=True
            )
        )


class FusedProduct(FusedSchedulerNode):
    """A product and the nodes that it computes before it stores."""

    def __init__(
        self, scheduler: Any, product: Any, nodes: list[Any], epilogue: _Epilogue, strategy: str
    ) -> None:
        super().__init__(scheduler, [*nodes, product])  # the first tells the group
        self.snodes = [product, *nodes]
        self.product = product
        self.epilogue = epilogue
        self.expression = epilogue.expression()
        self.strategy = strategy

    def codegen(self) -> None:
        """Has the wrapper allocate the one buffer that is stored, and call the product."""
        wrapper = V.graph.wrapper_code
        stored = self.epilogue.stored
        V.graph.removed_buffers |= self.get_buffer_names() - OrderedSet(stored)
        with V.set_kernel_handler(Kernel(increase_kernel_count=False)):
            for buffer in self.get_outputs():
                if buffer.get_name() in stored:
                    buffer.allocate()
        out, *operands = map(self._view, [*stored.values(), *self.epilogue.operands])
        *added, a, b = (each.codegen_reference() for each in self.product.node.inputs)
        origins, detailed_origins = get_kernel_metadata(self.snodes, wrapper)
        for line in origins.splitlines():
            wrapper.writeline(line)
        name = self._define(origins, detailed_origins)
        wrapper.writeline(f"{name}({', '.join([out, a, b, *added, *operands])})")

    def _define(self, *origins: str) -> str:
        """The name of the product in the module."""
        wrapper = V.graph.wrapper_code
        strategy = f", strategy={self.strategy!r}" if self.strategy else ""
        text = f"fused_product({self.expression!r}{strategy})"
        if text not in wrapper.src_to_kernel:
            fused = get_fused_kernel_name(self.snodes, config.triton.descriptive_names)
            name = f"product_{fused[:LONGEST_NAME]}_{wrapper.next_kernel_suffix()}"
            wrapper.src_to_kernel[text] = name
            wrapper.define_kernel(name, text, "\n".join(origins), gpu=False)
        return str(wrapper.src_to_kernel[text])

    def _view(self, matrix: _Matrix) -> str:
        wrapper = V.graph.wrapper_code
        axes = slice(3 - len(self.product.node.get_size()), None)
        sizes, strides = self.epilogue.sizes[axes], matrix.strides[axes]
        layout = V.graph.get_buffer(matrix.name).get_layout()
        equal = V.graph.sizevars.statically_known_list_equals
        is_whole = equal(layout.size, sizes) and equal(layout.stride, strides)
        if is_whole and matrix.offset == 0:
            return matrix.name
        for symbol in {s for x in (*sizes, *strides, matrix.offset) for s in x.free_symbols}:
            wrapper.ensure_size_computed(symbol)
        sizes, strides = map(wrapper.codegen_python_shape_tuple, (sizes, strides))
        offset = wrapper.codegen_python_sizevar(matrix.offset)
        return f"reinterpret_tensor({matrix.name}, {sizes}, {strides}, {offset})"


def fuse_products(scheduler: Any, nodes: list[Any]) -> list[Any]:
    """The scheduler's nodes, with products joined to the pointwise nodes that read them."""
    if config.memory_planning:  # then tensors that overlap nowhere may lie in one buffer
        return nodes
    result = list(nodes)
    for product in nodes:
        kind = _kind(product)
        if kind is None:
            continue
        reader = _reader(scheduler, product)
        if reader not in result or not _can_wait(product, reader, result):
            continue
        try:
            epilogue = _epilogue(scheduler, product.node, kind.adds, reader)
            nodes_after = list(reader.get_nodes())
            fused = FusedProduct(scheduler, product, nodes_after, epilogue, kind.strategy)
        except (_UnfitError, NotImplementedError):
            continue
        result[result.index(reader)] = fused
        result.remove(product)
        names = {*(node.get_name() for node in fused.get_nodes()), fused.get_name()}
        scheduler.name_to_fused_node.update(dict.fromkeys(names, fused))
    return result if len(result) == len(nodes) else scheduler.topological_sort_schedule(result)


def _kind(node: Any) -> Product | None:
    """What the node computes, if that is a product that can compute more."""
    if not isinstance(node, ExternKernelSchedulerNode) or node.get_device().type != "webgpu":
        return None
    product = node.node
    kind = product_of(getattr(product, "python_kernel_name", None))
    is_fit = (
        kind is not None
        and product.get_dtype() in DTYPES
        and product.output_view is None
        and type(product.layout) is ir.FixedLayout
        and all(each.get_dtype() == product.get_dtype() for each in product.inputs)
        and all(product.kwargs.get(factor, 1) == 1 for factor in ("alpha", "beta"))
    )
    return kind if is_fit else None


def _reader(scheduler: Any, product: Any) -> Any:
    """The group of pointwise nodes that alone reads the product; None if there is none."""
    (buffer,) = product.get_outputs()
    names = {user.get_name() for user in buffer.users}
    readers = {scheduler.name_to_fused_node.get(name) for name in names}
    reader: Any = readers.pop() if len(readers) == 1 else None
    if type(reader) not in (SchedulerNode, FusedSchedulerNode):
        return None
    is_fit = (
        reader.get_device() == product.get_device()
        and not reader.is_reduction()
        and not reader.has_aliasing_or_mutation()
        and all(type(node) is SchedulerNode for node in reader.get_nodes())
        and scheduler.can_buffer_be_removed_through_fusion(
            buffer.get_name(), reader.get_operation_names()
        )
    )
    return reader if is_fit else None


def _can_wait(product: Any, reader: Any, nodes: list[Any]) -> bool:
    """Whether nothing has to come after the product and before its reader, such as a change of
    the product's operands in place."""
    return not any(
        node is not product
        and node is not reader
        and node.ancestors & product.get_operation_names()
        and node.get_operation_names() & reader.ancestors
        for node in nodes
    )


def _epilogue(scheduler: Any, product: Any, adds: bool, reader: Any) -> _Epilogue:
    operations = reader.get_operation_names()
    is_inner = scheduler.can_buffer_be_removed_through_fusion
    inner = {name for name in reader.get_buffer_names() if is_inner(name, operations)}
    epilogue = _Epilogue(product, adds, inner)
    for node in reader.get_nodes():
        epilogue.add(node)
    epilogue.expression()
    (stored,) = epilogue.stored
    if type(scheduler.name_to_buf[stored].node.layout) is not ir.FixedLayout:
        raise _UnfitError
    return epilogue
