"""Functions and modules whose forward and backward passes are graphs."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_webgpu.graphs._graph import Graph, PoolHandle, graph, graph_pool_handle

ModuleOrFunction = torch.nn.Module | Callable[..., Any]
Tensors = tuple[torch.Tensor, ...]


def _lies_in(given: torch.Tensor, mine: torch.Tensor) -> bool:
    """Whether a tensor of the same shape and dtype is the same memory in the same order."""
    return given.data_ptr() == mine.data_ptr() and given.stride() == mine.stride()


class _Graphed:
    """One callable: its graphs, and the tensors that they read and write."""

    def __init__(
        self, function: ModuleOrFunction, sample_args: tuple[Any, ...], copy_outputs: bool
    ) -> None:
        self.function = function
        self.sample_args = sample_args
        self.copy_outputs = copy_outputs
        self.args: Tensors = tuple(pytree.arg_tree_leaves(*sample_args))
        self.parameters: Tensors = ()
        if isinstance(function, torch.nn.Module):
            if function._forward_hooks or function._forward_pre_hooks or function._backward_hooks:
                raise RuntimeError("modules must not have hooks when they become graphed callables")
            if any(buffer.requires_grad for buffer in function.buffers()):
                raise RuntimeError("buffers of a graphed module must not require grad")
            self.parameters = tuple(function.parameters())
        if not all(isinstance(arg, torch.Tensor) for arg in self.args):
            raise RuntimeError("sample_args of graphed callables must contain tensors only")
        self.inputs = self.args + self.parameters
        self.forward_graph, self.backward_graph = Graph(), Graph()
        self.outputs: Tensors = ()
        self.output_gradients: tuple[torch.Tensor | None, ...] = ()
        self.input_gradients: tuple[torch.Tensor | None, ...] = ()
        self.spec: pytree.TreeSpec | None = None

    def warm_up(self, iterations: int, allow_unused: bool) -> None:
        for _ in range(iterations):
            outputs = tuple(pytree.tree_leaves(self.function(*self.sample_args)))
            self._differentiate(outputs, [torch.empty_like(o) for o in outputs], allow_unused)

    def _differentiate(self, outputs: Any, gradients: Any, allow_unused: bool) -> list[Any]:
        """Of each input, the gradient or None."""
        pairs = zip(outputs, gradients, strict=True)
        differentiable = [(o, g) for o, g in pairs if o.requires_grad]
        found = iter(
            torch.autograd.grad(
                [o for o, _ in differentiable],
                [i for i in self.inputs if i.requires_grad],
                [g for _, g in differentiable],
                allow_unused=allow_unused,
            )
            if differentiable
            else ()
        )
        return [next(found, None) if i.requires_grad else None for i in self.inputs]

    def capture_forward(self, pool: PoolHandle) -> None:
        with graph(self.forward_graph, pool=pool):
            outputs = self.function(*self.sample_args)
        leaves, self.spec = pytree.tree_flatten(outputs)
        if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
            raise RuntimeError("graphed callables must return tensors only")
        self.outputs = tuple(leaves)

    def capture_backward(self, pool: PoolHandle, allow_unused: bool) -> None:
        self.output_gradients = tuple(
            torch.empty_like(o) if o.requires_grad else None for o in self.outputs
        )
        if any(o.requires_grad for o in self.outputs):
            with graph(self.backward_graph, pool=pool):
                gradients = self._differentiate(self.outputs, self.output_gradients, allow_unused)
            self.input_gradients = tuple(gradients)
        else:
            self.input_gradients = (None,) * len(self.inputs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            raise TypeError("graphed callables take positional arguments only")
        given = tuple(pytree.arg_tree_leaves(*args))
        if len(given) != len(self.args):
            raise TypeError(
                f"expected {len(self.args)} tensors, as at the capture, not {len(given)}"
            )
        for k, (mine, other) in enumerate(zip(self.args, given, strict=True)):
            if mine.shape != other.shape or mine.dtype != other.dtype:
                raise RuntimeError(
                    f"argument {k} of a graphed callable must be {mine.dtype} of shape "
                    f"{tuple(mine.shape)} as at the capture, not {other.dtype} of shape "
                    f"{tuple(other.shape)}"
                )
        outputs = _Replay.apply(self, *given, *self.parameters)
        assert self.spec is not None
        return pytree.tree_unflatten(outputs, self.spec)


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, graphed: _Graphed, *inputs: torch.Tensor) -> Tensors:
        ctx.graphed = graphed
        for mine, given in zip(graphed.args, inputs, strict=False):
            if not _lies_in(given, mine):
                mine.detach().copy_(given)
        graphed.forward_graph.replay()
        outputs = (output.detach() for output in graphed.outputs)
        return tuple(output.clone() if graphed.copy_outputs else output for output in outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        graphed = ctx.graphed
        for mine, given in zip(graphed.output_gradients, gradients, strict=True):
            if mine is None:
                continue
            if given is None:
                mine.zero_()
            elif not _lies_in(given, mine):
                mine.copy_(given)
        graphed.backward_graph.replay()
        if graphed.copy_outputs:
            return None, *(None if g is None else g.clone() for g in graphed.input_gradients)
        # Not detached: autograd makes .grad of a tensor that nobody else holds, and the next replay
        # would overwrite it. It copies these.
        return None, *graphed.input_gradients


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: PoolHandle | None = None,
    copy_outputs: bool = False,
) -> Any:
    """Graphed versions of functions or modules, as ``torch.cuda.make_graphed_callables`` makes.

    Each forward pass and each backward pass is one graph; autograd sees one node. A module is
    returned itself, with its forward replaced: it replays the graphs as long as its training mode
    is that of the capture, and runs as before otherwise.

    callables: a function or module, or a tuple of them in the order in which they will run.
    sample_args: a tuple of tensors like those of later calls, or a tuple of such tuples. Later
    arguments are copied into these.
    num_warmup_iters: passes made before the capture.
    allow_unused_input: whether inputs may have no part in the outputs.
    pool: the token of a memory pool to share, see `Graph.capture_begin`.
    copy_outputs: False, as on CUDA: results lie in the graph's memory, and the next call overwrites
    them. True: they are copies.

    Raises RuntimeError for arguments that are no tensors, for modules with hooks, and for what
    cannot be captured.
    """
    if torch.is_autocast_enabled("webgpu") and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables does not support the autocast caching. "
            "Please set `cache_enabled=False`."
        )
    several = isinstance(callables, tuple)
    graphed = [
        _Graphed(function, args, copy_outputs)
        for function, args in (
            zip(callables, sample_args, strict=True) if several else [(callables, sample_args)]
        )
    ]
    handle = graph_pool_handle() if pool is None else pool
    for one in graphed:
        one.warm_up(num_warmup_iters, allow_unused_input)
    # All share a pool, so they are captured in the order in which they will run.
    for one in graphed:
        one.capture_forward(handle)
    for one in reversed(graphed):
        one.capture_backward(handle, allow_unused_input)
    results = tuple(_public(one) for one in graphed)
    return results if several else results[0]


def _public(graphed: _Graphed) -> Any:
    module = graphed.function
    if not isinstance(module, torch.nn.Module):
        return graphed
    training, forward = module.training, module.forward

    def replay_or_run(*args: Any, **kwargs: Any) -> Any:
        return (graphed if module.training == training else forward)(*args, **kwargs)

    module.forward = replay_or_run
    return module
