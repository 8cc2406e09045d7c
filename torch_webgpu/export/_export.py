"""A function captured for devices other than the one in use, and written to a file."""

import contextlib
import errno
import inspect
import os
import pathlib
import re
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils import _pytree as pytree

from torch_webgpu import _C, wgsl
from torch_webgpu._shader.prepare import called_functions
from torch_webgpu._shader.program import Program
from torch_webgpu.export._alive import alive
from torch_webgpu.export._calls import Calls, Traced
from torch_webgpu.export._dimensions import Shapes, all_dimensions
from torch_webgpu.export._flows import Flow, Marks, of_capture, place_of
from torch_webgpu.export._lines import KnownLineError, Line, innermost
from torch_webgpu.export._optimizers import PreparedOptimizer, prepared
from torch_webgpu.export._types import declarations
from torch_webgpu.graphs._graph import Graph, checked_optimizers, graph
from torch_webgpu.graphs._save import Recording, SavedFunction, save_functions
from torch_webgpu.graphs._state import has_state_dict

if TYPE_CHECKING:  # these import the compiler
    from torch_webgpu.export._trace import Compiled

Tensors = Mapping[str, torch.Tensor]

_NAME = re.compile(r"[^\W\d]\w*")
# Names that players have for other things.
_RESERVED = {
    *("run", "state", "loadState", "checkpoint", "sync", "dispose", "device", "functions"),
    *("numberNames", "stateNames", "then", "constructor", "toString", "toLocaleString", "valueOf"),
    *("hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable"),
}


# Subgroups of at least 32 invocations, such as those of NVIDIA and AMD.
_USUAL_SUBGROUPS = (32, 128)
# Functions of csrc/wgsl/lib/convert.wgsl, in place of which shader-f16 has others.
_CONVERSIONS = {"f_from_f16", "f2_from_f16", "f16_from_f"}


class _Target(NamedTuple):
    """What a recording may count on, beyond a browser that was asked for nothing."""

    halves: bool = False  # shader-f16
    subgroups: tuple[int, int] | None = None  # their least and most invocations
    limits: Mapping[str, int] = {}
    software: bool = False  # an adapter that computes on cores of a CPU

    @property
    def features(self) -> list[str]:
        found = ["shader-f16"] if self.halves else []
        return [*found, "subgroups"] if self.subgroups else found

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        limits = dict(self.limits)
        if self.halves:
            # Not every browser has WGSL's bitcast of halves.
            limits["f16-bitcast"] = 0
        if self.subgroups:
            limits["subgroup_min_size"], limits["subgroup_max_size"] = self.subgroups
        return wgsl.target("browser", features=self.features, limits=limits)


def export(
    fn: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    example_inputs: Any,
    path: str | os.PathLike[str],
    *,
    dynamic_shapes: Any = None,
    state: Mapping[str, Any] | None = None,
    types: bool = True,
) -> None:
    """Writes a function to a file that plays in any browser with WebGPU, in Node (docs/web.md) and
    in Python (``torch.webgpu.Graph.load``).

    fn: a function or module of tensors, which returns a tensor, or tuples, lists and dicts of
    tensors. Outputs without names are called ``output``, or ``output0`` and so on; those within
    others have the names on the way, ``hidden0`` for ``{"hidden": (h, c)}`` and ``state_h`` for
    ``{"state": {"h": h}}``. What is None is left out. Or several functions by name, which share
    what they keep: ``{"step": step, "classify": model}``.
    example_inputs: tensors by the names of the arguments, or a sequence of tensors in their order;
    for several functions, such inputs by the function's name. Their dtypes and shapes are those of
    every call, but for `dynamic_shapes`.
    dynamic_shapes: sizes that a call decides, as ``torch.export`` has them: by input and dimension
    a ``torch.export.Dim``, a name, ``Dim.AUTO`` or ``Dim.DYNAMIC``, such as
    ``{"x": {0: Dim("batch", max=64)}}``; for several functions by function. Without a largest size,
    the example's is the largest. Sizes of one name are the same size. Such a function is compiled,
    as ``torch.compile(dynamic=True)`` does.
    path: the file, which is replaced if it exists.
    state: objects with a ``state_dict``, or state dicts, by name, on ``webgpu``: what a player
    saves and loads. Of an optimizer, the learning rate becomes an input ``lr`` that a call may
    leave out (``lr_NAME_0`` and so on if there are several).
    types: whether to write TypeScript's types of its functions beside the file, as
    ``path + ".d.ts"``.

    The function is captured as `torch.webgpu.graph` does, without being executed: parameters,
    optimizers, gradients and generators are afterwards as they were. Recordings are made for a
    browser that was asked for nothing more than the standard's smallest limits, and for those with
    32 KiB of workgroup memory, half floats and subgroups if these change anything. Random numbers
    come from the inputs ``seed0`` and ``offset0``, which count on by themselves.

    Raises RuntimeError for what cannot be captured, naming the line, and for the first step of an
    optimizer that is not among `state`, and for an operator whose kernels a size chooses where a
    call decides that size; TypeError or ValueError for arguments that do not fit.
    """
    _check_path(path)
    functions = _named(fn)
    samples = _samples(functions, example_inputs)
    shapes = _shapes(functions, samples, dynamic_shapes)
    holders = _holders(state)
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(prepared(holders))
        holders.update(found)
        optimizers = {k: one for k, one in found.items() if isinstance(one, PreparedOptimizer)}
        tensors, modules, updaters, schedulers, scalers = alive(
            torch.Tensor, nn.Module, torch.optim.Optimizer, LRScheduler, torch.amp.GradScaler
        )
        fixed = stack.enter_context(_no_first_steps(updaters, scalers))
        calls = Calls(
            holders,
            lambda: _no_assigned_options(optimizers.values(), schedulers, updaters),
            tensors,
            modules,
        )
        del tensors, modules  # exports keep no tensors
        recorded: dict[str, SavedFunction] = {}
        traced: dict[str, Traced] = {}
        with contextlib.closing(calls):
            for name, function in functions.items():
                recorded[name], traced[name] = _recorded(
                    name, function, samples[name], shapes[name], optimizers.values(), calls
                )
            calls.check(traced)
        rates = _rates(optimizers)
        saved = {name: _with_rates(name, one, rates) for name, one in recorded.items()}
        program = save_functions(path, saved, holders)
    for kind in sorted(fixed):
        warnings.warn(
            f"export: the {kind} is not among `state`, so that its learning rate is fixed in the "
            "file. To make it an input of each call, pass state={'optimizer': optimizer}",
            stacklevel=2,
        )
    if types:
        path = pathlib.Path(os.fsdecode(path))
        text = declarations(program, path.name)
        path.with_name(path.name + ".d.ts").write_text(text, encoding="utf-8")


# ---- Arguments


def _named(fn: object) -> dict[str, Callable[..., Any]]:
    if isinstance(fn, Mapping):
        functions = dict(fn)
    else:
        name = getattr(fn, "__name__", "forward")
        functions = {name if _NAME.fullmatch(name) and name not in _RESERVED else "call": fn}
    if not functions:
        raise ValueError("there is no function to export")
    for name, function in functions.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot name a function: it is no identifier")
        if name in _RESERVED:
            raise ValueError(f"{name!r} cannot name a function: players use it for another thing")
        if isinstance(function, type):
            raise TypeError(
                f"{name} must be a function or a module, not the class {function.__name__}"
            )
        if not callable(function):
            raise TypeError(f"{name} must be a function, not {type(function).__name__}")
    return functions


def _check_path(path: str | os.PathLike[str]) -> None:
    """Raises OSError where no file can be written, before anything is recorded."""
    target = pathlib.Path(os.fsdecode(path))
    code = errno.EISDIR if target.is_dir() else errno.ENOENT if not target.parent.is_dir() else 0
    if code:
        raise OSError(code, os.strerror(code), str(target))


def _holders(state: object) -> dict[str, Any]:
    if not isinstance(state, Mapping | None):
        raise TypeError(f"state must have objects by their names, not be a {type(state).__name__}")
    for name, holder in (state or {}).items():
        if not isinstance(name, str):
            raise TypeError(f"states are named by text, not by {name!r}")
        if isinstance(holder, type):
            raise TypeError(
                f"the state {name!r} must be an object, not the class {holder.__name__}"
            )
        if not isinstance(holder, Mapping) and not has_state_dict(holder):
            raise TypeError(
                f"the state {name!r} must have a state_dict(), or be a dict of tensors, not a "
                f"{type(holder).__name__}"
            )
    return dict(state or {})


def _samples(functions: Mapping[str, Callable[..., Any]], given: Any) -> dict[str, Tensors]:
    if len(functions) > 1:
        if not isinstance(given, Mapping) or given.keys() != functions.keys():
            raise TypeError(
                "example_inputs must have the inputs of each function by its name: "
                + ", ".join(functions)
            )
        return {name: _inputs(name, f, given[name]) for name, f in functions.items()}
    ((name, function),) = functions.items()
    if isinstance(given, Mapping) and given.keys() == {name} and not _is_tensor(given[name]):
        given = given[name]
    return {name: _inputs(name, function, given)}


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _inputs(name: str, function: Callable[..., Any], given: Any) -> Tensors:
    if not isinstance(given, Mapping):
        if not isinstance(given, torch.Tensor | Iterable) or isinstance(given, str):
            raise TypeError(
                "example_inputs must be tensors by the names of arguments, or a sequence of "
                f"tensors, not a {type(given).__name__}"
            )
        values = [given] if isinstance(given, torch.Tensor) else list(given)
        called = function.forward if isinstance(function, torch.nn.Module) else function
        arguments = list(inspect.signature(called).parameters)
        if len(values) > len(arguments):
            raise TypeError(f"{name} takes {len(arguments)} arguments, not {len(values)}")
        given = dict(zip(arguments, values, strict=False))
    for label, value in given.items():
        if not _is_tensor(value):
            raise TypeError(f"the input {label!r} must be a tensor, not {type(value).__name__}")
    # Memory of their own, which the recordings name.
    return {
        label: value.detach().to("webgpu").clone().contiguous() for label, value in given.items()
    }


def _shapes(
    functions: Mapping[str, Callable[..., Any]], samples: Mapping[str, Tensors], stated: Any
) -> dict[str, Shapes]:
    if len(functions) > 1:
        if stated is not None and (
            not isinstance(stated, Mapping) or not stated.keys() <= functions.keys()
        ):
            raise TypeError(
                "dynamic_shapes must have the shapes of each function by its name: "
                + ", ".join(functions)
            )
    else:
        ((name, inputs),) = samples.items()
        if not (isinstance(stated, Mapping) and stated.keys() == {name} - inputs.keys()):
            stated = {name: stated}
    return all_dimensions(samples, stated or {})


def _outputs(result: object) -> dict[str, torch.Tensor]:
    """The tensors of a result by their names in the file. What is None has none."""
    named: dict[str, torch.Tensor] = {}

    def add(name: str, value: object) -> None:
        if isinstance(value, torch.Tensor):
            if name in named:
                raise ValueError(f"two outputs are called {name!r}")
            named[name] = value.detach().contiguous()
        elif value is not None:
            for label, part in _parts(name, value):
                add(label, part)

    add("", result)
    # A function's only result.
    return {label or "output": value for label, value in named.items()}


def _parts(name: str, value: object) -> Iterator[tuple[str, object]]:
    """The parts of an output, with identifiers as names: keys follow a line, positions do not."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        for key, part in value.items():
            if not isinstance(key, str):
                raise TypeError(f"outputs are named by text, not by {key!r}")
            yield f"{name}_{key}" if name else key, part
    elif isinstance(value, Sequence) and not isinstance(value, str):
        before = name or "output"
        if before[-1].isdigit():
            before += "_"
        yield from ((f"{before}{k}", part) for k, part in enumerate(value))
    elif type(value) in pytree.SUPPORTED_NODES:  # such as a dataclass that is registered
        parts, _ = pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)
        yield from _parts(name, parts)
    else:
        what = f"the output {name!r} is" if name else "an exported function returned"
        raise TypeError(
            f"{what} a {type(value).__name__}: outputs are tensors, None, and tuples, lists and "
            "dicts of these"
        )


# ---- Recordings


def _targets() -> list[_Target]:
    """For whom to record, those that a player prefers first; the last one plays everywhere."""
    adapter, has, limits = _C.properties()
    # The fastest products take more workgroup memory than the standard's smallest limit of 16 KiB.
    # Nearly all GPUs have so much. These variants are planned for 64 processors, a middle between
    # integrated and large GPUs. The others are planned for 16.
    memory = {"max_workgroup_storage": 32768, "workgroups_to_fill": 1024}
    has_memory = memory["max_workgroup_storage"] <= limits["max_workgroup_storage"]
    room = memory if has_memory else {}
    # So few workgroups keep it busy that launches are planned as for cores.
    software = _Target(limits={"workgroups_to_fill": 16}, software=True)
    subgroups = [_USUAL_SUBGROUPS]
    if adapter["type"] != "software":  # which takes the variant above
        subgroups.insert(0, (limits["subgroup_min_size"], limits["subgroup_max_size"]))
    wanted = [
        _Target(halves, sizes, room)
        for halves in (True, False)
        for sizes in (*dict.fromkeys(subgroups), None)
    ]
    return [software, *(target for target in wanted if set(target.features) <= set(has)), _Target()]


def _has_halves(recording: Recording) -> bool:
    """Whether shaders convert half floats. What shader-f16 changes is these conversions."""
    return any(
        # Texts of attention have the functions also where they do not call them.
        _CONVERSIONS & called_functions(Program(shader.source, shader.constants), shader.entry)
        for shader in _C.list_graph(recording.captured).shaders
        if any(name in shader.source for name in _CONVERSIONS)
    )


def _recorded(
    name: str,
    function: Callable[..., Any],
    inputs: Tensors,
    shapes: Shapes,
    optimizers: Iterable[PreparedOptimizer],
    calls: Calls,
) -> tuple[SavedFunction, Traced]:
    if not shapes:
        flows: list[Flow] = []

        def capture(target: _Target) -> Recording:
            with calls.run(name, known=not flows):
                recording = _capture(name, function, inputs, target)
                if not flows:
                    flows.append(flow_of_capture(recording))
                return recording

        def flow_of_capture(recording: Recording, marks: Marks | None = None) -> Flow:
            attributes = calls.tensors_of_attributes()
            flow = of_capture(
                calls.values, recording.captured, recording.outputs, attributes, marks
            )
            return calls.knows(flow)

        def again(marked: bool) -> Flow:
            if not marked:
                return flow_of_capture(_capture(name, function, inputs, _Target()))
            # The engine's own threads would not see the mode.
            marks = Marks()
            with marks, torch.autograd.set_multithreading_enabled(False):
                recording = _capture(name, function, inputs, _Target())
            return flow_of_capture(recording, marks)

        recordings = _recordings(capture)
        places = frozenset(map(place_of, inputs.values()))
        traced = Traced(flows[0], again, places, repeated=True)
        return SavedFunction(inputs, recordings), traced
    from torch_webgpu.export._trace import compiled, flow_of

    @contextlib.contextmanager
    def tracing() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for one in (_explained(name), checked_optimizers()):
                stack.enter_context(one)
            for optimizer in optimizers:
                stack.enter_context(optimizer.parts())
            yield

    def flow(_: bool) -> Flow:  # a trace has lines in any case
        with tracing():
            return flow_of(calls.values, function, inputs, shapes, _outputs)

    with calls.run(name), tracing():
        made = compiled(calls.values, function, inputs, shapes, _outputs)
    with _explained(name):
        recordings = _recordings(lambda target: _sized_capture(made, target))
    saved = SavedFunction(made.inputs, recordings, sized=made.shapes)
    return saved, Traced(made.flow, flow, frozenset(), repeated=False)


def _recordings(capture: Callable[[_Target], Recording]) -> list[Recording]:
    """Recordings of a function, each different from the others."""
    recordings: list[Recording] = []
    texts: set[frozenset[str]] = set()
    for target in reversed(_targets()):  # the one for all devices is kept in any case
        # The functions run once for each recording.
        if target.halves and not _has_halves(recordings[-1]):
            continue
        recording = capture(target)
        shaders = frozenset(s.source for s in _C.list_graph(recording.captured).shaders)
        if shaders not in texts:
            texts.add(shaders)
            recordings.insert(0, recording)
    return recordings


def _capture(
    name: str, function: Callable[..., Any], inputs: Tensors, target: _Target
) -> Recording:
    captured = Graph(keep_graph=True)
    with target.scope(), _explained(name), _known_to_libraries(), graph(captured):
        # Tensors of their own: what a call sets, such as requires_grad, is not the next one's.
        outputs = _outputs(function(**{label: x.detach() for label, x in inputs.items()}))
    return Recording(
        captured._graph, outputs, software=target.software, subgroup_size=target.subgroups
    )


def _sized_capture(made: "Compiled", target: _Target) -> Recording:
    from torch_webgpu.export._record import Recorder

    captured = Graph(keep_graph=True)
    recorder = Recorder(made.symbols)
    with target.scope(), graph(captured):
        outputs = made.run(recorder)
    launches = recorder.launches_of(captured._graph)
    named = dict(zip(made.outputs, outputs, strict=True))
    return Recording(captured._graph, named, launches, target.software, target.subgroups)


@contextlib.contextmanager
def _known_to_libraries() -> Iterator[None]:
    """Has Transformers know of a capture: it asks for those of CUDA, and then makes masks of
    attention on the device where it would read on the host whether one is needed."""
    utils: Any = sys.modules.get("transformers.utils.import_utils")
    if not hasattr(utils, "is_cuda_stream_capturing"):
        yield
        return
    with _replaced(utils, "is_cuda_stream_capturing", lambda: True):
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """In the block, an attribute has another value."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def _no_assigned_options(
    prepared: Iterable[PreparedOptimizer],
    schedulers: Iterable[LRScheduler],
    updaters: Iterable[torch.optim.Optimizer],
) -> Iterator[None]:
    """Raises RuntimeError for schedulers that stepped in the block, and for options of optimizers
    that were assigned. Each call of the file would compute with those of the first one. Puts both
    back as they were.
    """
    steps = [(one, dict(vars(one))) for one in schedulers]
    names = {id(one.optimizer): f"the optimizer {one.name!r}" for one in prepared}
    options = [
        (names.get(id(one), f"a {type(one).__name__}"), group, dict(group))
        for one in updaters
        for group in one.param_groups
    ]
    groups = [(one, list(one.param_groups)) for one in updaters]
    stepped, assigned, regrouped = "", "", ""
    try:
        yield
    finally:
        for scheduler, attributes in steps:
            now = vars(scheduler)
            # Not every scheduler has both.
            if any(now.get(key) != attributes.get(key) for key in ("_step_count", "last_epoch")):
                stepped = type(scheduler).__name__
                now.clear()
                now.update(attributes)
        for name, group, before in options:
            changed = [
                key
                for key, value in group.items()
                if key != "params" and value is not before.get(key) and value != before.get(key)
            ]
            if changed:
                assigned = f"the option {changed[0]!r} of {name}"
                group.clear()
                group.update(before)
        for one, before_call in groups:
            if [id(group) for group in one.param_groups] != [id(group) for group in before_call]:
                one.param_groups[:] = before_call
                regrouped = type(one).__name__
        # Also in place of what a step then raises, but of no other error of the function.
        if regrouped and isinstance(sys.exc_info()[1], RuntimeError | None):
            raise RuntimeError(
                f"cannot export: the parameter groups of the optimizer ({regrouped}) are others at "
                "the end of a call. Change them before the export"
            )
    advice = "give what it is to each call, of a learning rate as its input `lr`"
    if stepped:
        raise RuntimeError(
            f"cannot export: a {stepped} stepped, which counts in Python, so that each call would "
            f"compute its first step. Step it outside, and {advice}"
        )
    if assigned:
        raise RuntimeError(
            f"cannot export: {assigned} is assigned, so that each call would assign the same. "
            f"Assign it outside, and {advice}"
        )


@contextlib.contextmanager
def _no_first_steps(
    updaters: Iterable[torch.optim.Optimizer], scalers: Iterable[torch.amp.GradScaler]
) -> Iterator[set[str]]:
    """Raises RuntimeError for a step that makes an optimizer's state, or a gradient scaler's. Gives
    the kinds of optimizers that step with a number as learning rate. The given ones are all that
    there are.

    The recording would make that state anew in each call, and train wrongly without a word.
    """
    started = weakref.WeakSet(scalers)
    begin = torch.amp.GradScaler._lazy_init_scale_growth_tracker

    def begin_scaling(scaler: torch.amp.GradScaler, device: torch.device) -> None:
        if scaler in started:
            raise RuntimeError(
                "this GradScaler has not scaled before and is not among `state`, so that each call "
                "would start it anew: pass state={'scaler': scaler}"
            )
        begin(scaler, device)

    # One that the function makes starts anew in each call by intention.
    lasting = weakref.WeakSet(updaters)
    known: dict[torch.optim.Optimizer, set[torch.Tensor]] = {}
    fixed: set[str] = set()

    def before(optimizer: torch.optim.Optimizer, *_: object) -> None:
        groups = optimizer.param_groups
        # Without gradients it does nothing.
        steps = any(parameter.grad is not None for group in groups for parameter in group["params"])
        counts_on_host = all(group.get("capturable") is False for group in groups)
        if steps and counts_on_host and optimizer in lasting:  # those among `state` were prepared
            raise RuntimeError(
                f"this {type(optimizer).__name__} is not among `state`, and keeps the number of "
                "its steps on the CPU, so that each call would take the same one: pass "
                "state={'optimizer': optimizer}"
            )
        is_fixed = any(type(group.get("lr")) is float for group in groups)
        if steps and is_fixed and optimizer in lasting:
            fixed.add(type(optimizer).__name__)
        known[optimizer] = {p for p, state in optimizer.state.items() if state}

    def after(optimizer: torch.optim.Optimizer, *_: object) -> None:
        made = [
            parameter
            for parameter, state in optimizer.state.items()
            if parameter not in known.get(optimizer, ())
            and any(isinstance(part, torch.Tensor) for part in state.values())
        ]
        if made and optimizer in lasting:
            for parameter in made:
                del optimizer.state[parameter]
            raise RuntimeError(
                f"this {type(optimizer).__name__} has not stepped before and is not among `state`, "
                "so that each call would start it anew: pass state={'optimizer': optimizer}"
            )

    with contextlib.ExitStack() as stack:
        stack.callback(register_optimizer_step_pre_hook(before).remove)
        stack.callback(register_optimizer_step_post_hook(after).remove)
        replaced = _replaced(torch.amp.GradScaler, "_lazy_init_scale_growth_tracker", begin_scaling)
        stack.enter_context(replaced)
        yield fixed


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """Adds the caller's line to what went wrong in a capture."""
    try:
        yield
    except KnownLineError as error:
        raise RuntimeError(f"cannot export {name}: {error}") from error
    except RuntimeError as error:
        frames = traceback.extract_tb(error.__traceback__)
        line = innermost(Line(frame.filename, frame.lineno or 0) for frame in frames)
        where = "" if line is None else f"\n{line}"
        raise RuntimeError(f"cannot export {name}: {error}{where}") from error


# ---- Learning rates


def _rates(optimizers: Mapping[str, PreparedOptimizer]) -> dict[str, torch.Tensor]:
    """The learning rates as inputs by name."""
    pairs = [
        (f"lr_{name}_{k}", rate)
        for name, optimizer in optimizers.items()
        for k, rate in enumerate(optimizer.rates)
    ]
    return {"lr": pairs[0][1]} if len(pairs) == 1 else dict(pairs)


def _with_rates(name: str, function: SavedFunction, rates: Tensors) -> SavedFunction:
    """The function with the learning rates that it uses as inputs."""
    used = {
        tensor.allocation
        for recording in function.recordings
        for tensor in _C.list_graph(recording.captured).tensors
    }
    taken = {label: rate for label, rate in rates.items() if _C.allocation_of(rate) in used}
    names = {*function.inputs, *(function.sized.dimensions if function.sized else ())}
    if both := taken.keys() & names:
        raise ValueError(f"{name} has an input {min(both)!r}, which is a learning rate's name")
    inputs = {**function.inputs, **taken}
    return function._replace(inputs=inputs, optional=frozenset(taken))
