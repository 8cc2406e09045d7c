"""What is fused into one kernel, and which kernels share a dispatch."""

import graphlib
from collections.abc import Sequence
from typing import Any

import sympy
from torch._inductor import config
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.codegen.simd_kernel_features import (
    DisableReduction,
    EnableReduction,
    SIMDKernelFeatures,
)
from torch._inductor.dependencies import Dep, MemoryDep, StarDep, WeakDep
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from torch_webgpu.inductor.combo import ComboKernel
from torch_webgpu.inductor.interface import buffer_budget
from torch_webgpu.inductor.kernel import WgslKernel, accessed_buffers
from torch_webgpu.inductor.module import LONGEST_NAME
from torch_webgpu.inductor.packing import Part, packed
from torch_webgpu.inductor.products import FusedProduct


class WgslScheduling(SIMDScheduling):
    """Inductor's scheduling, with storage buffers as a budget."""

    kernel_type = WgslKernel
    backend_features = OrderedSet([BackendFeature.INPLACE_BUFFERS, BackendFeature.FOREACH])

    @classmethod
    def get_backend_features(cls, device: Any) -> OrderedSet[BackendFeature]:
        return cls.backend_features

    @classmethod
    def get_tiling_and_scores(
        cls,
        node_schedule: Any,
        numel: sympy.Expr,
        reduction_numel: sympy.Expr = sympy.S.One,
        coalesce_analysis: Any = None,
    ) -> tuple[Any, None]:
        return cls.create_tiling([numel], [reduction_numel]), None

    # ---- The budget ----

    def buffers_of(self, *nodes: Any) -> set[str]:
        """The buffers that a kernel of these nodes binds, or a few more."""
        names = accessed_buffers(nodes)
        inner = {name for node in nodes for name in node.get_buffer_names()}
        operations = OrderedSet(name for node in nodes for name in node.get_operation_names())
        removable = self.scheduler.can_buffer_be_removed_through_fusion
        gone = {name for name in inner if removable(name, operations)}
        gone -= self._read_in_later_loops(nodes, gone)
        real_name = self.scheduler.mutation_real_name
        return {real_name.get(name, name) for name in names - gone}

    def _read_in_later_loops(self, nodes: Sequence[Any], names: set[str]) -> set[str]:
        """Those of the buffers that a kernel stores in one loop over its rows and reads in another.
        Results of reductions are not read again."""
        loops = [each for node in nodes for each in node.get_nodes()]
        reduction = next((each for each in loops if each.is_reduction()), None)
        if reduction is None or not names:
            return set()
        found: set[str] = set()
        stored_in: dict[str, int] = {}
        number = 0
        for each in self.generate_node_schedule(loops, *reduction.group[1]):
            if each in (EnableReduction, DisableReduction):
                number += 1
                continue
            read = {dependency.name for dependency in each.read_writes.reads} & names
            found |= {name for name in read if stored_in.get(name, number) != number}
            if not each.is_reduction():
                stored_in.update(dict.fromkeys(each.get_buffer_names(), number))
        return found

    def _fits(self, node1: Any, node2: Any) -> bool:
        if node1.is_foreach() or node2.is_foreach():
            return _has_order(node1, node2)  # the scheduler asks about the budget of their parts
        may_raise = _may_raise(node1) or _may_raise(node2)
        return len(self.buffers_of(node1, node2)) <= buffer_budget(may_raise)

    def _updates_what_it_read(self, node1: Any, node2: Any) -> bool:
        """Whether each element that one node reads and the other one updates in place is read and
        stored in one turn of their joined loop. Inductor drops this condition when it compares
        nodes in their own order of loops, and may change the order later."""
        if node1.is_foreach() or node2.is_foreach():
            return True  # the scheduler asks about their parts
        real_name = self.scheduler.mutation_real_name
        for reader, writer in ((node1, node2), (node2, node1)):
            updated = [w for w in writer.read_writes.writes if w.name in real_name]
            also_updates = {real_name.get(w.name) for w in reader.read_writes.writes}
            for write in updated:
                for read in reader.read_writes.reads:
                    is_same = real_name.get(read.name, read.name) == real_name[write.name]
                    if not is_same or read.name == write.name or isinstance(read, WeakDep):
                        continue
                    if isinstance(read, StarDep) and real_name[write.name] in also_updates:
                        continue  # stands for the reader's own update
                    if not _has_place_of(read, write):
                        return False
        return True

    def can_fuse(self, node1: Any, node2: Any) -> bool:
        return (
            super().can_fuse(node1, node2)
            and self._updates_what_it_read(node1, node2)
            and self._fits(node1, node2)
        )

    can_fuse_vertical = can_fuse
    can_fuse_horizontal = can_fuse

    # ---- Kernels ----

    def part(self, node: Any) -> Part:
        """A node as a part of a dispatch."""
        operations = set(node.get_operation_names())
        return Part(node, self.buffers_of(node), _may_raise(node), operations, set(node.ancestors))

    def codegen_node(self, node: Any) -> None:
        if isinstance(node, FusedProduct):
            node.codegen()
            self.free_buffers_in_scheduler()
        else:
            super().codegen_node(node)

    def benchmark_fused_nodes(self, nodes: Any) -> tuple[float, str]:
        """Nothing is timed. An infinite time is Inductor's sign not to fuse into a template."""
        return float("inf"), ""

    def codegen_combo_kernel(self, combo_kernel_node: Any) -> None:
        for parts in packed([self.part(node) for node in combo_kernel_node.get_subkernel_nodes()]):
            nodes = [part.node for part in parts]
            combo = ComboKernel()
            for node in nodes:
                loops = node.get_nodes()
                _, (numel, rnumel) = max(loops, key=lambda one: int(one.is_reduction())).group
                schedule = self.generate_node_schedule(loops, numel, rnumel)
                features = SIMDKernelFeatures(schedule, numel, rnumel)
                tiling = self.create_tiling([numel], [rnumel])
                self.process_kernel(
                    combo.add(self.kernel_type(tiling, features=features)), schedule
                )
            text = combo.codegen_kernel()
            inner = [each for node in nodes for each in node.get_nodes()]
            name = self.define_kernel(text, inner, combo)
            self.codegen_comment(nodes, name)
            combo.call_kernel(name)
        self.free_buffers_in_scheduler()

    def define_kernel(self, src_code: str, node_schedule: Any, kernel: Any) -> str:
        wrapper = V.graph.wrapper_code
        key = (src_code, tuple(kernel.module.operands))
        if key in wrapper.src_to_kernel:
            return wrapper.src_to_kernel[key]
        fused = get_fused_kernel_name(node_schedule, config.triton.descriptive_names)
        name = f"{kernel.prefix}_{fused[:LONGEST_NAME]}_{wrapper.next_kernel_suffix()}"
        wrapper.src_to_kernel[key] = name
        origins, detailed_origins = get_kernel_metadata(node_schedule, wrapper)
        wrapper.define_kernel(
            name,
            kernel.module.definition(name, src_code),
            f"{origins}\n{detailed_origins}",
            gpu=False,
        )
        return name


def _has_place_of(read: Dep, write: Dep) -> bool:
    """Whether both touch the same element in the same turn of a loop; within a row, all turns of an
    inner loop may read what a turn of the outer one stores."""
    if not isinstance(read, MemoryDep) or not isinstance(write, MemoryDep):
        return False
    pairs = [(read, write)]
    if read.num_vars != write.num_vars:
        pairs.append((read.normalize(), write.normalize()))
    return any(
        one.index == other.index and one.size[: len(other.size)] == other.size
        for one, other in pairs
    )


def _has_order(node1: Any, node2: Any) -> bool:
    """Whether the parts of two nodes, of which one is a list of parts at least, can run one after
    the other once they are joined. In a swap of two tensors, each would have to come first."""
    if node1.is_foreach() and node2.is_foreach():
        joined: list[tuple[Any, ...]] = list(zip(node1.snodes, node2.snodes, strict=True))
    elif node1.is_foreach():
        producer = node1.get_producer_subnode_for(node2)
        joined = [(each, node2) if each is producer else (each,) for each in node1.snodes]
    else:
        consumer = node2.get_consumer_subnode_for(node1)
        joined = [(node1, each) if each is consumer else (each,) for each in node2.snodes]
    part_of = {
        name: part
        for part, nodes in enumerate(joined)
        for node in nodes
        for name in node.get_operation_names()
    }
    before = {
        part: {part_of[name] for node in nodes for name in node.ancestors if name in part_of}
        - {part}
        for part, nodes in enumerate(joined)
    }
    try:
        graphlib.TopologicalSorter(before).prepare()
    except graphlib.CycleError:
        return False
    return True


def _may_raise(node: Any) -> bool:
    """Whether a kernel of the node may bind the error words: for an index that is data, or an
    assertion."""
    bodies = (getattr(each, "_body", None) for each in node.get_nodes())
    return any(
        body is None or body.indirect_vars or body.has_op("device_assert_async") for body in bodies
    )
