"""max_autotune: the kernels that can compute a product or a convolution, timed on the device.

Inductor has a list of choices for each, times them once for each case, and remembers the
times on disk. To that list, which holds eager mode's operator alone, each kernel is added that
takes the product (csrc/ops/matmul, `kStrategies`). The choice stands in the generated code, hence
in Inductor's cache of it. It never decides what is right: at a call that its kernel does not take,
such as of an operand that is not aligned, another kernel computes the product.
"""

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch._inductor import config, lowering
from torch._inductor.select_algorithm import (
    ExternKernelCaller,
    ExternKernelChoice,
    add_preprocessing_fn,
)

from torch_webgpu import _C, _torch_versions, webgpu
from torch_webgpu.graphs import Graph, graph
from torch_webgpu.inductor.lanes import size_hint

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# Eager operators by their names in Inductor; whether they add a first operand to the product.
OPERATORS = {"mm": False, "bmm": False, "addmm": True, "baddbmm": True, "convolution": False}
_GEOMETRY = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")

# Another kernel than eager mode's must be faster by more than what times differ by chance.
_MARGIN = 1.03
# Milliseconds that a measurement takes at least, unless so many launches take less.
_LONG_ENOUGH = 10
_MOST_LAUNCHES = 50
_MEASUREMENTS = 3


class Product(NamedTuple):
    """What a call of Inductor's ``extern_kernels`` computes."""

    operator: str
    strategy: str  # empty: the one that eager mode takes

    @property
    def adds(self) -> bool:
        """Its first operand to the product of the others."""
        return OPERATORS[self.operator]

    @property
    def index_of_added(self) -> int | None:
        """Which of its inputs it adds to the product, if there is one."""
        return 2 if self.is_convolution else 0 if self.adds else None

    @property
    def is_convolution(self) -> bool:
        return self.operator == "convolution"


_choices: dict[tuple[str, str], ExternKernelChoice] = {}  # by operator and strategy
_products = {f"extern_kernels.{operator}": Product(operator, "") for operator in OPERATORS}


def product_of(kernel_name: str | None) -> Product | None:
    """The product that a node calls by this name; None if it is none."""
    return _products.get(kernel_name or "")


def geometry_of(kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The geometry among a convolution's arguments. None if it is not all numbers."""
    given = {name: kwargs[name] for name in _GEOMETRY}
    lists = {
        name: tuple(value) for name, value in given.items() if isinstance(value, (tuple, list))
    }
    is_known = all(isinstance(n, int) for values in lists.values() for n in values)
    return {**given, **lists} if is_known else None


def install() -> None:
    """Adds the kernels to Inductor's ``extern_kernels``, and its choices of products."""
    for operator, adds in OPERATORS.items():
        for strategy in _strategies():
            call = _Convolution(strategy) if operator == "convolution" else _Call(adds, strategy)
            choice = ExternKernelChoice(call, name=_name(operator, strategy))
            choice.ordered_kwargs_for_cpp_kernel = ()
            _choices[operator, strategy] = choice
            _products[choice.call_name()] = Product(operator, strategy)
    add_preprocessing_fn(_with_strategies)
    for operator in OPERATORS:
        op = getattr(torch.ops.aten, operator).default
        lowering.lowerings[op] = _chosen_when_lowered(lowering.lowerings[op])


def _chosen_when_lowered(original: Callable[..., Any]) -> Callable[..., Any]:
    """Inductor would choose when it fuses, among Triton's templates with what follows. And it would
    time a second form of addmm, which is for cublasLt, by CUDA's clock."""
    options = _torch_versions.known_options(
        "benchmark_epilogue_fusion",
        "pipeline_max_autotune_gemm",
        "triton.autotune_cublasLt",
    )
    patches = dict.fromkeys(options, False)
    from torch_webgpu.inductor import sized_products  # which imports this module

    def lowered(a: Any, *args: Any, **kwargs: Any) -> Any:
        if sized_products.is_active() and a.get_device().type == "webgpu":
            with sized_products.lowered_convolution():
                return original(a, *args, **kwargs)
        if not _tunes() or a.get_device().type != "webgpu":
            return original(a, *args, **kwargs)
        with config.patch(patches):
            return original(a, *args, **kwargs)

    return lowered


def _tunes() -> bool:
    return bool(config.max_autotune or config.max_autotune_gemm)


def _strategies() -> list[str]:
    return [name for name, *_ in _C._product_strategies()]


def _name(operator: str, strategy: str) -> str:
    return f"webgpu_{operator}_{strategy}"


class _Call:
    """An operator with ``out=``, computed by one kernel."""

    def __init__(self, adds: bool, strategy: str) -> None:
        self.strategy = strategy
        self.product = _C.FusedProduct("result.value = value + e;" if adds else "", strategy)

    def __call__(self, *inputs: torch.Tensor, out: torch.Tensor) -> None:
        *added, a, b = inputs
        self.product(out, a, b, *added)


class _Convolution:
    """A convolution with ``out=``, computed by one kernel."""

    def __init__(self, strategy: str) -> None:
        self.strategy = strategy
        self.of_geometry = functools.cache(self._of_geometry)

    def _of_geometry(self, *geometry: Any) -> Any:
        named = dict(zip(_GEOMETRY, geometry, strict=True))
        return _C.FusedConvolution("", self.strategy, **named)

    def __call__(self, *inputs: torch.Tensor, out: torch.Tensor, **kwargs: Any) -> None:
        geometry = geometry_of(kwargs)
        assert geometry is not None
        self.of_geometry(*geometry.values())(out, *inputs)


def _with_strategies(choices: list[Any]) -> list[Any]:
    """Inductor's choices, and for a product the kernels that take it. Nothing is timed while a
    graph is captured, because it would be recorded, nor by other processes."""
    eager = next((choice for choice in choices if _is_product(choice)), None)
    if eager is None or not _tunes() or _C.is_capturing() or config.autotune_in_subproc:
        return choices
    operator, nodes = eager.choice.name, eager.input_nodes
    geometry = geometry_of(eager.kwargs) if operator == "convolution" else None
    factors = nodes[-2:] if geometry is None else nodes[:2]
    tensors = [_meta(node) for node in (eager.layout, *factors)]
    if any(tensor.numel() == 0 for tensor in tensors):
        return choices

    def is_taken_by(strategy: str) -> bool:
        if geometry is None:
            return _C.FusedProduct("", strategy).accepts(*tensors)
        return _C.FusedConvolution("", strategy, **geometry).accepts(*tensors)

    has_out = eager.has_out_variant
    timed = [_Timed(eager.choice, nodes, eager.layout, eager.kwargs, has_out_variant=has_out)]
    for strategy in filter(is_taken_by, _strategies()):
        choice = _choices[operator, strategy]
        timed.append(_Timed(choice, nodes, eager.layout, geometry or {}))
    return [*timed, *(choice for choice in choices if choice is not eager)]


def _is_product(choice: Any) -> bool:
    return (
        isinstance(choice, ExternKernelCaller)
        and choice.choice.name in OPERATORS
        and choice.layout.device.type == "webgpu"
        and all(node.get_dtype() == choice.layout.dtype for node in choice.input_nodes)
        and choice.layout.dtype in DTYPES
        and (
            geometry_of(choice.kwargs) is not None
            if choice.choice.name == "convolution"
            else all(factor == 1 for factor in choice.kwargs.values())  # alpha and beta
        )
    )


def _meta(node: Any) -> torch.Tensor:
    """A tensor without memory that lies as the node, or as the layout."""
    layout = node.get_layout() if hasattr(node, "get_layout") else node
    size, stride = ([size_hint(n) for n in each] for each in (layout.size, layout.stride))
    base = torch.empty_strided(size, stride, dtype=layout.dtype, device="meta")
    return base.as_strided(size, stride, size_hint(layout.offset))


class _Timed(ExternKernelCaller):
    """A choice that is timed as dispatches of a graph, because Inductor times as CUDA needs it."""

    def benchmark(self, *args: torch.Tensor, out: torch.Tensor) -> float:
        """Milliseconds."""
        given = {"out": out} if self.has_out_variant else {}
        took = _milliseconds(functools.partial(self.to_callable(), *args, **given))
        return took if self.choice.name in OPERATORS else took * _MARGIN

    def hash_key(self) -> str:
        """Inductor's key of the time on disk, which knows no adapter."""
        return f"{super().hash_key()}-{_version()}"


def _milliseconds(launch: Callable[[], Any]) -> float:
    def milliseconds(run: Callable[[], Any]) -> float:
        webgpu.synchronize()
        begin = time.perf_counter()
        run()
        webgpu.synchronize()
        return (time.perf_counter() - begin) * 1e3

    launch()  # builds its pipelines
    one = milliseconds(launch)
    launches = min(int(_LONG_ENOUGH / max(one, 1e-3)), _MOST_LAUNCHES)
    if launches < 2:
        return one
    several = Graph()
    with graph(several):
        for _ in range(launches):
            launch()
    several.replay()
    return min(milliseconds(several.replay) for _ in range(_MEASUREMENTS)) / launches


@functools.cache
def _version() -> str:
    from torch_webgpu.inductor.registration import version_of_generated_code

    properties = webgpu.get_device_properties()
    return f"{properties.name}-{version_of_generated_code()}"
