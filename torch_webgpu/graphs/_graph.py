"""Capture and replay."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from torch_webgpu import _C, webgpu

if TYPE_CHECKING:
    from torch_webgpu.graphs._load import LoadedGraph

PoolHandle = tuple[int, int]
MODES = ("global", "thread_local", "relaxed", "default")


def is_current_stream_capturing() -> bool:
    """Whether a graph is being captured, by whichever thread."""
    return _C.is_capturing()


def graph_pool_handle() -> PoolHandle:
    """A token for a memory pool that several graphs can share, see `Graph.capture_begin`."""
    return _C.graph_pool()


def _check_capturable(
    optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    # A closure makes gradients within the step.
    has_closure = any(callable(value) for value in (*args[1:], *kwargs.values()))
    if not has_closure and all(p.grad is None for p in parameters):
        return  # such a step does nothing
    if not all(group.get("capturable", True) for group in optimizer.param_groups):
        raise RuntimeError(
            "Attempting WEBGPU graph capture of step() for an instance of "
            f"{type(optimizer).__name__} but param_groups' capturable is False."
        )


def _check_steps_on_device(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Refuses an optimizer without `capturable` that computes with a step count on the host: every
    replay would use the count of the capture. Adagrad needs the count for its decay only."""
    for group in optimizer.param_groups:
        if isinstance(optimizer, torch.optim.Adagrad) and group["lr_decay"] == 0:
            continue
        for parameter in group["params"]:
            step = optimizer.state.get(parameter, {}).get("step")
            if step is not None and getattr(step, "device", None) != parameter.device:
                raise RuntimeError(
                    f"step() of {type(optimizer).__name__} cannot be captured in a graph: "
                    "it counts steps on the host"
                )


@contextlib.contextmanager
def checked_optimizers() -> Iterator[None]:
    """In the block, optimizers that a capture refuses raise RuntimeError."""
    hooks = _hook_optimizers()
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _hook_optimizers() -> list[Any]:
    return [
        register_optimizer_step_pre_hook(_check_capturable),
        register_optimizer_step_post_hook(_check_steps_on_device),
    ]


class Graph:
    """A program of device commands, as ``torch.cuda.CUDAGraph`` is one.

    It is a graph of the device that is current when its capture begins. While it is captured,
    operators on that device are recorded and not executed; one on another device makes it fail. A
    replay executes what was recorded on the tensors of the capture: copy new inputs into the same
    tensors before it, and read results from the same tensors after it. A later replay overwrites
    them.

    With ``keep_graph=True`` the commands are prepared for replays by `instantiate`, or by the first
    replay, and not at the end of the capture.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._graph = _C.CapturedGraph(keep_graph)
        self._hooks: list[Any] = []

    def __reduce__(self) -> Any:
        raise TypeError("a graph cannot be copied or pickled")

    def capture_begin(
        self, pool: PoolHandle | None = None, capture_error_mode: str = "global"
    ) -> None:
        """Starts the capture. ``torch.webgpu.graph`` calls this, and `capture_end`.

        pool: the token of a pool (of `graph_pool_handle` or another graph's `pool`) whose memory
        the graph shares. Graphs that share one must be replayed in the order of their captures.
        capture_error_mode: there is one stream, and operators of every thread are recorded, so all
        modes of CUDA are the same. Raises ValueError for a word that is none of them.

        Raises RuntimeError if this graph was captured already, or another is being captured.
        """
        if capture_error_mode not in MODES:
            raise ValueError(
                f"Unknown capture error mode. Expected one of {MODES}, got {capture_error_mode!r}"
            )
        self._graph.capture_begin(pool)
        self._hooks = _hook_optimizers()

    def capture_end(self) -> None:
        """Ends the capture. Raises RuntimeError if there is none, or if an operator was refused
        in it; the graph is then empty."""
        self._remove_hooks()
        self._graph.capture_end()

    def _abandon(self) -> None:
        self._remove_hooks()
        self._graph.abandon()

    def _remove_hooks(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def __del__(self) -> None:
        if hasattr(self, "_hooks"):
            self._remove_hooks()

    def instantiate(self) -> None:
        """Prepares the commands for replays, if that is not done."""
        self._graph.instantiate()

    def replay(self) -> None:
        """Has the device execute what was captured."""
        self._graph.replay()

    def reset(self) -> None:
        """Frees what the graph holds, so that it can be captured anew."""
        self._graph.reset()

    def pool(self) -> PoolHandle:
        """The token of the graph's memory pool, for the capture of another graph."""
        return self._graph.pool()

    def enable_debug_mode(self) -> None:
        """What CUDA needs before `debug_dump`. Nothing here: commands are always kept."""

    def debug_dump(self, debug_path: str | os.PathLike[str]) -> None:
        """Writes the commands to a text file: one a line, with grid, buffers and bytes."""
        self._graph.debug_dump(os.fspath(debug_path))

    def save(
        self,
        path: str | os.PathLike[str],
        inputs: Mapping[str, torch.Tensor] | None = None,
        outputs: Mapping[str, torch.Tensor] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes the graph to a file that needs neither this process nor the model's code.

        inputs: the tensors that a call fills, by the names that it gives them. They must have
        existed before the capture, and be contiguous. Other tensors that the graph reads (the
        parameters of a model) are written to the file with what they hold now.
        outputs: the tensors that a call returns, by name.
        state: objects with a ``state_dict``, or state dicts, by name: what `LoadedGraph.state`
        returns. Without it, what persists is in the file too, but has no names.

        docs/graph-format.md specifies the file. Raises ValueError for a tensor that the graph does
        not use and for one that a file cannot hold.
        """
        from torch_webgpu.graphs._save import save_graph  # files are used rarely

        save_graph(self._graph, path, inputs or {}, outputs or {}, state or {})

    @staticmethod
    def load(path: str | os.PathLike[str], *, trusted: bool = False) -> "LoadedGraph":
        """Reads a file that `save` wrote: ``g(x=...)`` returns its outputs, ``g.state()`` what it
        keeps.

        The file may be anyone's. Everything in it is checked before anything runs. Its shaders run
        on a device of their own, with bounds checks, so tensors go through the host. A shader may
        still run for ever, or as long as the driver lets it. With ``trusted=True`` it shares the
        device of all tensors, which is faster, and its shaders run without bounds checks.

        Raises ValueError for a file that is no graph file, is damaged, is of a newer version, or
        asks for what the device does not have.
        """
        from torch_webgpu.graphs._load import load_graph

        return load_graph(path, trusted=trusted)

    def num_commands(self) -> int:
        """How many dispatches, copies and clears a replay consists of."""
        return self._graph.num_commands()


class graph:
    """Context manager that captures what is done on the device into a `Graph`.

    If the body raises, the graph stays empty and its memory is freed.

    webgpu_graph: an empty graph. pool, capture_error_mode: see `Graph.capture_begin`.
    stream: of the device that the graph is of; the current device's without it.
    """

    def __init__(
        self,
        webgpu_graph: Graph,
        pool: PoolHandle | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
    ) -> None:
        if stream is not None and not isinstance(stream, torch.Stream):
            raise TypeError(f"stream must be a torch.Stream, not {type(stream).__name__}")
        self._device = webgpu.device(None if stream is None else stream.device)
        self.webgpu_graph = _checked(webgpu_graph)
        self.pool = pool
        self.capture_error_mode = capture_error_mode

    def __enter__(self) -> None:
        self._device.__enter__()
        try:
            self.webgpu_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self._device.__exit__()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.webgpu_graph.capture_end()
            else:
                self.webgpu_graph._abandon()
        finally:
            self._device.__exit__()


def _checked(webgpu_graph: Graph) -> Graph:
    if not isinstance(webgpu_graph, Graph):
        raise TypeError(f"expected a torch.webgpu.Graph, not {type(webgpu_graph).__name__}")
    return webgpu_graph


class update_graph(graph):
    """Context manager that gives a captured graph other numbers.

    Python numbers (a learning rate, a dropout probability, a scale) are part of a capture. Run the
    captured code again in this context, with other numbers and the same tensors: nothing is
    executed, and later replays use the new numbers. Tensors that the body makes hold nothing;
    the results of replays stay in the tensors of the capture.

    Raises RuntimeError at the end, naming the first command that differs, if the body has other
    commands than the capture; the graph then stays as it was. A number that chooses another kernel,
    such as a dropout probability of 0, makes other commands.
    """

    def __init__(self, webgpu_graph: Graph) -> None:
        self.updated = _checked(webgpu_graph)
        webgpu_graph.num_commands()  # raises if it was not captured
        super().__init__(Graph(keep_graph=True))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, value, traceback)
        if kind is None:
            try:
                self.updated._graph.update(self.webgpu_graph._graph)
            finally:
                self.webgpu_graph.reset()
