"""What the kernel of a product or a convolution computes of its elements besides, as statements.

`Fusion` in csrc/ops/matmul/matmul_gemm.h says what the statements may use: each element `value`,
the elements `e`, `f`, `g`, `h` and `i` of further tensors at its place, and the place itself.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable, Kernel
from torch._inductor.scheduler import SchedulerNode
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, ModularIndexing
from torch.utils._sympy.value_ranges import ValueRanges

from torch_webgpu.inductor.choices import DTYPES, Product
from torch_webgpu.inductor.overrides import WgslOverrides, WgslVariables
from torch_webgpu.inductor.printer import index_text, indices_below

_OPERANDS = ("e", "f", "g", "h", "i")
_PLACE = ("batch", "row", "column")  # in the kernels, of matrices and of batches of them


class UnfitError(Exception):
    """The nodes cannot be computed with a product's elements."""


class Place(NamedTuple):
    """Where the elements of a buffer lie that belong to those of a product."""

    name: str
    offset: sympy.Expr
    strides: tuple[sympy.Expr, ...]  # for the product's dimensions


class Epilogue(WgslVariables, Kernel):
    """Writes nodes as statements, at the places of a product's elements."""

    overrides = WgslOverrides
    newvar_prefix = "let "
    suffix = ";"

    def __init__(
        self,
        product: Any,
        kind: Product,
        sources: dict[str, SchedulerNode],
        inner: set[str],
        order: Sequence[int],
    ) -> None:
        super().__init__(increase_kernel_count=False)
        layout = product.get_layout()
        self.product = product.get_name()
        self.inputs = product.inputs
        self.kind = kind
        self.left = list(_OPERANDS)
        self.value = "value"
        self.sources = sources  # nodes that compute operands, by the buffers that they would store
        # While a source is written: the place of the element that it has to compute, and its value.
        self.wanted = sympy.S.Zero
        self.found: CSEVariable | None = None
        added = added_input(product, kind)
        if kind.adds and added not in sources:
            self.value = f"value + {self.left.pop(0)}"
        self.inner = inner  # buffers that nothing outside reads
        self.sizes = tuple(layout.size)
        self.order = order  # of the dimensions, in which nodes are expected to walk them
        self.indices = sympy.symbols(f"place:{len(self.sizes)}", integer=True, nonnegative=True)
        self.place = Place(self.product, sympy.sympify(layout.offset), tuple(layout.stride))
        self.operands: dict[Place, str] = {}
        self.seed: Place | None = None
        self.results: dict[Place, str] = {}  # what is stored, and its expression
        if added in sources:
            with self:
                self.value = f"value + {self._computed(added, self._place_of_added())}"

    # ---- What the ops ask of a kernel ----

    def load(self, name: str, index: sympy.Expr) -> CSEVariable:
        if V.graph.get_dtype(name) == torch.int64:
            return self._load_seed(name, index)
        if name in self.sources:
            return self._computed(name, index)
        place = self._place(name, index, DTYPES)
        if name == self.product:
            if not self._same(place):
                raise UnfitError
            text = self.value
        else:
            if place not in self.operands:
                if not self.left:
                    raise UnfitError
                self.operands[place] = self.left.pop(0)
            text = self.operands[place]
        return self.cse.generate(self.compute, text, dtype=torch.float32, shape=())

    def _load_seed(self, name: str, index: sympy.Expr) -> CSEVariable:
        """The one int64 number that a product may read, such as the seed of random numbers."""
        place = Place(name, index, ())
        if index.free_symbols or self.seed not in (None, place) or self.kind.is_convolution:
            raise UnfitError
        self.seed = place
        return self.cse.generate(self.compute, "seed", dtype=torch.int64, shape=())

    def store(self, name: str, index: sympy.Expr, value: CSEVariable, mode: Any = None) -> None:
        if mode is not None:
            raise UnfitError
        if name in self.sources:
            if sympy.expand(index - self.wanted) != 0:
                raise UnfitError
            self.found = value
            return
        if name in self.inner:
            return
        place = self._place(name, index, (*DTYPES, torch.bool))
        if (value.dtype == torch.bool) != (V.graph.get_dtype(name) == torch.bool):
            raise UnfitError
        if value.dtype not in (torch.float32, torch.bool):
            raise UnfitError
        self.results[place] = str(value)

    def store_product(self) -> None:
        """The product as it is becomes a result, because others read it."""
        self.results[self.place] = self.value

    def prepare_indexing(self, expr: sympy.Expr, *args: Any) -> sympy.Expr:
        """An index as a value: it may depend on the places of matrices' elements."""
        expr = self._simplified(expr)
        if self.kind.is_convolution or expr.free_symbols - set(self.indices):
            raise UnfitError
        return expr

    def index_to_str(self, expr: sympy.Expr) -> str:
        return index_text(self.rename_indexing(expr))

    def rename_indexing(self, index: Any) -> Any:
        """With the kernel's names of places. It has no arguments for sizes."""
        texts = [f"bitcast<i32>({place})" for place in _PLACE[-len(self.indices) :]]
        names = [sympy.Symbol(text, integer=True, nonnegative=True) for text in texts]
        return index.xreplace(dict(zip(self.indices, names, strict=True)))

    def symbol_ranges(self, expr: sympy.Expr) -> dict[sympy.Symbol, ValueRanges[Any]]:
        return {
            index: indices_below(size)
            for index, size in zip(self.indices, self.sizes, strict=True)
            if index in expr.free_symbols
        }

    def branch(self, *args: Any) -> Any:
        raise UnfitError

    checked_index = device_assert_async = host_integer = branch

    def remove_kernel_local_buffers(self) -> None:
        """Nothing: `inner` has these buffers already."""

    # ---- The nodes ----

    def add(self, node: SchedulerNode) -> None:
        """Writes a node, whose loops run over the elements of the product in `order`."""
        (sizes, reduced) = node.get_ranges()
        if reduced:
            raise UnfitError
        with self:
            self._write(node, self._variables(sizes))

    def _write(self, node: SchedulerNode, variables: Sequence[sympy.Expr]) -> None:
        with self.set_current_node(node), V.graph.set_current_device(node.get_device()):
            node._body(variables, [])

    def _computed(self, name: str, index: sympy.Expr) -> CSEVariable:
        """An element of an operand, by its source. That walks the operand as it lies in memory, or
        as the product does."""
        node = self.sources[name]
        (sizes, _) = node.get_ranges()
        self.wanted, self.found = self._simplified(index), None
        self._write(node, [self.wanted] if len(sizes) == 1 else self._variables(sizes))
        assert self.found is not None
        return self.found

    def _place_of_added(self) -> sympy.Expr:
        layout = self.inputs[self.kind.index_of_added].get_layout()
        if self.kind.is_convolution:
            return layout.offset + layout.stride[0] * self.indices[1]  # an element for each channel
        dims = reversed(layout.size), reversed(layout.stride), reversed(self.indices)
        pairs = zip(*dims, strict=False)  # leading dimensions may be missing
        equal = V.graph.sizevars.statically_known_equals
        return layout.offset + sum(
            0 if equal(size, 1) else stride * index for size, stride, index in pairs
        )

    def _variables(self, sizes: Sequence[sympy.Expr]) -> list[sympy.Expr]:
        """The variables of loops of these sizes."""
        equal = V.graph.sizevars.statically_known_equals
        left = [d for d in self.order if not equal(self.sizes[d], 1)]
        variables: list[sympy.Expr] = []
        for size in reversed(sizes):  # each walks one dimension or several
            index, walked = sympy.S.Zero, sympy.S.One
            while left and not equal(walked, size):
                d = left.pop()
                index += walked * self.indices[d]
                walked *= self.sizes[d]
            if not equal(walked, size):
                return self._parts_of_dimensions(sizes)
            variables.insert(0, index)
        if left:
            raise UnfitError
        return variables

    def _parts_of_dimensions(self, sizes: Sequence[sympy.Expr]) -> list[sympy.Expr]:
        """The same for loops that walk a part of a dimension."""
        equal = V.graph.sizevars.statically_known_equals
        if not equal(math.prod(sizes), math.prod(self.sizes)):
            raise UnfitError
        variables: list[sympy.Expr] = []
        stride = sympy.S.One
        for size in reversed(sizes):
            is_outermost = len(variables) == len(sizes) - 1
            place = self._quotient(stride)
            if not is_outermost:
                place = ModularIndexing(place, 1, size)
            variables.insert(0, self._simplified(place))
            stride = stride * size
        return variables

    def _quotient(self, stride: sympy.Expr) -> sympy.Expr:
        """The number of an element in `order`, divided by `stride` and rounded down. Terms too
        small to change the quotient are left out, which only some versions of Inductor's
        simplification do."""
        number = sympy.S.Zero
        weight = math.prod(self.sizes)
        for d in self.order:
            number = number * self.sizes[d] + self.indices[d]
            weight = sympy.simplify(weight / self.sizes[d])
            factor = sympy.simplify(stride / weight)
            if factor.is_Integer and factor >= 1:
                return FloorDiv(sympy.expand(number), factor)
        return FloorDiv(sympy.expand(number), stride)

    def finish(self) -> None:
        """Chooses the order of the results. The kernels store the first as a product, so it must be
        of floats. One that lies as the product would goes before one that does not."""
        if not 1 <= len(self.results) <= 2:
            raise UnfitError
        floats = [x for x in self.results if V.graph.get_dtype(x.name) in DTYPES]
        if not floats:
            raise UnfitError
        first = min(floats, key=lambda place: place.strides != self.place.strides)
        self.results = {first: self.results[first], **self.results}

    def statements(self) -> str:
        """What the kernel computes of an element."""
        text = [str(line) for line in self.compute._lines]
        first, *second = self.results.items()
        text.append(f"result.value = {first[1]};")
        for place, value in second:
            is_truth = V.graph.get_dtype(place.name) == torch.bool
            text.append(f"result.second = {f'f32({value})' if is_truth else value};")
        return "\n".join(text)

    def _simplified(self, expr: sympy.Expr) -> sympy.Expr:
        ranges = dict(zip(self.indices, self.sizes, strict=True))
        return V.graph.sizevars.simplify_with_ranges(expr, ranges)

    def other_inputs(self) -> list[Any]:
        """The product's inputs but for one that has a source."""
        return [each for each in self.inputs if each.get_name() not in self.sources]

    def buffers(self) -> set[str]:
        """What a call binds."""
        seed = [self.seed] if self.seed else []
        inputs = {each.get_name() for each in self.other_inputs()}
        return inputs | {place.name for place in (*self.operands, *self.results, *seed)}

    def _place(self, name: str, index: sympy.Expr, dtypes: Sequence[torch.dtype]) -> Place:
        if V.graph.get_dtype(name) not in dtypes:
            raise UnfitError
        index = sympy.expand(self._simplified(index))
        strides = tuple(index.coeff(symbol) for symbol in self.indices)
        offset = index.subs(dict.fromkeys(self.indices, 0))
        rest = index - sum(s * symbol for s, symbol in zip(strides, self.indices, strict=True))
        known = (*strides, offset, rest)
        if sympy.expand(rest - offset) != 0 or any(
            x.free_symbols & set(self.indices) for x in known
        ):
            raise UnfitError
        place = Place(name, offset, strides)
        if self.kind.is_convolution and not self._has_position_stride(place):
            raise UnfitError
        return place

    def _has_position_stride(self, place: Place) -> bool:
        """Whether positions of an image lie one after the other, with any one stride."""
        equal = V.graph.sizevars.statically_known_equals
        expected = None
        for size, stride in zip(self.sizes[:1:-1], place.strides[:1:-1], strict=True):
            if equal(size, 1):
                continue
            if expected is not None and not equal(stride, expected):
                return False
            expected = stride * size
        return True

    def _same(self, place: Place) -> bool:
        """Whether the elements lie as the product's. Strides of dimensions of size 1 may differ."""
        equal = V.graph.sizevars.statically_known_equals
        return equal(place.offset, self.place.offset) and all(
            equal(one, other) or equal(size, 1)
            for one, other, size in zip(place.strides, self.place.strides, self.sizes, strict=True)
        )


def added_input(product: Any, kind: Product) -> str | None:
    """The input that is added to the product of the others. None if a factor is the same buffer,
    which the kernel has to read."""
    names = [each.get_name() for each in product.inputs]
    at = kind.index_of_added
    if at is None or at >= len(names) or names.count(names[at]) != 1:
        return None
    return names[at]
