"""Functions and modules whose forward and backward passes are graphs."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_webgpu.graphs._graph import Graph, PoolHandle, graph, graph_pool_handle

ModuleOrFunction = torch.nn.Module | Callable[..., Any]
Tensors = tuple[torch.Tensor, ...]


def _lies_in(given: torch.Tensor, mine: torch.Tensor) -> bool:
    """Whether two tensors of equal shape and dtype view the same memory in the same way."""
    return (
        given.data_ptr() == mine.data_ptr()
        and given.stride() == mine.stride()
        and given.is_conj() == mine.is_conj()
        and given.is_neg() == mine.is_neg()
    )


def _alias(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory for the capture, without the hooks of the tensor."""
    return tensor.detach().requires_grad_(tensor.requires_grad)


class _Graphed:
    """One callable: its graphs, and the tensors that they read and write."""

    def __init__(self, function: ModuleOrFunction, sample_args: Any, copy_outputs: bool) -> None:
        if not isinstance(sample_args, tuple):
            raise TypeError(f"sample_args must be a tuple, not {type(sample_args).__name__}")
        self.function = function
        self.copy_outputs = copy_outputs
        self.calls = 0
        samples, self.arguments_spec = pytree.tree_flatten(sample_args)
        self._check_samples(samples)
        self.args: Tensors = tuple(_alias(arg) for arg in samples)
        # Of a module: the owner and the name of each parameter, and the alias that is captured.
        self.owners: list[tuple[torch.nn.Module, str, torch.Tensor]] = []
        self.aliases: dict[str, torch.Tensor] = {}
        if isinstance(function, torch.nn.Module):
            self._take_parameters(function)
        self.parameters = tuple(dict.fromkeys(p for _, _, p in self.owners))
        of = {p: _alias(p) for p in self.parameters}
        self.places = [p.data_ptr() for _, _, p in self.owners]
        self.required = [p.requires_grad for _, _, p in self.owners]
        self.aliases = {name: of[p] for name, p in self.aliases.items()}
        self.inputs = self.args + tuple(of.values())
        # The graphs' device; without inputs it is the current one.
        self.device = self.inputs[0].device.index if self.inputs else None
        self.forward_graph, self.backward_graph = Graph(), Graph()
        self.has_gradients = torch.is_grad_enabled()
        self.outputs: Tensors = ()
        self.output_gradients: tuple[torch.Tensor | None, ...] = ()
        self.input_gradients: tuple[torch.Tensor | None, ...] = ()
        self.outputs_are_read: list[bool] = []  # by the backward pass
        self.spec: pytree.TreeSpec | None = None

    @staticmethod
    def _check_samples(samples: list[Any]) -> None:
        if not all(isinstance(arg, torch.Tensor) for arg in samples):
            raise RuntimeError("sample_args of graphed callables must contain tensors only")
        if any(arg.device.type != "webgpu" for arg in samples):
            raise RuntimeError("sample_args of graphed callables must be tensors on webgpu")
        if len({arg.device for arg in samples}) > 1:
            raise RuntimeError("sample_args of graphed callables must be on one device")
        storages = [arg.untyped_storage().data_ptr() for arg in samples if arg.numel() != 0]
        overlaps = any(torch._debug_has_internal_overlap(arg) != 0 for arg in samples)
        if overlaps or len(set(storages)) != len(storages):
            raise RuntimeError(
                "sample_args of graphed callables must not share memory, because later arguments "
                "are copied into each of them"
            )

    def _take_parameters(self, module: torch.nn.Module) -> None:
        for path, child in module.named_modules(remove_duplicate=False):
            if child._forward_hooks or child._forward_pre_hooks or child._backward_hooks:
                raise RuntimeError("modules must not have hooks when they become graphed callables")
            for name, parameter in child._parameters.items():
                if parameter is not None:
                    self.owners.append((child, name, parameter))
                    self.aliases[f"{path}.{name}" if path else name] = parameter
        if any(buffer.requires_grad for buffer in module.buffers()):
            raise RuntimeError("buffers of a graphed module must not require grad")

    def _run(self) -> Any:
        args = pytree.tree_unflatten(self.args, self.arguments_spec)
        if isinstance(self.function, torch.nn.Module):
            return torch.func.functional_call(self.function, self.aliases, args)
        return self.function(*args)

    def _leaves(self, outputs: Any) -> tuple[list[torch.Tensor], pytree.TreeSpec]:
        leaves, spec = pytree.tree_flatten(outputs)
        if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
            raise RuntimeError("graphed callables must return tensors only")
        return leaves, spec

    def warm_up(self, iterations: int, allow_unused: bool) -> None:
        for _ in range(iterations):
            outputs, _ = self._leaves(self._run())
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
        with torch.accelerator.device_index(self.device), graph(self.forward_graph, pool=pool):
            outputs = self._run()
        leaves, self.spec = self._leaves(outputs)
        self.outputs = tuple(leaves)

    def capture_backward(self, pool: PoolHandle, allow_unused: bool) -> None:
        self.output_gradients = tuple(
            torch.empty_like(o) if o.requires_grad else None for o in self.outputs
        )
        if any(o.requires_grad for o in self.outputs):
            with torch.accelerator.device_index(self.device), graph(self.backward_graph, pool=pool):
                gradients = self._differentiate(self.outputs, self.output_gradients, allow_unused)
            self.input_gradients = tuple(gradients)
            self.outputs_are_read = [self.backward_graph._graph.names(o) for o in self.outputs]
        else:
            self.input_gradients = (None,) * len(self.inputs)
            self.outputs_are_read = [False] * len(self.outputs)

    def _check_arguments(self, given: list[Any], spec: pytree.TreeSpec) -> None:
        if spec != self.arguments_spec:
            raise TypeError(
                f"expected arguments of the structure of the capture, {self.arguments_spec}, "
                f"not {spec}"
            )
        differentiates = torch.is_grad_enabled()
        for k, (mine, other) in enumerate(zip(self.args, given, strict=True)):
            if not isinstance(other, torch.Tensor):
                raise TypeError(f"argument {k} must be a tensor, not {type(other).__name__}")
            if mine.shape != other.shape or mine.dtype != other.dtype:
                raise RuntimeError(
                    f"argument {k} of a graphed callable must be {mine.dtype} of shape "
                    f"{tuple(mine.shape)} as at the capture, not {other.dtype} of shape "
                    f"{tuple(other.shape)}"
                )
            if differentiates and other.requires_grad and not mine.requires_grad:
                raise RuntimeError(
                    f"argument {k} of a graphed callable requires grad, but did not at the capture"
                )
        for (owner, name, parameter), place, required in zip(
            self.owners, self.places, self.required, strict=True
        ):
            if owner._parameters.get(name) is not parameter or parameter.data_ptr() != place:
                raise RuntimeError(
                    f"parameter {name} is not the tensor of the capture any more: assign values in "
                    "place, or capture again"
                )
            if differentiates and parameter.requires_grad and not required:
                raise RuntimeError(f"parameter {name} requires grad, but did not at the capture")
        needs = any(x.requires_grad for x in (*given, *self.parameters))
        if differentiates and needs and not self.has_gradients:
            raise RuntimeError("the callable was captured under no_grad, so it has no gradients")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            raise TypeError("graphed callables take positional arguments only")
        given, spec = pytree.tree_flatten(args)
        self._check_arguments(given, spec)
        outputs = _Replay.apply(self, *given, *self.parameters)
        assert self.spec is not None
        return pytree.tree_unflatten(outputs, self.spec)


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, graphed: _Graphed, *inputs: torch.Tensor) -> Tensors:
        for mine, given in zip(graphed.args, inputs, strict=False):
            if not _lies_in(given, mine):
                mine.detach().copy_(given)
        graphed.forward_graph.replay()
        graphed.calls += 1
        outputs = tuple(output.detach() for output in graphed.outputs)
        if graphed.copy_outputs:
            outputs = tuple(output.clone() for output in outputs)
        ctx.graphed, ctx.call = graphed, graphed.calls
        ctx.versions = [output._version for output in graphed.outputs]
        pairs = zip(outputs, graphed.outputs, strict=True)
        ctx.mark_non_differentiable(*(o for o, own in pairs if not own.requires_grad))
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        graphed = ctx.graphed
        if ctx.call != graphed.calls:
            raise RuntimeError(
                "the backward pass of a graphed callable must run before its next call, which "
                "overwrites what the backward pass reads"
            )
        for output, version, is_read in zip(
            graphed.outputs, ctx.versions, graphed.outputs_are_read, strict=True
        ):
            if is_read and output._version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    "inplace operation: an output of a graphed callable"
                )
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
        # Not detached: autograd would keep a tensor that nothing else references as .grad, and the
        # next replay would overwrite it. Autograd copies tensors that are referenced here.
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
    arguments are copied into their memory, so they must not share any.
    num_warmup_iters: passes made before the capture.
    allow_unused_input: whether inputs may have no part in the outputs.
    pool: the token of a memory pool to share, see `Graph.capture_begin`.
    copy_outputs: False, as on CUDA: results lie in the graph's memory, and the next call overwrites
    them. True: they are copies.

    Raises RuntimeError for arguments that are no tensors on webgpu, for modules with hooks, and for
    what cannot be captured. Calls raise TypeError or RuntimeError for arguments or parameters that
    are not as at the capture, and the backward pass if another call was made in between.
    """
    if torch.is_autocast_enabled("webgpu") and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables does not support the autocast caching. "
            "Please set `cache_enabled=False`."
        )
    several = isinstance(callables, tuple)
    pairs = (
        list(zip(callables, sample_args, strict=True)) if several else [(callables, sample_args)]
    )
    if len({id(function) for function, _ in pairs}) != len(pairs):
        raise RuntimeError("a callable can be made a graphed callable only once")
    graphed = [_Graphed(function, args, copy_outputs) for function, args in pairs]
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


class _GraphedForward:
    """Stands for the forward method of a graphed module."""

    def __init__(self, graphed: _Graphed, module: torch.nn.Module) -> None:
        self.graphed, self.module = graphed, module
        self.training, self.original = module.training, module.forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        is_captured = self.module.training == self.training
        return (self.graphed if is_captured else self.original)(*args, **kwargs)

    def __reduce__(self) -> Any:
        raise TypeError("a module that was made a graphed callable cannot be copied or pickled")


def _public(graphed: _Graphed) -> Any:
    module = graphed.function
    if not isinstance(module, torch.nn.Module):
        return graphed
    if isinstance(module.forward, _GraphedForward):
        raise RuntimeError("a module can be made a graphed callable only once")
    module.forward = _GraphedForward(graphed, module)
    return module
