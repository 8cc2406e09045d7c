"""Whether every call computes what the first one does.

A file plays the program of the first call every time. In PyTorch a later call also finds what the
calls before have left in Python: gradients, and the flags of `requires_grad_`, `train` and `eval`.
So each function runs again in every state that calls can leave, and must compute the same: the same
outputs, and the same changes of what lasts. The same goes for numbers, texts and tensors that calls
assign to attributes of modules.
"""

import contextlib
import pickle
import random
import sys
import warnings
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._subclasses.fake_tensor import is_fake
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from torch_webgpu.export._alive import alive, leaves, parts_of
from torch_webgpu.export._attributes import (
    Attribute,
    Attributes,
    Leaf,
    kind_of,
    tensors_of,
    with_own_memory,
)
from torch_webgpu.export._flows import Flow, is_on_device, place_of
from torch_webgpu.export._host import Content, HostTensors
from torch_webgpu.export._lines import KnownLineError, Line
from torch_webgpu.export._values import Held, Values
from torch_webgpu.graphs._state import state_dict_of

_MOST_NAMES = 4
_MOST_STATES = 64
# Of an attribute. One that counts calls has more.
_MOST_VALUES = 3

_GRADIENTS = (
    "A file keeps no gradients from one call to the next. To begin each call without gradients, "
    "call zero_grad() before backward(). To add gradients up over several calls, make them before "
    "the export (p.grad = torch.zeros_like(p)) and set them to zero in place "
    "(zero_grad(set_to_none=False))"
)
_FLAGS = "Set the flags that a function needs at its start, as by train() or eval()"
_MODE = "Use set_grad_enabled() as a context, which puts it back"
_HOST = (
    "A file does not keep tensors that lie on the CPU. Move them to the device before the export, "
    "or make them inputs"
)
_PYTHON = (
    "An export runs the function several times, and a file keeps no numbers or tensors that Python "
    "keeps from call to call. Make them inputs, or a tensor that the function changes in place"
)


class State(NamedTuple):
    """What calls have left in Python that was otherwise before the export."""

    gradients: Mapping[int, tuple[torch.Tensor, torch.Tensor | None]] = {}  # with their leaves
    required: Mapping[int, tuple[torch.Tensor, bool]] = {}  # requires_grad of leaves
    training: Mapping[int, tuple[nn.Module, bool]] = {}
    attributes: Mapping[Attribute, tuple[nn.Module, Any]] = {}  # with their modules
    grad_mode: bool | None = None
    host: Mapping[int, Content] = {}  # memory on the CPU that calls change

    @property
    def key(self) -> Hashable:
        """Equal for states in which functions run alike, but for what attributes hold."""
        numbers: dict[Hashable, int] = {}  # of memory that was made, which has no names
        return (
            frozenset(
                (k, None if x is None else _kind(x, numbers))
                for k, (_, x) in _sorted(self.gradients)
            ),
            frozenset((k, flag) for k, (_, flag) in self.required.items()),
            frozenset((k, flag) for k, (_, flag) in self.training.items()),
            self.grad_mode,
            frozenset((k, content.digest) for k, content in self.host.items()),
        )


def _sorted(gradients: Mapping[int, Any]) -> list[tuple[int, Any]]:
    return sorted(gradients.items(), key=lambda item: item[0])


def _kind(gradient: torch.Tensor, numbers: dict[Hashable, int]) -> Hashable:
    places = tuple(numbers.setdefault(place, len(numbers)) for place in _places(gradient))
    layout = type(gradient), gradient.dtype, tuple(gradient.shape), gradient.requires_grad
    if not is_on_device(gradient):
        return layout, places
    return layout, gradient.stride(), gradient.storage_offset(), places


def _places(tensor: torch.Tensor) -> list[Hashable]:
    """The memory of a tensor: of several, if it consists of several."""
    return [place_of(part) for part in parts_of(tensor)]


def _is_plain(tensor: torch.Tensor) -> bool:
    is_strided = tensor.layout == torch.strided and not is_traceable_wrapper_subclass(tensor)
    return is_strided and tensor.numel() > 0


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors may share elements."""
    if one.untyped_storage()._cdata != other.untyped_storage()._cdata:
        return False
    ends = [
        x.storage_offset() + 1 + sum((n - 1) * k for n, k in zip(x.shape, x.stride(), strict=True))
        for x in (one, other)
    ]
    return one.storage_offset() < ends[1] and other.storage_offset() < ends[0]


def _memory(tensor: torch.Tensor) -> Hashable:
    """The memory of a tensor, and how its elements lie there."""
    if tensor.layout != torch.strided or is_traceable_wrapper_subclass(tensor):
        return None
    if tensor.is_nested:  # without one shape
        return tensor.untyped_storage()._cdata
    layout = tensor.storage_offset(), tuple(tensor.shape), tensor.stride()
    return tensor.untyped_storage()._cdata, layout


class Traced(NamedTuple):
    """A function as its first run has it."""

    flow: Flow
    # Runs it once more. If `marked`, with lines, and with what is known of operators.
    again: Callable[[bool], Flow]
    inputs: frozenset[Hashable]  # the memory of each call's inputs
    repeated: bool  # whether it was run several times for one file


class _Leaf(NamedTuple):
    """A tensor before the export."""

    tensor: torch.Tensor
    data: torch.Tensor | None  # of a class that gives no other tensor of its data, None
    memory: Hashable
    gradient: torch.Tensor | None
    required: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "_Leaf":
        data = None
        with contextlib.suppress(Exception):  # of __torch_dispatch__
            data = tensor.detach()
        return cls(tensor, data, _memory(tensor), tensor.grad, tensor.requires_grad)


class _Module(NamedTuple):
    """A module before the export."""

    module: nn.Module
    training: bool
    attributes: Attributes


class _Origin(NamedTuple):
    """Where the tensor of an attribute comes from."""

    name: str  # of the function whose run has assigned it
    state: State  # in which that run began
    leaf: Leaf
    held: Held | None  # what it holds then, if known


def _host_generators() -> dict[str, Hashable]:
    """The states of generators that are none of the device."""
    states: dict[str, Hashable] = {
        "Python's random": random.getstate(),
        "torch's generator of the CPU": bytes(torch.default_generator.get_state().tolist()),
    }
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        states["numpy.random"] = pickle.dumps(numpy.get_state(legacy=False))
    return states


class Calls:
    """Runs functions as the first call does, and as later ones do."""

    def __init__(
        self,
        holders: Mapping[str, Any],
        within: Callable[[], contextlib.AbstractContextManager[None]],
        tensors: Sequence[torch.Tensor],
        modules: Iterable[nn.Module],
    ) -> None:
        """`holders` have names for tensors. Runs are made in a block of `within`. `tensors` and
        `modules` are all that there are."""
        self._holders = holders
        self._within = within
        self.values = Values()
        with torch._C.DisableTorchFunctionSubclass():
            self._leaves = [_Leaf.of(x) for x in leaves(tensors)]
        self._modules = [
            _Module(module, module.training, Attributes.of(module))
            for module in modules
            if {"training", "_buffers"} <= vars(module).keys()
        ]
        self._host = HostTensors(tensors)
        self._saved = {  # memory of tensors that a file keeps
            place_of(x)
            for holder in holders.values()
            for x in pytree.tree_leaves(state_dict_of(holder))
            if isinstance(x, torch.Tensor)
        }
        self._grad_mode = torch.is_grad_enabled()
        self._kinds: dict[Attribute, set[Hashable]] = {}  # of the values that calls left
        self._host_kinds: dict[int, set[Hashable]] = {}  # the same of memory on the CPU
        self._origins: dict[Hashable, _Origin] = {}  # by the memory that attributes have in states
        self._held: Mapping[Hashable, Held] = {}  # by attributes, at the end of a run
        self._firsts: dict[str, _First] = {}
        self._marked: dict[Hashable, Flow] = {}
        self._noticed: dict[str, None] = {}  # texts of warnings
        self._changing: set[Hashable] = set()  # memory that differs from call to call
        self._lasting = {place_of(x) for x in tensors if is_on_device(x)}
        self._early: list[State] = []  # that the first runs leave
        self._reached: dict[Hashable, State] = {}
        self._last = State()  # at the end of the last run
        self._assigned: dict[Hashable, str] = {}  # attributes of modules, by their first tensors

    @contextlib.contextmanager
    def run(self, name: str, state: State | None = None, known: bool = True) -> Iterator[None]:
        """A run of a function that begins in a state, without one as before the export. What it
        leaves is a state if it is `known`: other runs compute the same for other devices."""
        is_over = False
        self._held = {}
        # Within a context of autocast, it keeps converted weights: of the call before, and at the
        # end tensors of the capture, which hold nothing.
        torch.clear_autocast_cache()
        try:
            if state is not None:
                self._apply(state)
            drawn = _host_generators()
            with self._within():
                yield
            is_over = True
            self._notice_draws(drawn)
        finally:
            torch.clear_autocast_cache()
            # Some classes refuse to be asked for what all tensors have.
            with torch._C.DisableTorchFunctionSubclass():
                left = self._left(name, state or State())
                assigned = self._restore()
        if is_over and assigned:
            raise RuntimeError(
                f"cannot export: {assigned} is assigned. A file keeps what is changed in place, as "
                "by copy_() or add_()"
            )
        self._last = left
        if known and self._firsts:
            self._reach(left)
        elif known:
            self._early.append(left)

    def close(self) -> None:
        """Puts back the attributes of all modules, and lets go of everything: functions that were
        run have references to this object."""
        for one in self._modules:
            one.attributes.restore_all()
        self._modules.clear()
        self._leaves.clear()
        self._host.clear()
        self._firsts = {}

    def knows(self, flow: Flow) -> Flow:
        """Is told what a run computed, before it is over."""
        self._held = flow.attributes
        return flow

    def _reach(self, left: State) -> None:
        found = {}
        for attribute, (module, value) in left.attributes.items():
            kinds = self._kinds.setdefault(attribute, set())
            kinds.add(self._kind_of(attribute, value))
            if len(kinds) <= _MOST_VALUES:
                found[attribute] = module, value
        host = {}
        for key, content in left.host.items():
            kinds = self._host_kinds.setdefault(key, set())
            kinds.add(content.digest)
            if len(kinds) <= _MOST_VALUES:
                host[key] = content
        state = left._replace(attributes=found, host=host)
        self._reached.setdefault(self._key(state), state)

    def _key(self, state: State) -> Hashable:
        attributes = ((k, self._kind_of(k, x)) for k, (_, x) in state.attributes.items())
        return state.key, frozenset(attributes)

    def _kind_of(self, attribute: Attribute, value: Any) -> Hashable:
        contents: dict[int, Hashable] = {}
        for leaf, tensor in tensors_of(attribute, value):
            held = self._origins[place_of(tensor)].held
            if held is not None and self._is_constant(held):
                contents[leaf[-1]] = held
        return kind_of(value, contents)

    def _is_constant(self, held: Held) -> bool:
        """Whether it is the same in each call, as a table is that the first call computes."""
        value, _ = held
        sources = self.values.places_in([value])
        changing = sources & (self._changing | self._origins.keys())
        return not changing and not self.values.draws_in([value])

    def _apply(self, state: State) -> None:
        for leaf, required in state.required.values():
            leaf.requires_grad_(required)
        for leaf, gradient in state.gradients.values():
            leaf.grad = gradient
        for module, training in state.training.values():
            module.training = training
        for (_, name), (module, value) in state.attributes.items():
            vars(module)[name] = value
        self._host.apply(state.host)
        if state.grad_mode is not None:
            torch.set_grad_enabled(state.grad_mode)

    def tensors_of_attributes(self) -> dict[Hashable, torch.Tensor]:
        """Those that a run has assigned so far."""
        return {
            leaf: tensor
            for one in self._modules
            for attribute, value in one.attributes.assigned()
            for leaf, tensor in tensors_of(attribute, value)
        }

    def _left(self, name: str, began: State) -> State:
        """The state at the end of a run."""
        gradients = {}
        for leaf in self._leaves:
            gradient = leaf.tensor.grad
            if gradient is leaf.gradient or leaf.tensor.device.type != "webgpu":
                continue
            gradients[id(leaf.tensor)] = leaf.tensor, gradient
        return State(
            self._apart(gradients),
            {
                id(leaf.tensor): (leaf.tensor, leaf.tensor.requires_grad)
                for leaf in self._leaves
                if leaf.tensor.requires_grad != leaf.required and leaf.tensor.is_leaf
            },
            {
                id(one.module): (one.module, one.module.training)
                for one in self._modules
                if one.module.training != one.training
            },
            self._attributes_left(name, began),
            None if torch.is_grad_enabled() == self._grad_mode else not self._grad_mode,
            self._host.left(),
        )

    def _attributes_left(self, name: str, began: State) -> dict[Attribute, tuple[nn.Module, Any]]:
        found = {}
        for one in self._modules:
            for attribute, value in one.attributes.assigned():
                own = with_own_memory(value)
                for leaf, tensor in tensors_of(attribute, own):
                    origin = _Origin(name, began, leaf, self._held.get(leaf))
                    self._origins[place_of(tensor)] = origin
                found[attribute] = one.module, own
        return found

    def _apart(
        self, gradients: Mapping[int, tuple[torch.Tensor, torch.Tensor | None]]
    ) -> dict[int, tuple[torch.Tensor, torch.Tensor | None]]:
        """With memory of its own for each gradient that shares no elements with another tensor."""
        found = dict(gradients)
        plain = {
            key: gradient
            for key, (_, gradient) in gradients.items()
            if gradient is not None and not gradient.requires_grad and _is_plain(gradient)
        }
        for key, gradient in plain.items():
            others = (other for label, other in plain.items() if label != key)
            is_new = is_fake(gradient) or place_of(gradient) not in self._lasting
            if is_new and not any(_overlap(gradient, other) for other in others):
                leaf, _ = found[key]
                strides = [int(n) for n in gradient.stride()]
                own = torch.empty_strided(
                    leaf.shape, strides, dtype=gradient.dtype, device=leaf.device
                )
                found[key] = leaf, own
        return found

    def _restore(self) -> str:
        """Makes as before the export what other runs begin with. Returns what a function assigned
        that it may not."""
        assigned = ""
        for leaf in self._leaves:
            tensor = leaf.tensor
            if leaf.data is not None and _memory(tensor) != leaf.memory:
                tensor.data = leaf.data
                assigned = f"the data of {self._names({place_of(tensor)})}"
            if tensor.grad is not leaf.gradient:
                tensor.grad = leaf.gradient
            if tensor.requires_grad != leaf.required and tensor.is_leaf:
                tensor.requires_grad_(leaf.required)
        torch.set_grad_enabled(self._grad_mode)
        for tensor, is_restored in self._host.restore():
            self._noticed[
                f"a call changes {self._name_on_host(tensor)}, which a file does not keep because "
                "it lies on the CPU" + ("" if is_restored else ". It is too large to be put back")
            ] = None
        for module, training, attributes in self._modules:
            buffers = attributes.registries["_buffers"]
            if module.training != training:
                module.training = training
            assigned = attributes.registered() or assigned
            names = {name for (_, name), _ in attributes.assigned()}
            # Other tensors, such as those whose sizes a call decides, are of use to that run only.
            others = {
                name
                for name, value in vars(module).items()
                if isinstance(value, torch.Tensor) and value is not attributes.values.get(name)
            }
            for name in sorted(names | others):
                before = attributes.values.get(name)
                if isinstance(before, torch.Tensor) and is_on_device(before):
                    self._assigned[place_of(before)] = f"{type(module).__name__}.{name}"
                if name not in names and not attributes.is_lazy:
                    self._noticed[
                        f"a call assigns a tensor to {type(module).__name__}.{name}. Whether a "
                        "later call reads it is not checked"
                    ] = None
            attributes.restore(names | others)
            for name, buffer in buffers.items():
                if module._buffers.get(name) is not buffer:
                    module._buffers[name] = buffer
                    assigned = f"the buffer {type(module).__name__}.{name}"
        return assigned

    def _name_on_host(self, tensor: torch.Tensor) -> str:
        for one in self._modules:
            kind = type(one.module).__name__
            for registry, named in one.attributes.registries.items():
                what = "buffer" if registry == "_buffers" else "parameter"
                for name, value in named.items():
                    if value is tensor:
                        return f"the {what} {kind}.{name}"
            for name, value in one.attributes.values.items():
                if value is tensor:
                    return f"the tensor {kind}.{name}"
        if tensor.is_nested:
            return "a nested tensor"
        return f"a tensor of the shape {list(tensor.shape)}"

    def _names_on_host(self, state: State) -> str:
        tensors = [self._host.tensor_of(key) for key in state.host]
        return _joined(sorted(map(self._name_on_host, tensors)))

    # ---- Later calls

    def check(self, functions: Mapping[str, Traced]) -> None:
        """Raises RuntimeError if a later call of a function would compute something else than the
        first one."""
        known = {name: _First(name, traced) for name, traced in functions.items()}
        self._firsts = known
        for traced in functions.values():
            self._changing |= traced.inputs | traced.flow.changed.keys()
        for early_state in self._early:
            self._reach(early_state)
        first = self._key(State())
        for name, one in known.items():
            self._check_attributes(name, one.traced.flow)
            # Some functions were run several times, once for each recording. Of two further runs
            # at least one differs from the first, whatever the period of what Python counts.
            for _ in range(2 if one.traced.repeated else 1):
                self._check(name, one, State())
            one.concern = self._read_by(one.traced.flow) | self._last.gradients.keys()
        early = set(self._reached)  # states that one call leaves
        states = self._reached  # runs find more
        done: set[Hashable] = {first}
        while left := [key for key in states if key not in done]:
            if len(done) > _MOST_STATES and any(
                each.attributes or each.host for each in states.values()
            ):
                self._noticed[
                    "calls leave tensors on the CPU or attributes of modules in more than "
                    f"{_MOST_STATES} states. Whether a later call computes something else was "
                    "tried in these only"
                ] = None
                break
            if len(done) > _MOST_STATES:
                raise RuntimeError(
                    "cannot export: calls leave gradients and flags in more than "
                    f"{_MOST_STATES} states"
                )
            done.add(left[0])
            state = states[left[0]]
            for name, one in known.items():
                own = {k: each for k, each in state.gradients.items() if k in one.concern}
                part = self._key(state._replace(gradients=own))
                # Independent functions leave as many states as they have subsets.
                if left[0] in early or part not in one.seen:
                    self._check(name, one, state)
                one.seen.add(part)
        self._notice_counters()
        for text in self._noticed:
            warnings.warn(f"export: {text}", stacklevel=3)

    def _notice_counters(self) -> None:
        modules = {id(one.module): one.module for one in self._modules}
        for (key, name), kinds in self._kinds.items():
            if len(kinds) > _MOST_VALUES:
                self._noticed[
                    f"{type(modules[key]).__name__}.{name} has another value after each call, "
                    "which a file does not keep. Whether a later call computes something else "
                    f"because of it was tried for {_MOST_VALUES} values only"
                ] = None

    def _notice_draws(self, before: Mapping[str, Hashable]) -> None:
        for name, state in _host_generators().items():
            if name in before and state != before[name]:
                self._noticed[
                    f"a call draws random numbers from {name}. What depends on them is the same in "
                    "each call of the file"
                ] = None

    def _know_attributes(self, state: State, marked: bool) -> None:
        """Has the values of a run know what attributes hold that is the same in each call."""
        for attribute, (_, value) in state.attributes.items():
            for leaf, tensor in tensors_of(attribute, value):
                place = place_of(tensor)
                self.values.known.pop(place, None)  # of a tensor that is gone
                origin = self._origins[place]
                held = origin.held
                if held is not None and self._is_constant(held):
                    if marked:
                        held = self._marked_flow(origin.name, origin.state).attributes.get(leaf)
                    if held is not None:
                        self.values.known[place] = held

    def _check_attributes(self, name: str, flow: Flow) -> None:
        """Raises RuntimeError if a module has a tensor as an attribute that calls read, and replace
        by another one."""
        kept = {  # attributes may be views of these
            place_of(x)
            for module in self._modules
            for registry in ("_buffers", "_parameters")
            for x in module.attributes.registries[registry].values()
            if is_on_device(x)
        }
        for place in self._places_read(flow) - kept:
            if place in self._assigned:
                raise RuntimeError(
                    f"cannot export {name}: the attribute {self._assigned[place]} is read, and "
                    "assigned by a call. A file keeps what is changed in place, as by copy_() or "
                    "add_()"
                )

    def _places_read(self, flow: Flow) -> set[Hashable]:
        return self.values.places_in([*flow.outputs.values(), *flow.changed.values()])

    def _read_by(self, flow: Flow) -> set[int]:
        """The leaves that a call reads or changes."""
        places = self._places_read(flow) | flow.changed.keys()
        return {id(leaf.tensor) for leaf in self._leaves if place_of(leaf.tensor) in places}

    def _check(self, name: str, first: "_First", state: State) -> None:
        try:
            flow = self._run(first, state)
        except RuntimeError as error:
            if not state.host or self._raises(first, state._replace(host={})):
                raise
            raise RuntimeError(
                f"{error}\nThis is so in a later call, which finds what an earlier one has left in "
                f"{self._names_on_host(state)}, on the CPU. {_HOST}"
            ) from error
        found = self._differences(first.traced.flow, flow, state)
        if not found:
            return
        try:
            self._check_repeated(first)
            before = first.traced.flow
            if state != State() and first.traced.repeated:
                # Commands differ. Operators may compute the same.
                before = self._marked_flow(first.name, State())
                flow = self._marked_flow(first.name, state)
                found = self._differences(before, flow, state)
            if found:
                raise self._error(found, flow, state)
        except KnownLineError as error:
            raise RuntimeError(f"cannot export {name}: {error}") from error

    def _raises(self, first: "_First", state: State) -> bool:
        try:
            self._run(first, state)
        except RuntimeError:
            return True
        return False

    def _check_repeated(self, first: "_First") -> None:
        """Raises KnownLineError if another run as before the export computes something else."""
        if first.is_repeatable:
            return
        flow = self._run(first, State())
        found = self._differences(first.traced.flow, flow, State())
        if found:
            one, other = (self._run(first, State(), True) for _ in range(2))
            found = self._differences(one, other, State()) or found
            raise KnownLineError(
                f"{self._what(found)} depends on what an earlier run of the function has left in "
                f"Python. {_PYTHON}",
                self._line(found, other),
            )
        first.is_repeatable = True

    def _marked_flow(self, name: str, state: State) -> Flow:
        """What a function computes in a state, by operators."""
        key = name, self._key(state)
        if key not in self._marked:
            self._marked[key] = self._run(self._firsts[name], state, True)
        return self._marked[key]

    def _run(self, first: "_First", state: State, marked: bool = False) -> Flow:
        self._know_attributes(state, marked)
        with self.run(first.name, state, known=not marked):
            return first.traced.again(marked)

    def _differences(self, one: Flow, other: Flow, state: State) -> list["_Difference"]:
        """What two runs compute otherwise."""
        found = [
            _Difference(name, None, one.outputs.get(name), other.outputs.get(name))
            for name in {**one.outputs, **other.outputs}
        ]
        places = (one.changed.keys() | other.changed.keys()) - self._of_gradients(state)
        places -= self._origins.keys()  # which are new in each state
        for place in places:
            before = self.values.before(place)
            values = (flow.changed.get(place, before) for flow in (one, other))
            found.append(_Difference("", place, *values))
        return [each for each in found if each.one != each.other]

    def _of_gradients(self, state: State) -> set[Hashable]:
        """Memory that calls need not keep: of gradients that functions replace."""
        found: set[Hashable] = set()
        for leaf in self._leaves:
            if id(leaf.tensor) not in state.gradients:
                continue
            _, left = state.gradients[id(leaf.tensor)]
            if left is not None:
                found.update(set(_places(left)) - self._lasting)
            if leaf.gradient is not None:
                found.update(set(_places(leaf.gradient)) - self._saved)
        return found

    # ---- Errors

    def _error(self, found: Sequence["_Difference"], flow: Flow, state: State) -> KnownLineError:
        left = {
            place: leaf
            for leaf, gradient in state.gradients.values()
            if gradient is not None
            for place in _places(gradient)
        }
        now = [each.other for each in found if each.other is not None]
        read = self.values.places_in(now) & left.keys()
        if read:
            names = self._names({place_of(left[place]) for place in read})
            line = next((flow.lines[x] for x in now if flow.lines.get(x) is not None), None)
            text = f"a call reads gradients that an earlier call has left, those of {names}"
            return KnownLineError(f"{text}. {_GRADIENTS}", line)
        causes, advice = [], []
        if state.gradients:
            names = self._names({place_of(leaf) for leaf, _ in state.gradients.values()})
            causes.append(f"whether an earlier call has left gradients, those of {names}")
            advice.append(_GRADIENTS)
        if state.training:
            kinds = sorted({type(module).__name__ for module, _ in state.training.values()})
            causes.append(f"whether an earlier call has used train() or eval() of {_joined(kinds)}")
        if state.required:
            names = self._names({place_of(leaf) for leaf, _ in state.required.values()})
            causes.append(f"whether an earlier call has changed requires_grad of {names}")
        if state.training or state.required:
            advice.append(_FLAGS)
        if state.grad_mode is not None:
            causes.append("whether an earlier call has called set_grad_enabled()")
            advice.append(_MODE)
        if state.attributes:
            names = _joined(sorted(map(_attribute_name, state.attributes.items())))
            causes.append(f"what an earlier call has assigned to {names}")
            advice.append(_PYTHON)
        if state.host:
            names = self._names_on_host(state)
            causes.append(f"what an earlier call has left in {names}, on the CPU")
            advice.append(_HOST)
        if not causes:
            causes.append("what differs from run to run, such as random numbers of Python")
            advice.append(_PYTHON)
        text = f"{self._what(found)} depends on {_joined(causes)}. {'. '.join(advice)}"
        return KnownLineError(text, self._line(found, flow))

    def _what(self, found: Sequence["_Difference"]) -> str:
        if any(None in (each.one, each.other) for each in found):
            return "which outputs a call has"
        if outputs := [repr(each.output) for each in found if each.output]:
            return f"how a call computes {_joined(outputs)}"
        return f"how a call changes {self._names({each.place for each in found})}"

    def _line(self, found: Sequence["_Difference"], flow: Flow) -> Line | None:
        """Where what differs begins to differ."""
        lines: list[Line] = []
        for each in found:
            if each.one is None or each.other is None:
                continue
            for _, value in self.values.path(each.one, each.other):
                line = flow.lines.get(value)
                lines += [line] if line is not None else []
            if lines:
                break
        return lines[-1] if lines else None

    def _names(self, places: Collection[Hashable]) -> str:
        """The tensors there, by their names in state dicts where they have one."""
        names: dict[Hashable, str] = {}
        for label, holder in self._holders.items():
            if isinstance(holder, nn.Module):
                for name, tensor in (*holder.named_parameters(), *holder.named_buffers()):
                    names.setdefault(place_of(tensor), f"{name!r} of {label!r}")
            elif isinstance(holder, Mapping):
                for name, tensor in holder.items():
                    if isinstance(tensor, torch.Tensor):
                        names.setdefault(place_of(tensor), f"{name!r} of {label!r}")
        # A module within another one has shorter names.
        (modules,) = alive(nn.Module)
        for module in sorted(modules, key=lambda module: -len(list(module.modules()))):
            for name, tensor in module.named_parameters():
                names.setdefault(place_of(tensor), f"{name!r} of a {type(module).__name__}")
        found = [names[place] for place in names if place in places]
        if not found:  # they have no names
            return f"{len(places)} tensor{'s' * (len(places) > 1)}"
        return _joined(found)


def _attribute_name(item: tuple[Attribute, tuple[nn.Module, Any]]) -> str:
    (_, name), (module, _) = item
    return f"{type(module).__name__}.{name}"


class _First:
    """The first call of a function."""

    def __init__(self, name: str, traced: Traced) -> None:
        self.name = name
        self.traced = traced
        self.is_repeatable = False  # whether a second run was found to compute the same
        self.concern: set[int] = set()  # the leaves whose gradients it may depend on
        self.seen: set[Hashable] = set()  # states of these, and of flags, in which it has run


class _Difference(NamedTuple):
    output: str
    place: Hashable  # if it is no output
    one: int | None
    other: int | None


def _joined(names: Sequence[str]) -> str:
    found = list(names)
    if len(found) > _MOST_NAMES:
        found[_MOST_NAMES:] = [f"{len(found) - _MOST_NAMES} more"]
    return ", ".join(found[:-1]) + " and " * (len(found) > 1) + found[-1]
