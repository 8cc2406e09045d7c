"""A function as one graph for all sizes, compiled.

The function is run once on fake tensors, whose dynamic sizes have no value, so that nothing can
depend on one without an error: Python that compares sizes raises, wherever it stands. The whole of
it is traced, backward passes and optimizers included, and the compiler (torch_webgpu.inductor)
makes kernels whose parameters are computed from sizes.
"""

import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _foreach_utils
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torch_webgpu import wgsl
from torch_webgpu.export._composites import sized_composites
from torch_webgpu.export._decompositions import decompositions
from torch_webgpu.export._dimensions import Dimension, Shapes
from torch_webgpu.export._flows import Flow, of_graph, owners_of, written_by
from torch_webgpu.export._functions import SizedFunctions
from torch_webgpu.export._lines import Line, SizedError, current, innermost
from torch_webgpu.export._record import Recorder, RefusedError
from torch_webgpu.export._sizes import Symbols
from torch_webgpu.export._values import Values
from torch_webgpu.graphs import _format as form
from torch_webgpu.graphs._save import SizedShapes

Tensors = Mapping[str, torch.Tensor]
_T = TypeVar("_T")

_FRESH = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default)
_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
# In errors of what executes a graph.
_EXECUTED = "While executing %"
_SQUEEZES = ("aten.squeeze", "aten.squeeze_")


class Compiled(NamedTuple):
    """A function that is compiled for all sizes."""

    inputs: dict[str, torch.Tensor]  # as large as they get
    run: Callable[[Recorder], list[torch.Tensor]]  # during a capture
    symbols: Symbols
    outputs: list[str]
    shapes: SizedShapes
    flow: Flow


class _SameError(Exception):
    """Inferred dimensions have to be fixed, or the same: those to use instead."""

    def __init__(self, shapes: dict[str, dict[int, Dimension]]) -> None:
        super().__init__()
        self.shapes = shapes


def compiled(
    values: Values,
    function: Callable[..., Any],
    inputs: Tensors,
    shapes: Shapes,
    outputs_of: Callable[[object], dict[str, torch.Tensor]],
) -> Compiled:
    """Compiles a function whose inputs have the dimensions `shapes`.

    Raises RuntimeError for what depends on sizes otherwise than a file can state.
    """
    return _with_fitting(
        shapes, lambda s: _Trace(values, function, inputs, s, outputs_of).compiled()
    )


def flow_of(
    values: Values,
    function: Callable[..., Any],
    inputs: Tensors,
    shapes: Shapes,
    outputs_of: Callable[[object], dict[str, torch.Tensor]],
) -> Flow:
    """What the function reads and writes, without compiling it."""
    return _with_fitting(shapes, lambda s: _Trace(values, function, inputs, s, outputs_of).flow())


def _with_fitting(shapes: Shapes, make: Callable[[Shapes], _T]) -> _T:
    while True:
        try:
            return make(shapes)
        except _SameError as same:  # fewer dimensions than before
            shapes = same.shapes


class _Trace:
    def __init__(
        self,
        values: Values,
        function: Callable[..., Any],
        inputs: Tensors,
        shapes: Shapes,
        outputs_of: Callable[[object], dict[str, torch.Tensor]],
    ) -> None:
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self.values = values
        self.function = function
        self.outputs_of = outputs_of
        self.inputs = inputs
        self.shapes = shapes
        self.env = ShapeEnv(specialize_zero_one=False, duck_shape=False)
        self.mode = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        self.sizes: dict[str, torch.SymInt] = {}
        self.dimensions: dict[str, Dimension] = {}
        for shape in shapes.values():
            for dimension in shape.values():
                self._add(dimension)
        self.names = {size.node.expr: name for name, size in self.sizes.items()}
        ranges = {name: (d.min, d.max) for name, d in self.dimensions.items()}
        self.symbols = Symbols(self.names, ranges)

    def _add(self, dimension: Dimension) -> None:
        from torch.utils._sympy.value_ranges import ValueRanges

        if dimension.name in self.sizes:
            return
        with self.env.ignore_fresh_unbacked_symbols():
            size = self.env.create_unbacked_symint()
        self.env.var_to_range[size.node.expr] = ValueRanges(dimension.min, dimension.max)
        # What the compiler takes as the usual size where it chooses between kernels.
        self.env.var_to_hint_override[size.node.expr] = dimension.max
        self.sizes[dimension.name] = size
        self.dimensions[dimension.name] = dimension

    def flow(self) -> Flow:
        with torch._guards.tracing(torch._guards.TracingContext(self.mode)):
            graph, names, _ = self._traced()
            self._check_relations()
            return of_graph(self.values, graph.graph, self._lifted(graph), names, _line_of)

    def compiled(self) -> Compiled:
        with torch._guards.tracing(torch._guards.TracingContext(self.mode)):
            graph, names, shapes = self._traced()
            self._check_relations()
            constants = self._lifted(graph)
            flow = of_graph(self.values, graph.graph, constants, names, _line_of)
            call, inner = self._compiled(graph, constants)
        self._check_relations()
        symbols = self.symbols
        inputs = {
            name: torch.zeros(
                [
                    d.max if (d := self.shapes.get(name, {}).get(k)) else n
                    for k, n in enumerate(tensor.shape)
                ],
                dtype=tensor.dtype,
                device=tensor.device,
            )
            for name, tensor in self.inputs.items()
        }

        def run(recorder: Recorder) -> list[torch.Tensor]:
            sizes = [d.max for d in self.dimensions.values()]
            with inner.recorded_by(recorder), torch.no_grad():
                return list(call(*sizes, *inputs.values(), *constants))

        expressions = SizedShapes(
            {name: form.Dimension(min=d.min, max=d.max) for name, d in self.dimensions.items()},
            {
                name: [
                    d.name if (d := self.shapes.get(name, {}).get(k)) else n
                    for k, n in enumerate(tensor.shape)
                ]
                for name, tensor in self.inputs.items()
            },
            {
                name: _output_shape(name, shape, symbols)
                for name, shape in zip(names, shapes, strict=True)
            },
        )
        return Compiled(inputs, run, symbols, names, expressions, flow)

    # ---- The graph

    def _fakes(self) -> list[torch.Tensor]:
        with self.mode:
            return [
                torch.empty(
                    [
                        self.sizes[d.name] if (d := self.shapes.get(name, {}).get(k)) else n
                        for k, n in enumerate(tensor.shape)
                    ],
                    dtype=tensor.dtype,
                    device=tensor.device,
                )
                for name, tensor in self.inputs.items()
            ]

    def _traced(self) -> tuple[fx.GraphModule, list[str], list[list[Any]]]:
        from torch._dispatch.python import enable_python_dispatcher
        from torch.fx.experimental.proxy_tensor import make_fx
        from torch.nn.attention import SDPBackend, sdpa_kernel

        self.fakes = self._fakes()
        self.outside = _Outside(self.mode)
        self.functions = SizedFunctions()
        names: list[str] = []
        shapes: list[list[Any]] = []

        def traced(*given: Any) -> list[torch.Tensor]:
            inputs = dict(zip(self.inputs, given[len(self.sizes) :], strict=True))
            with self.outside, self.functions:
                outputs = self.outputs_of(self.function(**inputs))
            names[:] = outputs
            shapes[:] = [[_expr(n) for n in value.shape] for value in outputs.values()]
            # Memory of their own, which no input shares. The compiler lays out tensors of several
            # dimensions as it likes.
            return [value.detach().reshape(-1).clone() for value in outputs.values()]

        trace = make_fx(traced, decompositions(), _allow_non_fake_inputs=True)
        with (
            fx.traceback.preserve_node_meta(),
            self.mode,
            enable_python_dispatcher(),
            sized_composites(),
            # Of attention only this form consists of what the compiler makes kernels of.
            sdpa_kernel(SDPBackend.MATH),
            # The engine's own threads would not see the modes.
            torch.autograd.set_multithreading_enabled(False),
            _compiling(),
            _quiet(),
            self._explained(),
        ):
            graph = trace(*self.sizes.values(), *self.fakes)
        for node in graph.graph.nodes:
            if node.meta.get("unbacked_bindings"):
                raise SizedError(f"{_name_of(node)} makes sizes or numbers of data", _line_of(node))
            self._check_squeezed(node)
        _reshape_views(graph)
        return graph, names, shapes

    def _check_squeezed(self, node: fx.Node) -> None:
        """Raises for a squeeze of what may have size 1: it is traced as if it had not."""
        if _name_of(node) not in _SQUEEZES:
            return
        x: Any = node.args[0]
        shape = x.meta["val"].shape
        dims = node.args[1] if len(node.args) > 1 else range(len(shape))
        for d in dims if isinstance(dims, (list, tuple, range)) else [dims]:
            size = _expr(shape[d]) if shape else 1
            if isinstance(size, int):
                continue
            bounds = self.env.bound_sympy(size)
            if bounds.lower <= 1 <= bounds.upper:
                raise SizedError(
                    f"{_name_of(node)} removes a dimension of {self._text(size)} elements if that "
                    "is 1",
                    _line_of(node),
                )

    def _compiled(
        self, graph: fx.GraphModule, constants: Sequence[Any]
    ) -> tuple[Callable[..., Any], "_Inner"]:
        from torch._inductor import compile_fx, config
        from torch.nn.attention import SDPBackend, sdpa_kernel

        from torch_webgpu.inductor.sized_products import sized_products

        fakes = [
            self.mode.from_tensor(x, static_shapes=True) if isinstance(x, torch.Tensor) else x
            for x in constants
        ]
        inner = _Inner(self.names)
        with (
            # Kernels whose operands fit every browser.
            wgsl.target("browser"),
            sized_products(),
            torch.no_grad(),
            config.patch(
                {
                    # The key of the compiler's cache does not tell these kernels from others.
                    "fx_graph_cache": False,
                    "fx_graph_remote_cache": False,
                    # It needs a number for each size, for tiles that kernels here do not have.
                    "triton.coalesce_tiling_analysis": False,
                    # It asks of each constant whether it is contiguous, which some sizes decide.
                    "joint_graph_constant_folding": False,
                }
            ),
            # The compiler finds attention in its parts, and would make it whole again.
            sdpa_kernel(SDPBackend.MATH),
            _quiet(),
            self._explained(),
        ):
            call = compile_fx.compile_fx(
                graph, [*self.sizes.values(), *self.fakes, *fakes], inner_compile=inner.compile
            )
        return call, inner

    def _lifted(self, module: fx.GraphModule) -> list[torch.Tensor]:
        """Makes the tensors that the function found outside of its inputs further inputs."""
        graph = module.graph
        last = graph.find_nodes(op="placeholder")[-1]
        found: dict[int, fx.Node] = {}
        constants: list[torch.Tensor] = []
        for node in graph.find_nodes(op="get_attr"):
            value = getattr(module, str(node.target))
            if not isinstance(value, torch.Tensor):
                continue
            tensor = self.outside.tensors.get(str(node.target), value)
            if tensor.device.type == "cpu" and tensor.numel() == 1 and value is tensor:
                with graph.inserting_before(node):
                    number = graph.call_function(
                        torch.ops.aten.full.default,
                        (list(tensor.shape), tensor.item()),
                        {"dtype": tensor.dtype, "device": tensor.device},
                    )
                node.replace_all_uses_with(number)
            else:
                if id(tensor) not in found:
                    with graph.inserting_after(last):
                        last = found[id(tensor)] = graph.placeholder(f"constant_{len(constants)}")
                    constants.append(tensor)
                node.replace_all_uses_with(found[id(tensor)])
            graph.erase_node(node)
        module.recompile()
        return constants

    # ---- Errors

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Has errors name operators, and dimensions in place of the compiler's symbols."""
        from torch._inductor.exc import InductorError
        from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

        try:
            yield
        except (GuardOnDataDependentSymNode, InductorError, ValueError) as error:
            found = str(error)
            if isinstance(error, ValueError) and _EXECUTED not in found:
                raise  # of the user's function
            operator, line = _operator_in(found), _line_in(found)
            asked = _cause(error, GuardOnDataDependentSymNode)
            if asked is None:
                text = self._text(found.partition("\n")[0])
                raise SizedError(f"{operator}: {text}" if operator else text, line) from error
            refused = self.functions.refused
            if refused is not None and refused[0] is asked:
                operator = refused[1]
            text = (
                f"{operator or 'what is done'} depends on {self._text(asked.cond)}, which is not "
                "the same for all sizes"
            )
            if getattr(asked.cond, "free_symbols", set()) - self.names.keys():
                text = f"{operator or 'what is done'} reads on the host what a tensor holds"
            if line is not None:
                raise SizedError(text, line) from error
            raise RuntimeError(text).with_traceback(error.__traceback__) from error

    def _text(self, text: object) -> str:
        found = str(text)
        for symbol, name in self.names.items():
            found = re.sub(rf"\b{symbol}\b", name, found)
        return found

    def _check_relations(self) -> None:
        """Raises for what was found to hold for some sizes only."""
        relations: list[tuple[Any, Any]] = [
            (sympy.Eq(symbol, value, evaluate=False), None)
            for symbol, value in self.env.replacements.items()
            if symbol in self.names
        ]
        relations += [
            (one.expr, one.stack)
            for asserts in self.env.deferred_runtime_asserts.values()
            for one in asserts
        ]
        relations += [(guard.expr, None) for guard in self.env.guards]
        for relation, stack in relations:
            if self.symbols.always(relation):
                continue
            equal = self._equal(relation)
            if equal is None or not self.dimensions[equal[0]].is_inferred:
                hint = "" if equal is None else ": state that in dynamic_shapes"
                line = None
                if stack is not None:
                    line = innermost(Line(f.filename, f.lineno or 0) for f in stack.summary())
                raise SizedError(f"what is done needs {self._text(relation)}{hint}", line)
            raise _SameError(self._replaced(*equal))
        for symbol, name in self.names.items():
            bounds = self.env.var_to_range[symbol]
            wanted = self.dimensions[name]
            if bounds.lower > wanted.min or bounds.upper < wanted.max:
                raise SizedError(
                    f"the size {name!r} can be {bounds.lower} to {bounds.upper} only, and "
                    f"dynamic_shapes says {wanted.min} to {wanted.max}"
                )

    def _equal(self, relation: Any) -> tuple[str, str | int] | None:
        """A size that has to be fixed, or to be another one, and that. An inferred one if there is
        one."""
        if not isinstance(relation, sympy.Eq):
            return None
        sides = sorted(
            (self.names.get(side, side) for side in relation.args),
            key=lambda side: not (side in self.dimensions and self.dimensions[side].is_inferred),
        )
        if not isinstance(sides[0], str):
            sides.reverse()
        first, other = sides
        if not isinstance(first, str):
            return None
        if isinstance(other, str):
            return first, other
        return (first, int(other)) if other.is_Integer else None

    def _replaced(self, name: str, other: str | int) -> dict[str, dict[int, Dimension]]:
        """The dimensions with a fixed size, or with another one, in place of one."""
        found: dict[str, dict[int, Dimension]] = {}
        for label, shape in self.shapes.items():
            for k, dimension in shape.items():
                if dimension.name != name or isinstance(other, str):
                    kept = dimension.name if dimension.name != name else str(other)
                    found.setdefault(label, {})[k] = self.dimensions[kept]
                elif self.inputs[label].shape[k] != other:
                    raise SizedError(
                        f"dimension {k} of {label!r} has to be {other}, and the example has "
                        f"{self.inputs[label].shape[k]}"
                    )
        return found


def _output_shape(name: str, shape: Sequence[Any], symbols: Symbols) -> list[form.Expression]:
    try:
        return [symbols.count(n) for n in shape]
    except RuntimeError as error:
        raise SizedError(f"the shape of the output {name!r}: {error}") from error


def _reshape_views(module: fx.GraphModule) -> None:
    """Has views become copies where they have to: the compiler lays out some tensors otherwise than
    the trace did, such as those that cat() makes, and a view need not exist there.

    Where an operator changes the memory of a view in place, that stays a view."""
    owners = owners_of(module.graph)
    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    changed = {owners.get(x, x) for node in nodes for x in written_by(node)}
    for node in nodes:
        if node.target in _VIEWS and owners.get(node) not in changed:
            node.target = torch.ops.aten.reshape.default
    module.recompile()


class _Inner:
    """What the compiler compiled, the function's one graph."""

    def __init__(self, names: Mapping[sympy.Symbol, str]) -> None:
        self.names = names
        self.graph: fx.GraphModule | None = None
        self.code: Any = None
        self.call: Any = None

    def compile(self, graph: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx_inner

        if self.graph is not None:
            raise RuntimeError("the function became several graphs")
        self.graph = graph
        self.sizes = [
            _shape(node.meta.get("val")) for node in graph.graph.find_nodes(op="placeholder")
        ]
        self.nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
        self.code = compile_fx_inner(graph, inputs, **options)
        self.call = self.code.current_callable
        return self.code

    @contextlib.contextmanager
    def recorded_by(self, recorder: Recorder) -> Iterator[None]:
        """In the block, a call of the function is recorded."""

        def record(arguments: list[Any]) -> Any:
            return recorder.run(self.call, arguments, self.sizes)

        self.code.current_callable = record
        try:
            yield
        except RefusedError as error:
            raise self._explained(error.operator) from error
        finally:
            self.code.current_callable = self.call

    def _explained(self, operator: str) -> SizedError:
        """The error for an operator that depends on sizes, with the line that called it."""
        # As in torch.ops.aten.sort.stable, aten.cumsum and extern_kernels.mm.
        words = [word for word in operator.split(".") if word not in ("torch", "ops")]
        name = ".".join(["aten" if words[0] == "extern_kernels" else words[0], *words[1:2]])
        text = f"{name} depends on sizes that a call decides, and its kernels are chosen by size"
        for node in self.nodes:
            # The code may have the form that changes a tensor in place.
            is_named = _name_of(node).rstrip("_") == name.rstrip("_")
            if is_named and any(isinstance(n, torch.SymInt) for n in _sizes_of(node)):
                return SizedError(text, _line_of(node))
        return SizedError(text)


def _name_of(node: fx.Node) -> str:
    return str(getattr(node.target, "overloadpacket", node.target))


def _sizes_of(node: fx.Node) -> list[Any]:
    values = [each.meta.get("val") for each in (node, *node.all_input_nodes)]
    tensors = [
        x for value in values for x in (value if isinstance(value, (list, tuple)) else [value])
    ]
    return [n for x in tensors if isinstance(x, torch.Tensor) for n in x.shape]


def _line_of(node: fx.Node) -> Line | None:
    return _line_in(node.meta.get("stack_trace") or "")


def _line_in(text: str) -> Line | None:
    """The user's line in a text with a traceback."""
    entries = re.findall(r'File "(.*?)", line (\d+),', text)
    return innermost(Line(file, int(number)) for file, number in entries)


def _operator_in(text: str) -> str | None:
    """The operator in an error of the compiler's, or of what executes a graph."""
    found = re.search(r"(?:^  target: |\[target=torch\.ops\.)([\w.]+)", text, re.MULTILINE)
    return None if found is None else ".".join(found[1].split(".")[:2])


def _cause(error: BaseException | None, kind: type) -> Any:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def _shape(value: Any) -> Any:
    """Of a tensor its shape, of an integer its expression."""
    if isinstance(value, torch.Tensor):
        return [_expr(n) for n in value.shape]
    return _expr(value)


def _expr(value: Any) -> Any:
    return value.node.expr if isinstance(value, torch.SymInt) else value


@contextlib.contextmanager
def _compiling() -> Iterator[None]:
    """Has optimizers take the forms that they have for compilers, and Python know of one. Functions
    of lists of tensors take the forms for a real list, whether it has fake ones or real ones."""
    before, types = torch.compiler._is_compiling_flag, _foreach_utils._foreach_supported_types
    torch.compiler._is_compiling_flag = True
    types.append(FakeTensor)
    try:
        yield
    finally:
        types.remove(FakeTensor)
        torch.compiler._is_compiling_flag = before


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the logs of PyTorch's that have what the error says, and a traceback or a graph."""

    def is_other(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(_LOGGED)

    logs = [logging.getLogger(f"torch.{name}") for name in _LOGGERS]
    for log in logs:
        log.addFilter(is_other)
    try:
        yield
    finally:
        for log in logs:
            log.removeFilter(is_other)


_LOGGERS = ("_subclasses.fake_tensor", "_inductor.scheduler")
_LOGGED = ("failed while attempting to run meta", "Error in codegen")


class _Outside(TorchDispatchMode):
    """Replaces the tensors that a function finds outside of its inputs, such as parameters, by fake
    ones: operators would compute with them, and change them, where no other operand is fake. And
    gives each node the line that called the operator."""

    supports_higher_order_operators = True

    def __init__(self, mode: Any) -> None:
        super().__init__()
        self.mode = mode
        self.fakes: dict[int, torch.Tensor] = {}  # by the identity of a tensor
        self.tensors: dict[str, torch.Tensor] = {}  # by the attribute of the graph

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        _note_line()
        if func in _FRESH:  # a tensor that Python makes of numbers
            return func(*args, **(kwargs or {}))
        real: dict[int, torch.Tensor] = {}  # by the identity of the fake one

        def fake(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
                return value
            found = self._fake(value)
            real[id(found)] = value
            return found

        args, kwargs = pytree.tree_map(fake, (args, kwargs or {}))
        results = func(*args, **kwargs)
        # What changes a tensor in place returns it.
        return pytree.tree_map(lambda value: real.get(id(value), value), results)

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        from torch.fx.experimental.proxy_tensor import get_proxy_mode, track_tensor_tree

        if id(tensor) not in self.fakes:
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
                raise RuntimeError(
                    f"a {type(tensor).__name__} cannot be part of a function with dynamic sizes"
                )
            proxies = get_proxy_mode()
            assert proxies is not None
            tracer = proxies.tracer
            fake = self.mode.from_tensor(tensor, static_shapes=True)
            node: Any = tracer.create_arg(tensor)
            track_tensor_tree(fake, fx.Proxy(node, tracer), constant=None, tracer=tracer)
            self.fakes[id(tensor)] = fake
            self.tensors[str(node.target)] = tensor
        return self.fakes[id(tensor)]


def _note_line() -> None:
    entries = [
        f'  File "{line.file}", line {line.number}, in {name}\n    {line.code}\n'
        for line, name in current()
    ]
    if entries:
        fx.traceback.set_stack_trace(entries)
