"""All that differs between the versions of PyTorch that this package works with.

No other module asks which version there is, or what it has: `tests/tools/test_torch_versions.py`.
`csrc/backend/torch_versions.h` is the same for C++. Inductor's modules are imported where they are
asked about, because most programs compile nothing.
"""

import inspect
import pathlib
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

_PACKAGE = pathlib.Path(__file__).parent


# ---- The version that the extension was built for ----


def built_for() -> str | None:
    """The torch version the extension was built for, as its CMake package states it."""
    config = _PACKAGE / "share" / "cmake" / "TorchWebGPU" / "TorchWebGPUConfig.cmake"
    try:
        text = config.read_text(encoding="utf-8")
    except OSError:
        return None
    # Not by a regular expression, which takes longer to compile than the file to read.
    _, _, rest = text.partition('set(TorchWebGPU_TORCH_VERSION "')
    return rest.partition('"')[0] or None


def check_built_for() -> None:
    """Raises RuntimeError if another version is installed.

    Before the extension is loaded: PyTorch's C++ interface changes with every minor version, so a
    mismatch shows as an undefined symbol at best and as a crash at worst.
    """
    wanted = built_for()
    if wanted is not None and _minor_version(wanted) != _minor_version(torch.__version__):
        raise RuntimeError(
            f"torch_webgpu was built for torch {wanted}, but torch {torch.__version__} is "
            f"installed. Install the matching torch, or rebuild torch_webgpu."
        )


def _minor_version(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


# ---- Operators and functions ----


def adagrad_takes_rate() -> bool:
    """Whether the fused Adagrad takes a learning rate that lies on the device: since torch 2.12."""
    return "tensor_lr" in torch.ops.aten._fused_adagrad_.overloads()


def has_varlen_out(varlen: types.ModuleType) -> bool:
    """Whether ``torch.nn.attention.varlen`` has `varlen_attn_out`: not in the oldest version."""
    return hasattr(varlen, "varlen_attn_out")


def without_new_arguments(
    named: dict[str, Any], original: Callable[..., Any], ours: Callable[..., Any]
) -> dict[str, Any]:
    """The arguments of PyTorch's function that ours takes, which is written for older versions.

    Raises NotImplementedError for one of a newer version that has not its default.
    """
    defaults = inspect.signature(original).parameters
    known = inspect.signature(ours).parameters.keys()
    for name in named.keys() - known:
        if named[name] is not defaults[name].default:
            raise NotImplementedError(f"{original.__name__} with `{name}` has no webgpu kernel")
    return {name: value for name, value in named.items() if name in known}


# ---- Dynamo ----


def listed_in(table: Mapping[Any, Any], rules: Mapping[Any, Any]) -> dict[Any, Any]:
    """The rules for operators that this version's table of fake results lists."""
    return {op: rule for op, rule in rules.items() if op in table}


def keeps_groups_of_optimizers(optimizer: types.ModuleType) -> bool:
    """Whether Dynamo makes an optimizer capturable only while its state is made, so that the
    program's own groups stay as they are: since torch 2.15."""
    return hasattr(optimizer.OptimizerVariable, "_safe_to_set_capturable")


def bounds_saturate() -> bool:
    """Whether a bound of clamp that does not fit an integer type is the nearest number that does:
    since torch 2.15. Before, it raises."""
    return _minor_version(torch.__version__) >= (2, 15)


# ---- Inductor ----


def prepare_device_op_overrides(common: types.ModuleType) -> None:
    """Has Inductor list its own devices, which torch 2.11 does in an empty table only."""
    common.get_device_op_overrides("cpu")


def asks_is_gpu(module: types.ModuleType) -> bool:
    """Whether this version's module of Inductor asks `utils.is_gpu`."""
    return hasattr(module, "is_gpu")


def nodes_have_tiling(scheduler: types.ModuleType) -> bool:
    """Whether nodes of the scheduler say how they are tiled: since torch 2.14."""
    return hasattr(scheduler.BaseSchedulerNode, "get_tiling")


def arguments_of(function: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments by name. Some of Inductor's functions have become static methods, or methods."""
    return inspect.signature(function).bind(*args, **kwargs).arguments


def layout_operators() -> tuple[Any, ...]:
    """The operators for which Inductor may choose channels last. Torch 2.15 asks about both."""
    aten = torch.ops.aten
    return aten.convolution.default, aten.convolution_backward.default


def indices_are_apart() -> bool:
    """Whether an index expression is never a value, which must not be cut to 32 bits: since torch
    2.13."""
    from torch._inductor.ops_handler import OpsHandler

    return hasattr(OpsHandler, "value_expr")


def known_options(*names: str) -> tuple[str, ...]:
    """Those of Inductor's options that this version has."""
    from torch._inductor import config

    return tuple(name for name in names if hasattr(config, name))


def known_methods(
    owner: object, functions: Mapping[str, Callable[..., Any]]
) -> dict[str, Callable[..., Any]]:
    """Those of the functions that stand for methods which `owner`'s class has in this version."""
    return {name: function for name, function in functions.items() if hasattr(owner, name)}


# What the code asserts of its inputs, which players check of theirs. The second since torch 2.15.
ASSERTIONS = ("assert_size_stride", "assert_size_stride_grouped", "assert_alignment")


def optimization_hint(sizes: Any) -> Callable[..., Any]:
    """What guesses a size, of a graph's sizes: `size_hint` before there was `optimization_hint`."""
    return getattr(sizes, "optimization_hint", None) or sizes.size_hint
