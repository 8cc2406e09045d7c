"""FlexAttention under torch.compile.

PyTorch keeps ``flex_attention`` and its gradient as higher-order operators, which Inductor lowers
by templates for CUDA, the CPU and MPS. Here a graph gets the operators that PyTorch's own eager
implementation consists of in their place. Inductor fuses score_mod, mask_mod and the softmax's
steps into kernels, and captured tensors have gradients as in eager mode. The scores lie in memory,
[batch, heads, queries, keys] in float32, so a block mask saves no work.
"""

import contextlib
import importlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

aten = torch.ops.aten
# A block of this size is all there is: what PyTorch makes where no mask is given.
_ALL = 1 << 30


def expand(graph: fx.Graph) -> None:
    """Replaces the operators and their gradients by what they consist of."""
    # The package has an attribute of this module's name, which is the operator.
    flex: Any = importlib.import_module("torch._higher_order_ops.flex_attention")
    eager = {
        flex.flex_attention: flex.sdpa_dense,
        flex.flex_attention_backward: flex.sdpa_dense_backward,
    }
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in eager:
            query: Any = node.args[0]
            if query.meta["val"].device.type == "webgpu":
                _expand(graph, node, eager[node.target])


def _expand(graph: fx.Graph, node: fx.Node, function: Callable[..., Any]) -> None:
    owner: Any = graph.owning_module
    arguments, spec = pytree.tree_flatten((node.args, node.kwargs))
    inputs = list(
        dict.fromkeys(a for a in arguments if isinstance(a, fx.Node) and a.op != "get_attr")
    )
    modules = {
        a: _with_batching_rules(getattr(owner, str(a.target)))
        for a in arguments
        if isinstance(a, fx.Node) and a.op == "get_attr"
    }
    wanted = _with_gradients(node, modules)

    def compute(*given: Any) -> Any:
        known = {**dict(zip(inputs, given, strict=True)), **modules}
        args, kwargs = pytree.tree_unflatten(
            [known[a] if isinstance(a, fx.Node) else a for a in arguments], spec
        )
        args = [
            _with_blocks(a, args[1]) if isinstance(a, tuple) and a and callable(a[-1]) else a
            for a in args
        ]
        with torch.no_grad():
            return function(*args, **kwargs)

    # The function of the gradient asks the captured tensors which gradients it has to return.
    values = [
        a.meta["val"].detach().requires_grad_() if a in wanted else a.meta["val"] for a in inputs
    ]
    mode: Any = detect_fake_mode(values)
    with mode, enable_python_dispatcher(), _no_loops_over_elements():
        traced = make_fx(compute, decomposition_table=select_decomp_table())(*values)
    # The tensors that it returns are new ones with the layout of its inputs, which it copies into.
    for copy in traced.graph.find_nodes(op="call_function", target=aten.copy_.default):
        copy.target = aten.copy.default
    with graph.inserting_before(node):
        results = _copy(graph, node, traced, inputs)
    _give(node, results)
    for unused in modules:
        if not unused.users:
            graph.erase_node(unused)


def _with_batching_rules(module: fx.GraphModule) -> fx.GraphModule:
    """score_mod, mask_mod or a gradient, for torch.vmap. It has no rule for Inductor's casts."""
    graph = fx.Graph()
    results = graph.graph_copy(module.graph, {})
    graph.output(results)
    for cast in graph.find_nodes(
        op="call_function", target=torch.ops.prims.convert_element_type.default
    ):
        x, dtype = cast.args
        cast.target, cast.args, cast.kwargs = aten._to_copy.default, (x,), {"dtype": dtype}
    return fx.GraphModule(module, graph)


@contextlib.contextmanager
def _no_loops_over_elements() -> Iterator[None]:
    """torch.vmap raises for an operator without a rule; else it would trace each score apart."""
    functorch: Any = torch._C._functorch
    before = functorch._is_vmap_fallback_enabled()
    functorch._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        functorch._set_vmap_fallback_enabled(before)


def _with_blocks(block_mask: tuple[Any, ...], key: torch.Tensor) -> tuple[Any, ...]:
    """The mask with its blocks in mask_mod: a block that is not listed is not seen, one that is
    listed as full is seen whatever mask_mod says."""
    counts, indices, full_counts, full_indices = block_mask[2:6]
    rows, columns, mask_mod = block_mask[-3:]
    if isinstance(columns, int) and columns >= _ALL:
        return block_mask
    blocks = (key.size(-2) + columns - 1) // columns
    listed = _listed(counts, indices, blocks)
    full = None if full_counts is None else _listed(full_counts, full_indices, blocks)

    def sees(b: Any, h: Any, q: Any, k: Any, *captured: Any) -> Any:
        def is_among(blocks: torch.Tensor) -> Any:
            return blocks[b % blocks.size(0), h % blocks.size(1), q // rows, k // columns]

        seen = is_among(listed) & mask_mod(b, h, q, k, *captured)
        return seen if full is None else seen | is_among(full)

    return (*block_mask[:-1], sees)


def _listed(counts: torch.Tensor, indices: torch.Tensor, blocks: Any) -> torch.Tensor:
    """Which blocks of keys are listed for each block of queries [batch, heads, queries, keys], of
    the first counts[...] of indices[..., :]."""
    place = torch.arange(indices.size(-1), device=indices.device)
    # Those behind the count go to a column that is cut off.
    columns = torch.where(place < counts.unsqueeze(-1), indices, blocks).to(torch.int64)
    found = counts.new_zeros((*counts.shape, blocks + 1), dtype=torch.bool)
    return found.scatter(-1, columns, True)[..., :-1]


def _with_gradients(node: fx.Node, modules: dict[fx.Node, fx.GraphModule]) -> list[fx.Node]:
    """The tensors that score_mod captures and whose gradients the node returns."""
    if len(node.meta["val"]) < 4 or not isinstance(node.meta["val"][3], tuple | list):
        return []
    joint: Any = node.args[8]
    (results,) = modules[joint].graph.find_nodes(op="output")[0].args
    captured: Any = node.args[12] if len(node.args) > 12 else node.kwargs["score_mod_other_buffers"]
    # Those of the score, batch, head, query and key come first.
    return [a for a, g in zip(captured, results[5:], strict=True) if g is not None]


def _copy(graph: fx.Graph, node: fx.Node, traced: Any, inputs: Sequence[fx.Node]) -> Any:
    """The results of the traced graph, whose nodes are copied into this one."""
    copies: dict[fx.Node, fx.Node] = {}
    left = iter(inputs)
    for inner in traced.graph.nodes:
        match inner.op:
            case "placeholder":
                copies[inner] = next(left)
            case "output":
                return fx.node.map_arg(inner.args[0], copies.__getitem__)
            case "get_attr":  # a constant
                owner: Any = graph.owning_module
                name = f"_{node.name}{inner.target}"
                owner.register_buffer(name, getattr(traced, inner.target), persistent=False)
                copies[inner] = graph.get_attr(name)
                copies[inner].meta = dict(inner.meta)
            case _:
                copies[inner] = graph.node_copy(inner, copies.__getitem__)
    raise AssertionError("a graph without output")


def _give(node: fx.Node, value: Any) -> None:
    """Replaces what reads parts of the node by the parts of a value, and removes the node."""
    if isinstance(value, fx.Node):
        node.replace_all_uses_with(value)
    else:
        for user in list(node.users):
            if user.target is not operator.getitem:
                raise NotImplementedError(f"{user.target} of the results of flex_attention")
            _give(user, value[user.args[1]])
    node.graph.erase_node(node)
