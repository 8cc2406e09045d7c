"""The commands of a compiled function for all sizes.

The compiler's code for a graph allocates tensors and launches kernels. It is run once, with tensors
as large as they get and with integers that remember how they come from the sizes (_sizes.py). What
it launches is recorded as by any capture; beside each launch, the expressions of its parameters and
of its grid are noted. Everything else that the code does must not depend on sizes.
"""

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary

from torch_webgpu import _C, _torch_versions
from torch_webgpu.export._sizes import Real, Size, Symbols, largest, smallest
from torch_webgpu.graphs._expressions import Values, word
from torch_webgpu.graphs._format import Expression
from torch_webgpu.graphs._save import SizedLaunch
from torch_webgpu.inductor.runtime import float_bits, high_word, low_word

_MOST_WORKGROUPS = 65535  # of a dimension, in a browser
_VECTOR_BYTES = 16  # of the widest access
_ALLOCATIONS = ("empty_strided", "empty_strided_webgpu", "empty_strided_cpu")


class Launch(NamedTuple):
    """A launch of a generated kernel."""

    kernel: str
    words: tuple[Any, ...]  # the first parameters: integers, then where operands start
    groups: Any


class RefusedError(RuntimeError):
    """What is no generated kernel depends on sizes. `operator` is its name in the code."""

    def __init__(self, operator: str) -> None:
        super().__init__(f"{operator} depends on sizes that a call decides")
        self.operator = operator


class Recorder:
    """Runs the code of a graph during a capture, and notes its launches."""

    def __init__(self, symbols: Symbols) -> None:
        self.symbols = symbols
        self.launches: list[Launch] = []
        self.sized: set[int] = set()  # the memory of tensors with dynamic sizes
        # Where tensors start in their storages, in elements, if sizes decide that.
        self.starts = WeakTensorKeyDictionary()
        self.reinterpret: Callable[..., torch.Tensor]  # the module's function

    def run(self, call: Any, arguments: Sequence[Any], sizes: Sequence[Any]) -> Any:
        """Runs `call`, a method of the compiler's module.

        sizes: for each argument the shape of the tensor, or the expression of the integer.
        """
        given: list[Any] = []
        for argument, size in zip(arguments, sizes, strict=True):
            if isinstance(argument, torch.Tensor):
                self._note(argument, size)
                given.append(argument)
            else:
                given.append(self.symbols.size(size))
        function, owner = call.__func__, call.__self__
        code = types.FunctionType(function.__code__, self._globals(function.__globals__))
        return code(owner, given)

    def launches_of(self, captured: Any) -> dict[int, SizedLaunch]:
        """The launches by the numbers of their commands in the capture."""
        listing = _C.list_graph(captured)
        names = {launch.kernel for launch in self.launches}
        found: dict[int, SizedLaunch] = {}
        left = iter(self.launches)
        for number, command in enumerate(listing.commands):
            label = listing.shaders[command.shader].label if command.kind == "dispatch" else ""
            if label in names:
                launch = next(left, None)
                if launch is None or launch.kernel != label:
                    raise RuntimeError(f"the launches of {label} are not as they were recorded")
                found[number] = self._checked(launch, command)
            elif any(listing.tensors[k].allocation in self.sized for k, _, _ in command.parts):
                raise RuntimeError(f"a {command.kind} of a tensor whose sizes a call decides")
        if next(left, None) is not None:
            raise RuntimeError("a launch was not recorded")
        return found

    def _checked(self, launch: Launch, command: Any) -> SizedLaunch:
        """The expressions of a launch, which must have the values of the capture there."""
        symbols = self.symbols
        try:
            words = [
                symbols.real(value.expr) if isinstance(value, Real) else symbols.word(_expr(value))
                for value in launch.words
            ]
            grid = self._grid(_expr(launch.groups))
        except RuntimeError as error:
            raise RuntimeError(f"{launch.kernel}: {error}") from error
        largest: Values = {name: symbols.most[s] for s, name in symbols.names.items()}
        data = command.params
        recorded = [
            int.from_bytes(data[at : at + 4], "little") for at in range(0, 4 * len(words), 4)
        ]
        if [word(w, largest) for w in words] != recorded or tuple(
            word(n, largest) for n in grid
        ) != tuple(command.grid):
            raise RuntimeError(f"{launch.kernel} was not launched with the sizes that it states")
        return SizedLaunch(words, grid)

    def _grid(self, groups: Any) -> tuple[Expression, Expression, Expression]:
        """As grid_1d in csrc/launch/grid.h has it: folded into y where x would pass the limit."""
        x = self.symbols.count(groups)
        bounds = self.symbols.bounds(groups)
        assert bounds is not None  # which count() needed
        if bounds[1] <= _MOST_WORKGROUPS:
            return x, 1, 1
        rows: Expression = ["ceil/", x, _MOST_WORKGROUPS]
        return ["ceil/", x, ["max", rows, 1]], rows, 1

    # ---- What the code finds under its names

    def _globals(self, module: Mapping[str, Any]) -> dict[str, Any]:
        self.reinterpret = module["reinterpret_tensor"]
        known: dict[str, Any] = {
            "reinterpret_tensor": self._reinterpret,
            "float_bits": self._float_bits,
            # A parameter is the low 32 bits of an expression in any case.
            "low_word": lambda value: value if isinstance(value, Size) else low_word(value),
            "high_word": self._high_word,
            "max": largest,
            "min": smallest,
            **dict.fromkeys(_ALLOCATIONS, self._allocate),
            **dict.fromkeys(_torch_versions.ASSERTIONS, _assert_nothing),
        }
        found = dict(known)
        for name, value in module.items():
            if name in known:
                continue
            if isinstance(value, _C.CompiledKernel):
                found[name] = self._launcher(value)
            elif name.startswith("__"):
                found[name] = value
            else:
                found[name] = _fixed(self, name, value)
        return found

    def _is_sized(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == "webgpu" and _C.allocation_of(tensor) in self.sized

    def _depends(self, tensor: torch.Tensor) -> bool:
        """Whether its sizes depend on what a call decides, or where it starts."""
        return self._is_sized(tensor) or tensor in self.starts

    def _note(self, tensor: torch.Tensor, shape: Sequence[Any]) -> None:
        if any(isinstance(self.symbols.size(_expr(n)), Size) for n in shape):
            if tensor.device.type != "webgpu":
                raise RuntimeError(f"a tensor whose sizes a call decides is on {tensor.device}")
            self.sized.add(_C.allocation_of(tensor))

    def _at_most(self, value: Any) -> int:
        """A parameter for the largest sizes."""
        if isinstance(value, Real):
            largest = {s: sympy.Integer(n) for s, n in self.symbols.most.items()}
            numerator, denominator = sympy.fraction(value.expr.xreplace(largest))
            return float_bits(int(numerator) / int(denominator))
        return self.symbols.at_most(value.expr) if isinstance(value, Size) else int(value)

    def _allocate(
        self, sizes: Sequence[Any], strides: Sequence[Any], *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        """A tensor as large as it gets, which need not be where all sizes are largest."""
        if args:  # the dtype, of the functions with a device in their name
            kwargs["dtype"] = args[0]
        kwargs.setdefault("device", "webgpu")
        shape, steps = [self._at_most(n) for n in sizes], [self._at_most(n) for n in strides]
        if not any(isinstance(n, Size) for n in (*sizes, *strides)):
            return torch.empty_strided(shape, steps, **kwargs)
        last = sum(((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)), 0)
        bounds = self.symbols.bounds(_expr(last))
        if bounds is None:
            raise RuntimeError(f"a tensor of the shape {list(sizes)} has no largest size")
        elements = 1 + max(bounds[1], 0)
        if elements > 1 + self._at_most(last):
            tensor = torch.empty(elements, **kwargs).as_strided(shape, steps)
        else:
            tensor = torch.empty_strided(shape, steps, **kwargs)
        self._note(tensor, sizes)
        return tensor

    def _reinterpret(
        self, tensor: torch.Tensor, sizes: Sequence[Any], strides: Sequence[Any], offset: Any
    ) -> torch.Tensor:
        shape, steps = [self._at_most(n) for n in sizes], [self._at_most(n) for n in strides]
        view = self.reinterpret(tensor, tuple(shape), tuple(steps), self._at_most(offset))
        self._note(view, sizes)
        start = self._start_of(tensor) + offset
        if isinstance(start, Size):
            self.starts[view] = start
        return view

    def _start_of(self, tensor: torch.Tensor) -> Any:
        return self.starts.get(tensor, tensor.storage_offset())

    def _starts(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """The parameters that say where operands start in their bindings."""
        return [0 if x.device.type == "cpu" else self._start_of(x) for x in tensors]

    def _float_bits(self, value: Any) -> Any:
        if isinstance(value, Size):
            value = value / 1
        return value if isinstance(value, Real) else float_bits(value)

    def _high_word(self, value: Any) -> Any:
        """Zero: expressions of sizes are checked to have no more than 31 bits."""
        if not isinstance(value, Size):
            return high_word(value)
        if value < 0:
            return -1
        return 0

    def _launcher(self, kernel: _C.CompiledKernel) -> Callable[..., None]:
        by_elements = functools.cache(kernel.by_elements)

        def launch(*arguments: Any) -> None:
            first = next(k for k, x in enumerate(arguments) if not isinstance(x, torch.Tensor))
            *integers, groups = arguments[first:]
            tensors = arguments[:first]
            starts = self._starts(tensors)
            # The kernel's text depends on whether it may move vectors.
            apart = tuple(
                k for k, start in enumerate(starts) if _may_be_unaligned(start, tensors[k].itemsize)
            )
            launched = by_elements(apart) if apart else kernel
            launched(*tensors, *map(self._at_most, integers), self._at_most(groups))
            if self._at_most(groups):
                words = (*integers, *starts)
                self.launches.append(Launch(kernel.name, words, groups))
            elif isinstance(groups, Size):
                raise RuntimeError(f"{kernel.name} has no workgroups for the largest sizes")

        return launch


class _Fixed:
    """What the code calls besides generated kernels: it is recorded as it runs, so that it may not
    get anything that depends on sizes."""

    def __init__(self, recorder: Recorder, name: str, value: Any) -> None:
        self._recorder, self._name, self._value = recorder, name, value

    def __getattr__(self, name: str) -> Any:
        return _fixed(self._recorder, f"{self._name}.{name}", getattr(self._value, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for part in pytree.tree_leaves((args, kwargs)):
            if isinstance(part, (Size, Real)) or (
                isinstance(part, torch.Tensor) and self._recorder._depends(part)
            ):
                raise RefusedError(self._name)
        if self._name.startswith("cpp_"):
            raise RefusedError(self._name)
        return self._value(*args, **kwargs)


# What cannot call anything. Inductor keeps functions in objects of classes of its own as well.
_PLAIN: tuple[type, ...] = (
    *(int, float, complex, str, bytes, tuple, type(None)),
    *(torch.Tensor, torch.dtype, torch.device, torch.layout, torch.memory_format),
)


def _real(value: Any) -> Any:
    return value / 1 if isinstance(value, Size) else torch.sym_float(value)


# Functions that the code calls by the names of modules, and that take sizes.
_OF_SIZES = {"torch.sym_float": _real}


def _fixed(recorder: Recorder, name: str, value: Any) -> Any:
    if name in _OF_SIZES:
        return _OF_SIZES[name]
    return value if isinstance(value, _PLAIN) else _Fixed(recorder, name, value)


def _assert_nothing(*_: Any) -> None:
    """Players check the inputs of a call."""


def _may_be_unaligned(start: Any, itemsize: int) -> bool:
    """Whether an operand that starts at an element which sizes decide may be unaligned for vectors.
    It is not, where each term of the expression is a multiple."""
    if not isinstance(start, Size):
        return False
    terms = sympy.Add.make_args(sympy.expand(start.expr * itemsize))
    return any(term.as_coeff_Mul()[0] % _VECTOR_BYTES != 0 for term in terms)


def _expr(value: Any) -> Any:
    return value.expr if isinstance(value, Size) else value
