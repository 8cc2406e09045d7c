"""Products and convolutions that compute what follows them, element by element, before they store.

Their hand-written kernels take statements (`Fusion` in csrc/ops/matmul/matmul_gemm.h) that compute
the result from each element `value`, from the elements `e`, `f`, `g`, `h` and `i` of further
tensors at its place, and from the place itself. A group of pointwise nodes becomes statements under
two conditions. It stores at most two buffers; the product counts as one where others read it too.
And these buffers and the operands lie as the kernels can address them: with one stride for each
dimension, which positions of a convolution share.

In this module a reader is such a group of nodes. A source is a pointwise node that computes an
operand, such as a bias that it converts; its statements come first then.
"""

import math
from collections.abc import Sequence
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
from torch.utils._sympy.value_ranges import ValueRanges

from torch_webgpu.inductor import tables
from torch_webgpu.inductor.choices import DTYPES, Product, geometry_of, product_of
from torch_webgpu.inductor.interface import buffer_budget
from torch_webgpu.inductor.lanes import size_hint
from torch_webgpu.inductor.module import LONGEST_NAME
from torch_webgpu.inductor.overrides import KnownNumbers, WgslOverrides
from torch_webgpu.inductor.printer import index_text

_OPERANDS = ("e", "f", "g", "h", "i")
# Inductor's operations in a source, loads and the store included. An element of an operand that is
# the same along a dimension is computed again for each element of the product along it.
_LONGEST_SOURCE = 8
_PLACE = ("batch", "row", "column")  # in the kernels, of matrices and of batches of them


class _UnfitError(Exception):
    """The nodes cannot be computed with a product's elements."""


class _Place(NamedTuple):
    """Where the elements of a buffer lie that belong to those of a product."""

    name: str
    offset: sympy.Expr
    strides: tuple[sympy.Expr, ...]  # for the product's dimensions


class _Epilogue(KnownNumbers, Kernel):
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
        self.sources = sources  # by the buffers that they would store
        # While a source is written: the place of the element that it has to compute, and its value.
        self.wanted = sympy.S.Zero
        self.found: CSEVariable | None = None
        added = _added(product, kind)
        if kind.adds and added not in sources:
            self.value = f"value + {self.left.pop(0)}"
        self.inner = inner  # buffers that nothing outside reads
        self.sizes = tuple(layout.size)
        self.order = order  # of the dimensions, in which nodes are expected to walk them
        self.indices = sympy.symbols(f"place:{len(self.sizes)}", integer=True, nonnegative=True)
        self.place = _Place(self.product, sympy.sympify(layout.offset), tuple(layout.stride))
        self.operands: dict[_Place, str] = {}
        self.seed: _Place | None = None
        self.results: dict[_Place, str] = {}  # what is stored, and its expression
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
                raise _UnfitError
            text = self.value
        else:
            if place not in self.operands:
                if not self.left:
                    raise _UnfitError
                self.operands[place] = self.left.pop(0)
            text = self.operands[place]
        return self.cse.generate(self.compute, text, dtype=torch.float32, shape=())

    def _load_seed(self, name: str, index: sympy.Expr) -> CSEVariable:
        """The one int64 number that a product may read, such as the seed of random numbers."""
        place = _Place(name, index, ())
        if index.free_symbols or self.seed not in (None, place) or self.kind.is_convolution:
            raise _UnfitError
        self.seed = place
        return self.cse.generate(self.compute, "seed", dtype=torch.int64, shape=())

    def store(self, name: str, index: sympy.Expr, value: CSEVariable, mode: Any = None) -> None:
        if mode is not None:
            raise _UnfitError
        if name in self.sources:
            if sympy.expand(index - self.wanted) != 0:
                raise _UnfitError
            self.found = value
            return
        if name in self.inner:
            return
        place = self._place(name, index, (*DTYPES, torch.bool))
        if (value.dtype == torch.bool) != (V.graph.get_dtype(name) == torch.bool):
            raise _UnfitError
        if value.dtype not in (torch.float32, torch.bool):
            raise _UnfitError
        self.results[place] = str(value)

    def store_product(self) -> None:
        """The product as it is becomes a result, because others read it."""
        self.results[self.place] = self.value

    def prepare_indexing(self, expr: sympy.Expr, *args: Any) -> sympy.Expr:
        """An index as a value: it may depend on the places of matrices' elements."""
        expr = self._simplified(expr)
        if self.kind.is_convolution or expr.free_symbols - set(self.indices):
            raise _UnfitError
        return expr

    def index_to_str(self, expr: sympy.Expr) -> str:
        text = index_text(expr)
        places = dict(zip(map(str, self.indices), _PLACE[-len(self.indices) :], strict=True))
        used = {name: f"bitcast<i32>({place})" for name, place in places.items()}
        return tables.substitute(text, used)

    def rename_indexing(self, index: Any) -> Any:
        """The same: a product's kernel has no arguments for sizes."""
        return index

    def symbol_ranges(self, expr: sympy.Expr) -> dict[sympy.Symbol, ValueRanges[Any]]:
        return {
            index: ValueRanges(0, size - 1)
            for index, size in zip(self.indices, self.sizes, strict=True)
            if index in expr.free_symbols
        }

    def branch(self, *args: Any) -> Any:
        raise _UnfitError

    checked_index = device_assert_async = host_integer = branch

    def remove_kernel_local_buffers(self) -> None:
        """Nothing: `inner` has these buffers already."""

    # ---- The nodes ----

    def add(self, node: SchedulerNode) -> None:
        """Writes a node, whose loops run over the elements of the product in `order`."""
        (sizes, reduced) = node.get_ranges()
        if reduced:
            raise _UnfitError
        with self:
            self._write(node, self._variables(sizes))

    def _write(self, node: SchedulerNode, variables: Sequence[sympy.Expr]) -> None:
        with self.set_current_node(node), V.graph.set_current_device(node.get_device()):
            node._body(variables, [])

    def _computed(self, name: str, index: sympy.Expr) -> CSEVariable:
        """An element of an operand, by its source. That walks the operand as it lies in memory, or
        as the product does."""
        node = self.sources[name]
        (sizes, reduced) = node.get_ranges()
        if reduced:
            raise _UnfitError
        self.wanted, self.found = self._simplified(index), None
        self._write(node, [self.wanted] if len(sizes) == 1 else self._variables(sizes))
        assert self.found is not None
        return self.found

    def _place_of_added(self) -> sympy.Expr:
        added = self.inputs[self.kind.index_of_added]
        if self.kind.is_convolution:
            layout = added.get_layout()
            return layout.offset + layout.stride[0] * self.indices[1]  # an element for each channel
        layout = added.get_layout()
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
            raise _UnfitError
        return variables

    def _parts_of_dimensions(self, sizes: Sequence[sympy.Expr]) -> list[sympy.Expr]:
        """The same for loops that walk a part of a dimension."""
        equal = V.graph.sizevars.statically_known_equals
        if not equal(math.prod(sizes), math.prod(self.sizes)):
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
            raise _UnfitError
        floats = [x for x in self.results if V.graph.get_dtype(x.name) in DTYPES]
        if not floats:
            raise _UnfitError
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

    def _place(self, name: str, index: sympy.Expr, dtypes: Sequence[torch.dtype]) -> _Place:
        if V.graph.get_dtype(name) not in dtypes:
            raise _UnfitError
        index = sympy.expand(self._simplified(index))
        strides = tuple(index.coeff(symbol) for symbol in self.indices)
        offset = index.subs(dict.fromkeys(self.indices, 0))
        rest = index - sum(s * symbol for s, symbol in zip(strides, self.indices, strict=True))
        known = (*strides, offset, rest)
        if sympy.expand(rest - offset) != 0 or any(
            x.free_symbols & set(self.indices) for x in known
        ):
            raise _UnfitError
        place = _Place(name, offset, strides)
        if self.kind.is_convolution and not self._has_position_stride(place):
            raise _UnfitError
        return place

    def _has_position_stride(self, place: _Place) -> bool:
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

    def _same(self, place: _Place) -> bool:
        """Whether the elements lie as the product's. Strides of dimensions of size 1 may differ."""
        equal = V.graph.sizevars.statically_known_equals
        return equal(place.offset, self.place.offset) and all(
            equal(one, other) or equal(size, 1)
            for one, other, size in zip(place.strides, self.place.strides, self.sizes, strict=True)
        )


class FusedProduct(FusedSchedulerNode):
    """A product, or a convolution, and the nodes that it computes before it stores."""

    def __init__(
        self, scheduler: Any, product: Any, readers: Sequence[Any], epilogue: _Epilogue
    ) -> None:
        sources = epilogue.sources.values()
        super().__init__(scheduler, [*readers, *sources, product])  # the first tells the group
        self.snodes = [*sources, product, *readers]
        self.product = product
        self.epilogue = epilogue
        self.statements = epilogue.statements()

    def codegen(self) -> None:
        """Has the wrapper allocate the buffers that are stored, and call the product."""
        wrapper = V.graph.wrapper_code
        stored = {place.name for place in self.epilogue.results}
        V.graph.removed_buffers |= self.get_buffer_names() - OrderedSet(stored)
        with V.set_kernel_handler(Kernel(increase_kernel_count=False)):
            for buffer in self.get_outputs():
                if buffer.get_name() in stored and buffer.node.should_allocate():
                    buffer.allocate()
                elif buffer.get_name() in stored:  # its operator would have allocated it
                    wrapper.allocated.add(buffer.get_name())
                    wrapper.writeline(wrapper.make_buffer_allocation(buffer.node))
        out, *second = map(self._view, self.epilogue.results)
        operands = [*map(self._view, self.epilogue.operands)]
        operands += [f"second={view}" for view in second]
        if self.epilogue.seed:
            name, offset, _ = self.epilogue.seed
            operands.append(f"seed=reinterpret_tensor({name}, (), (), {offset})")
        kind = self.epilogue.kind
        given = [each.codegen_reference() for each in self.epilogue.other_inputs()]
        if kind.is_convolution:
            inputs = [*given, "None"][:3]  # x, weight and bias
        else:
            *added, a, b = given
            inputs = [a, b, *added]
        origins, detailed_origins = get_kernel_metadata(self.snodes, wrapper)
        for line in origins.splitlines():
            wrapper.writeline(line)
        name = self._define(origins, detailed_origins)
        wrapper.writeline(f"{name}({', '.join([out, *inputs, *operands])})")

    def _define(self, *origins: str) -> str:
        """The name of the product in the module."""
        wrapper = V.graph.wrapper_code
        kind = self.epilogue.kind
        given: dict[str, Any] = {}
        if kind.strategy:
            given["strategy"] = kind.strategy
        if kind.is_convolution:
            given |= geometry_of(self.product.node.kwargs) or {}
        options = "".join(f", {option}={value!r}" for option, value in given.items())
        function = "fused_convolution" if kind.is_convolution else "fused_product"
        text = f'{function}("""\n{self.statements}\n"""{options})'
        if text not in wrapper.src_to_kernel:
            fused = get_fused_kernel_name(self.snodes, config.triton.descriptive_names)
            prefix = function.removeprefix("fused_")
            name = f"{prefix}_{fused[:LONGEST_NAME]}_{wrapper.next_kernel_suffix()}"
            wrapper.src_to_kernel[text] = name
            wrapper.define_kernel(name, text, "\n".join(origins), gpu=False)
        return str(wrapper.src_to_kernel[text])

    def _view(self, place: _Place) -> str:
        wrapper = V.graph.wrapper_code
        sizes, strides = self.epilogue.sizes, place.strides
        layout = V.graph.get_buffer(place.name).get_layout()
        equal = V.graph.sizevars.statically_known_list_equals
        is_whole = equal(layout.size, sizes) and equal(layout.stride, strides)
        if is_whole and place.offset == 0:
            return place.name
        for symbol in {s for x in (*sizes, *strides, place.offset) for s in x.free_symbols}:
            wrapper.ensure_size_computed(symbol)
        sizes, strides = map(wrapper.codegen_python_shape_tuple, (sizes, strides))
        offset = wrapper.codegen_python_sizevar(place.offset)
        return f"reinterpret_tensor({place.name}, {sizes}, {strides}, {offset})"


def fuse_products(scheduler: Any, nodes: list[Any]) -> list[Any]:
    """The scheduler's nodes, with products joined to the pointwise nodes that read them."""
    if config.memory_planning:  # then tensors that overlap nowhere may lie in one buffer
        return nodes
    result = list(nodes)
    order = _Order(result)
    for product in nodes:
        kind = _kind(product)
        if kind is None:
            continue
        for sources, reader in _neighbours(scheduler, product, kind):
            others = [*sources.values(), *([reader] if reader else [])]
            last = reader or product
            members = [*others, product]
            if any(node not in result for node in others) or not order.may_join(members):
                continue
            try:
                epilogue = _epilogue(scheduler, product, kind, sources, reader)
            except (_UnfitError, NotImplementedError):
                continue
            readers = reader.get_nodes() if reader else []
            fused = FusedProduct(scheduler, product, readers, epilogue)
            result[result.index(last)] = fused
            result = [node for node in result if node not in members]
            order.join(members, fused)
            names = {*(node.get_name() for node in fused.get_nodes()), fused.get_name()}
            scheduler.name_to_fused_node.update(dict.fromkeys(names, fused))
            break
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
        and getattr(product, "output_view", None) is None
        and type(product.layout) is ir.FixedLayout
        and all(each.get_dtype() == product.get_dtype() for each in product.inputs)
        and all(product.kwargs.get(factor, 1) == 1 for factor in ("alpha", "beta"))
        and (not kind.is_convolution or geometry_of(product.kwargs) is not None)
    )
    return kind if is_fit else None


def _neighbours(
    scheduler: Any, product: Any, kind: Product
) -> list[tuple[dict[str, SchedulerNode], Any]]:
    """Pairs of sources, by the buffers that they store, and a reader or None, in the order in which
    a product's kernel tries to compute them. A factor has no source: it is read in another way."""
    added = _added(product.node, kind)
    factors = {each.get_name() for each in product.node.inputs} - {added}
    readers = _readers(scheduler, product)
    pairs: list[tuple[dict[str, SchedulerNode], Any]] = []
    for reader in (*readers, None):
        group = product.get_operation_names() | (reader.get_operation_names() if reader else set())
        read = sorted(each.name for each in reader.read_writes.reads) if reader else []
        operands = [name for name in (added, *read) if name and name not in factors]
        found = {name: _source(scheduler, name, group) for name in operands}
        sources = {name: node for name, node in found.items() if node is not None}
        if sources:
            pairs.append((sources, reader))
    return pairs + [({}, reader) for reader in readers]


def _added(product: Any, kind: Product) -> str | None:
    """The input that is added to the product of the others. None if a factor is the same buffer,
    which the kernel has to read."""
    names = [each.get_name() for each in product.inputs]
    at = kind.index_of_added
    if at is None or at >= len(names) or names.count(names[at]) != 1:
        return None
    return names[at]


def _source(scheduler: Any, name: str, group: OrderedSet[str]) -> SchedulerNode | None:
    """The pointwise node that computes a buffer of floats which only these operations read."""
    if name not in scheduler.name_to_buf or V.graph.get_dtype(name) not in DTYPES:
        return None
    source = scheduler.name_to_fused_node.get(scheduler.name_to_buf[name].defining_op_name())
    is_fit = (
        type(source) is SchedulerNode
        and source.get_device().type == "webgpu"
        and len(source.get_outputs()) == 1
        and not source.is_reduction()
        and not source.has_aliasing_or_mutation()
        and source.node.data.inner_fn_opcount().num_ops <= _LONGEST_SOURCE
        and not source.get_operation_names() & group
        and scheduler.can_buffer_be_removed_through_fusion(name, group)
    )
    return source if is_fit else None


def _readers(scheduler: Any, product: Any) -> list[Any]:
    """The groups of pointwise nodes that read the product."""
    (buffer,) = product.get_outputs()
    names = {user.get_name(): None for user in buffer.users}
    readers = {scheduler.name_to_fused_node.get(name): None for name in names}
    return [
        reader
        for reader in readers
        if type(reader) in (SchedulerNode, FusedSchedulerNode)
        and reader.get_device() == product.get_device()
        and not reader.is_reduction()
        and not reader.has_aliasing_or_mutation()
        and all(type(node) is SchedulerNode for node in reader.get_nodes())
    ]


class _Order:
    """Which operations must come before a node. Inductor's ``ancestors`` do not follow from one
    member of a group to what the other members depend on."""

    def __init__(self, nodes: Sequence[Any]) -> None:
        """The nodes are in an order in which they can run."""
        group_of = {name: node for node in nodes for name in node.get_operation_names()}
        self.before: dict[Any, set[str]] = {}
        for node in nodes:
            groups = {group_of[name] for name in node.ancestors if name in group_of} - {node}
            before: set[str] = set()
            for group in groups:
                before |= group.get_operation_names() | self.before.get(group, set())
            self.before[node] = before

    def may_join(self, members: Sequence[Any]) -> bool:
        """Whether no other node has to come between two of the members, such as one that changes
        the product's operands in place, or reads the product and is read by another reader."""
        names = {name for member in members for name in member.get_operation_names()}
        earlier = set().union(*(self.before[member] for member in members))
        return not any(
            node not in members
            and not before.isdisjoint(names)
            and not node.get_operation_names().isdisjoint(earlier)
            for node, before in self.before.items()
        )

    def join(self, members: Sequence[Any], group: Any) -> None:
        """The members became a group."""
        names = {name for member in members for name in member.get_operation_names()}
        before = set().union(*(self.before.pop(member) for member in members)) - names
        for other in self.before.values():
            if not other.isdisjoint(names):
                other |= names | before
        self.before[group] = before


def _epilogue(
    scheduler: Any, product: Any, kind: Product, sources: dict[str, SchedulerNode], reader: Any
) -> _Epilogue:
    operations = reader.get_operation_names() if reader else OrderedSet()
    is_inner = scheduler.can_buffer_be_removed_through_fusion
    inner = set()
    if reader:
        inner = {name for name in reader.get_buffer_names() if is_inner(name, operations)}
    (buffer,) = product.get_buffer_names()
    for order in _orders(product.node):
        try:
            epilogue = _Epilogue(product.node, kind, sources, inner, order)
            for node in reader.get_nodes() if reader else []:
                epilogue.add(node)
            if not is_inner(buffer, operations):
                epilogue.store_product()
            epilogue.finish()
        except _UnfitError:
            continue
        layouts = [scheduler.name_to_buf[place.name].node.layout for place in epilogue.results]
        fits = len(epilogue.buffers()) <= buffer_budget(may_raise=False)
        if fits and all(type(layout) is ir.FixedLayout for layout in layouts):
            return epilogue
    raise _UnfitError


def _orders(product: Any) -> list[tuple[int, ...]]:
    """In which nodes may walk the dimensions: as memory does, and as they are counted."""
    strides = [size_hint(stride) for stride in product.get_layout().stride]
    counted = tuple(range(len(strides)))
    in_memory = tuple(sorted(counted, key=lambda d: strides[d], reverse=True))
    return list(dict.fromkeys([in_memory, counted]))
