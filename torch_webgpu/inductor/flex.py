"""FlexAttention under torch.compile.

PyTorch keeps ``flex_attention`` and its gradient as higher-order operators, which Inductor lowers
by templates for CUDA, the CPU and MPS. Here a graph gets other operators in their place.

``torch_webgpu::flex_attention`` and its backward are the kernels of
``scaled_dot_product_attention`` with score_mod and mask_mod inside, as text (`score_texts`). They
keep no scores in memory, and leave out what a block mask leaves out.

Calls that these do not take get the operators that PyTorch's own eager implementation consists of.
Inductor fuses score_mod, mask_mod and the softmax's steps into kernels, and captured tensors have
gradients as in eager mode. The scores lie in memory, [batch, heads, queries, keys] in float32, and
a block mask saves no work.
"""

import contextlib
import importlib
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import guard_or_false
from torch.utils import _pytree as pytree

from torch_webgpu import _C
from torch_webgpu.inductor.score_texts import Reads, UnfitError, text_of

aten = torch.ops.aten
# The storage buffers that the kernels bind, forward or not, besides what a program reads:
# csrc/ops/attention/strategies.cpp.
_BUFFERS = {True: 5, False: 7}
_WIDEST_HEAD = 256
# With so few queries the scores take little memory, and most of a workgroup would be idle.
_FEW_QUERIES = 16
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
                if _arguments(node)["kernel_options"].get("BACKEND") == "FLASH":
                    # PyTorch expects other logarithms of it.
                    raise RuntimeError(
                        "BACKEND='FLASH' but flash attention cannot be used: it is a CUDA kernel"
                    )
                _expand(graph, node, _with_kernels(graph, node) or _composed(eager[node.target]))


def _expand(graph: fx.Graph, node: fx.Node, function: Callable[..., Any]) -> None:
    owner: Any = graph.owning_module
    arguments, spec = pytree.tree_flatten((node.args, node.kwargs))
    nodes = list(dict.fromkeys(a for a in arguments if isinstance(a, fx.Node)))
    # Parameters that the compiler has frozen are attributes, too.
    functions = [
        a
        for a in nodes
        if a.op == "get_attr" and isinstance(getattr(owner, str(a.target)), fx.GraphModule)
    ]
    inputs = [a for a in nodes if a not in functions]
    modules: dict[fx.Node, Any] = {
        a: _with_batching_rules(getattr(owner, str(a.target))) for a in functions
    }
    wanted = _with_gradients(node, modules)

    def compute(*given: Any) -> Any:
        known = {**dict(zip(inputs, given, strict=True)), **modules}
        args, kwargs = pytree.tree_unflatten(
            [known[a] if isinstance(a, fx.Node) else a for a in arguments], spec
        )
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


def _with_kernels(graph: fx.Graph, node: fx.Node) -> Callable[..., Any] | None:
    """A function with the arguments of PyTorch's eager implementation that calls the kernels; None
    if they do not take the call."""
    given = _arguments(node)
    is_forward = "joint_graph" not in given
    if is_forward:
        wants_more = _is_read(node, 2)  # the maxima of the scores
    else:
        wants_more = any(
            _is_read(captured, i)
            for captured in node.users
            if captured.args[1] == 3
            for i, gradient in enumerate(node.meta["val"][3])
            if gradient is not None
        )
    if wants_more or not _prefers_kernels() or not _fits(given):
        return None
    try:
        program = _program_of(graph, given)
    except UnfitError:
        return None
    buffers = _BUFFERS[is_forward] + len(program.reads.tensors) + (not _is_all(given["block_mask"]))
    if buffers > _C.target_storage_buffers():
        return None
    return program.forward if is_forward else program.backward


def _arguments(node: fx.Node) -> dict[str, Any]:
    """By their names in PyTorch's eager implementation. The gradient's has a joint_graph."""
    names = ["query", "key", "value", "score_mod", "block_mask", "scale", "kernel_options"]
    names += ["score_mod_other_buffers", "mask_mod_other_buffers"]
    of_forward: Any = importlib.import_module("torch._higher_order_ops.flex_attention")
    if node.target is not of_forward.flex_attention:
        names[3:4] = ["out", "logsumexp", "grad_out", "grad_logsumexp", "score_mod", "joint_graph"]
    captured = {"score_mod_other_buffers": (), "mask_mod_other_buffers": ()}
    return {**captured, **dict(zip(names, node.args, strict=False)), **node.kwargs}


def _is_read(node: fx.Node, place: int) -> bool:
    """Whether something reads that part of the node's value."""
    return any(part.args[1] == place and part.users for part in node.users)


def _prefers_kernels() -> bool:
    """Software adapters take longer for the kernels than for what they replace."""
    return not _C.target_is_software()


def _fits(given: dict[str, Any]) -> bool:
    query, key, value = (given[name].meta["val"] for name in ("query", "key", "value"))
    return (
        query.dtype == key.dtype == value.dtype
        and query.dtype in (torch.float32, torch.float16, torch.bfloat16)
        and guard_or_false(query.shape[0] == key.shape[0])
        and guard_or_false(query.shape[0] == value.shape[0])
        and all(guard_or_false(x.shape[3] <= _WIDEST_HEAD) for x in (query, value))
        and not guard_or_false(query.shape[2] <= _FEW_QUERIES)
    )


class _Program(NamedTuple):
    """A call's functions as texts, and what these read. The methods have the arguments of PyTorch's
    eager implementation, and are traced."""

    reads: Reads
    nodes: tuple[Any, ...]  # what score_mod and mask_mod capture
    score: str
    mask: str
    gradient: str

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        score_mod: Any,
        block_mask: tuple[Any, ...],
        scale: float,
        kernel_options: Any,
        of_score: Sequence[Any] = (),
        of_mask: Sequence[Any] = (),
    ) -> tuple[torch.Tensor, ...]:
        reads = self._values((*of_score, *of_mask))
        out, lse = torch.ops.torch_webgpu.flex_attention(
            *(query, key, value, *reads, *_states(block_mask, query, key)),
            *(self.score, self.mask, scale),
        )
        # The operator's logarithms have base 2. Nothing reads the maxima.
        return out, lse / math.log(2), lse

    def backward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        out: torch.Tensor,
        logsumexp: torch.Tensor,
        grad_out: torch.Tensor | None,
        grad_logsumexp: torch.Tensor | None,
        score_mod: Any,
        joint_graph: Any,
        block_mask: tuple[Any, ...],
        scale: float,
        kernel_options: Any,
        of_score: Sequence[Any] = (),
        of_mask: Sequence[Any] = (),
    ) -> tuple[Any, ...]:
        reads = self._values((*of_score, *of_mask))
        if grad_out is None:
            grad_out = torch.zeros_like(out)
        if grad_logsumexp is not None:
            grad_logsumexp = grad_logsumexp / math.log(2)
        gradients = torch.ops.torch_webgpu.flex_attention_backward(
            *(grad_out.to(query.dtype), grad_logsumexp, query, key, value, out),
            *(logsumexp * math.log(2), *reads, *_states(block_mask, query, key)),
            *(self.score, self.mask, self.gradient, scale),
        )
        return (*gradients, [None] * len(of_score))

    def _values(self, captured: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        values = dict(zip(self.nodes, captured, strict=True))
        numbers = [
            values[node] if dim is None else values[node].size(dim)
            for node, dim in self.reads.numbers
        ]
        return [values[node] for node in self.reads.tensors], numbers


def _program_of(graph: fx.Graph, given: dict[str, Any]) -> _Program:
    owner: Any = graph.owning_module
    query = given["query"].meta["val"]
    mode: Any = detect_fake_mode([query])
    reads = Reads(mode.shape_env)

    def text(function: fx.Node, parameters: str, captured: Sequence[Any]) -> str:
        module = getattr(owner, str(function.target))
        return text_of(module, parameters.split(), query, captured, reads)

    of_score, of_mask = given["score_mod_other_buffers"], given["mask_mod_other_buffers"]
    score = text(given["score_mod"], "score b h q k", of_score)
    mask = text(given["block_mask"][-1], "b h q k", of_mask)
    joint = given.get("joint_graph")
    gradient = text(joint, "score b h q k given", of_score) if joint is not None else ""
    return _Program(reads, (*of_score, *of_mask), score, mask, gradient)


def _fake_forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *program: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.empty_like(query)
    if not guard_or_false(query.size(3) == value.size(3)):
        order = sorted(range(4), key=query.stride, reverse=True)  # the queries' in memory
        sizes = [(*query.shape[:3], value.size(3))[d] for d in order]
        out = query.new_empty(sizes).permute([order.index(d) for d in range(4)])
    return out, query.new_empty(query.shape[:3], dtype=torch.float32)


def _fake_backward(
    grad_out: torch.Tensor,
    grad_lse: torch.Tensor | None,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *others: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


torch.library.register_fake("torch_webgpu::flex_attention", _fake_forward)
torch.library.register_fake("torch_webgpu::flex_attention_backward", _fake_backward)


def _is_all(block_mask: tuple[Any, ...]) -> bool:
    """Whether the mask is one block."""
    columns = block_mask[-2]
    return isinstance(columns, int) and columns >= _ALL


def _states(
    block_mask: tuple[Any, ...], query: torch.Tensor, key: torch.Tensor
) -> tuple[torch.Tensor | None, Any, Any]:
    """What score.wgsl knows of each block: 0, 1 where mask_mod decides, 2 where all is seen. And
    how many queries and keys a block has."""
    if _is_all(block_mask):
        return None, 1, 1
    counts, indices, full_counts, full_indices = block_mask[2:6]
    rows, columns, _ = block_mask[-3:]
    blocks = (key.size(-2) + columns - 1) // columns
    states = _listed(counts, indices, blocks).to(torch.int32)
    if full_counts is not None:
        states = torch.where(_listed(full_counts, full_indices, blocks), 2, states)
    # Batches and heads beyond the mask's start again with its first one.
    for dim in (0, 1):
        given, wanted = states.size(dim), query.size(dim)
        if not (guard_or_false(given == 1) or guard_or_false(given == wanted)):
            place = torch.arange(wanted, device=states.device) % given
            states = states.index_select(dim, place)
    return states, rows, columns


def _composed(function: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's eager implementation with the block mask's blocks in its mask_mod."""

    def compute(query: Any, key: Any, *others: Any, **kwargs: Any) -> Any:
        args = [
            _with_blocks(a, key) if isinstance(a, tuple) and a and callable(a[-1]) else a
            for a in others
        ]
        return function(query, key, *args, **kwargs)

    return compute


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
    if _is_all(block_mask):
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
    given = _arguments(node)
    (results,) = modules[given["joint_graph"]].graph.find_nodes(op="output")[0].args
    captured = given["score_mod_other_buffers"]
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
