"""Products and convolutions that compute what follows them, element by element, before they store.

Their hand-written kernels take statements, which `epilogues` writes. A group of pointwise nodes
becomes statements under two conditions. It stores at most two buffers; the product counts as one
where others read it too. And these buffers and the operands lie as the kernels can address them:
with one stride for each dimension, which positions of a convolution share.

In this module a reader is such a group of nodes. A source is a pointwise node that computes an
operand, such as a bias that it converts; its statements come first then.
"""

from collections.abc import Callable, Sequence
from typing import Any

import sympy
from torch._inductor import config, ir
from torch._inductor.codegen.common import Kernel
from torch._inductor.scheduler import (
    ExternKernelSchedulerNode,
    FusedSchedulerNode,
    SchedulerNode,
)
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata, sympy_product
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from torch_webgpu.inductor.choices import DTYPES, Product, geometry_of, product_of
from torch_webgpu.inductor.epilogues import Epilogue, Place, UnfitError, added_input
from torch_webgpu.inductor.interface import buffer_budget
from torch_webgpu.inductor.lanes import size_hint
from torch_webgpu.inductor.module import LONGEST_NAME
from torch_webgpu.inductor.sized_products import SizedProduct, is_fit, is_sized

# Inductor's operations in a source, loads and the store included. An element of an operand that is
# the same along a dimension is computed again for each element of the product along it.
_LONGEST_SOURCE = 8


class FusedProduct(FusedSchedulerNode):
    """A product, or a convolution, and the nodes that it computes before it stores."""

    def __init__(
        self, scheduler: Any, product: Any, readers: Sequence[Any], epilogue: Epilogue
    ) -> None:
        sources = epilogue.sources.values()
        if not (readers or sources):  # of which one would have the group's sizes
            sizes = sympy_product(product.node.get_size()), sympy.S.One
            product.group = (product.get_device(), sizes)
        super().__init__(scheduler, [*readers, *sources, product])  # the first tells the group
        self.snodes = [*sources, product, *readers]
        self.product = product
        self.epilogue = epilogue
        self.statements = epilogue.statements()
        self.is_sized = is_sized(product.node)

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
        origins, detailed_origins = get_kernel_metadata(self.snodes, wrapper)
        for line in origins.splitlines():
            wrapper.writeline(line)
        if self.is_sized:
            sized = SizedProduct(self.product.node, self.epilogue, self.statements)
            name = self._named(
                "sized_product", sized.definition(""), sized.definition, origins, detailed_origins
            )
            wrapper.writeline(sized.launch(name))
            return
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
        name = self._define(origins, detailed_origins)
        wrapper.writeline(f"{name}({', '.join([out, *inputs, *operands])})")

    def _define(self, *origins: str) -> str:
        """The name of the product in the module."""
        kind = self.epilogue.kind
        given: dict[str, Any] = {}
        if kind.strategy:
            given["strategy"] = kind.strategy
        if kind.is_convolution:
            given |= geometry_of(self.product.node.kwargs) or {}
        options = "".join(f", {option}={value!r}" for option, value in given.items())
        function = "fused_convolution" if kind.is_convolution else "fused_product"
        text = f'{function}("""\n{self.statements}\n"""{options})'
        return self._named(function.removeprefix("fused_"), text, lambda _: text, *origins)

    def _named(self, prefix: str, key: str, definition: Callable[[str], str], *origins: str) -> str:
        """The name of what the module defines once for each key."""
        wrapper = V.graph.wrapper_code
        if key not in wrapper.src_to_kernel:
            fused = get_fused_kernel_name(self.snodes, config.triton.descriptive_names)
            name = f"{prefix}_{fused[:LONGEST_NAME]}_{wrapper.next_kernel_suffix()}"
            wrapper.src_to_kernel[key] = name
            wrapper.define_kernel(name, definition(name), "\n".join(origins), gpu=False)
        return str(wrapper.src_to_kernel[key])

    def _view(self, place: Place) -> str:
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
        alone: list[tuple[dict[str, SchedulerNode], Any]] = []
        if is_sized(product.node):
            if not is_fit(product.node):
                continue
            alone.append(({}, None))
        for sources, reader in [*_neighbours(scheduler, product, kind), *alone]:
            others = [*sources.values(), *([reader] if reader else [])]
            last = reader or product
            members = [*others, product]
            if any(node not in result for node in others) or not order.may_join(members):
                continue
            try:
                epilogue = _epilogue(scheduler, product, kind, sources, reader)
            except (UnfitError, NotImplementedError):
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
    added = added_input(product.node, kind)
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


def _source(scheduler: Any, name: str, group: OrderedSet[str]) -> SchedulerNode | None:
    """The pointwise node that computes a buffer of floats which only these operations read."""
    if name not in scheduler.name_to_buf:
        return None
    source = scheduler.name_to_fused_node.get(scheduler.name_to_buf[name].defining_op_name())
    is_fit = (
        type(source) is SchedulerNode
        and _is_pointwise(source)
        and len(source.get_outputs()) == 1
        and V.graph.get_dtype(name) in DTYPES  # what is no tensor has none
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
        and _is_pointwise(reader)
        and all(type(node) is SchedulerNode for node in reader.get_nodes())
    ]


def _is_pointwise(node: Any) -> bool:
    """Whether a kernel of this device computes new buffers, element by element."""
    return (
        node.get_device().type == "webgpu"
        and not node.is_reduction()
        and not node.has_aliasing_or_mutation()
    )


class _Order:
    """Which nodes must come before a node. Inductor's ``ancestors`` do not follow from one member
    of a group to what the other members depend on. Sets of nodes are bits of integers here."""

    def __init__(self, nodes: Sequence[Any]) -> None:
        """The nodes are in an order in which they can run."""
        self.bits = {node: 1 << number for number, node in enumerate(nodes)}
        self.before: dict[Any, int] = {}
        number_of = {name: k for k, node in enumerate(nodes) for name in node.get_operation_names()}
        for number, node in enumerate(nodes):
            earlier = {number_of[name] for name in node.ancestors if name in number_of} - {number}
            before = 0
            for other in sorted(earlier, reverse=True):
                if not before >> other & 1:  # else what comes before it is known
                    before |= 1 << other | self.before.get(nodes[other], 0)
            self.before[node] = before

    def may_join(self, members: Sequence[Any]) -> bool:
        """Whether no other node has to come between two of the members, such as one that changes
        the product's operands in place, or reads the product and is read by another reader."""
        joined, earlier = self._joined(members)
        return not any(
            before & joined and self.bits[node] & earlier and node not in members
            for node, before in self.before.items()
        )

    def join(self, members: Sequence[Any], group: Any) -> None:
        """The members became a group."""
        joined, earlier = self._joined(members)
        for member in members:
            del self.bits[member], self.before[member]
        for node, before in self.before.items():
            if before & joined:
                self.before[node] = before | joined | earlier
        self.bits[group], self.before[group] = joined, earlier & ~joined

    def _joined(self, members: Sequence[Any]) -> tuple[int, int]:
        """The members, and all that must come before one of them."""
        joined = earlier = 0
        for member in members:
            joined |= self.bits[member]
            earlier |= self.before[member]
        return joined, earlier


def _epilogue(
    scheduler: Any, product: Any, kind: Product, sources: dict[str, SchedulerNode], reader: Any
) -> Epilogue:
    operations = reader.get_operation_names() if reader else OrderedSet()
    is_inner = scheduler.can_buffer_be_removed_through_fusion
    inner = set()
    if reader:
        inner = {name for name in reader.get_buffer_names() if is_inner(name, operations)}
    (buffer,) = product.get_buffer_names()
    for order in _orders(product.node):
        try:
            epilogue = Epilogue(product.node, kind, sources, inner, order)
            for node in reader.get_nodes() if reader else []:
                epilogue.add(node)
            if not is_inner(buffer, operations):
                epilogue.store_product()
            epilogue.finish()
        except UnfitError:
            continue
        layouts = [scheduler.name_to_buf[place.name].node.layout for place in epilogue.results]
        fits = len(epilogue.buffers()) <= buffer_budget(may_raise=False)
        if fits and all(type(layout) is ir.FixedLayout for layout in layouts):
            return epilogue
    raise UnfitError


def _orders(product: Any) -> list[tuple[int, ...]]:
    """In which nodes may walk the dimensions: as memory does, and as they are counted."""
    strides = [size_hint(stride) for stride in product.get_layout().stride]
    counted = tuple(range(len(strides)))
    in_memory = tuple(sorted(counted, key=lambda d: strides[d], reverse=True))
    return list(dict.fromkeys([in_memory, counted]))
