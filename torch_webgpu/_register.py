"""Loads the extension module and makes the device known to PyTorch."""

import atexit
import functools
import importlib
import inspect
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import backend_registration

from torch_webgpu import _import_hook, _torch_versions

# Every module that is imported here costs `import torch` a quarter of a millisecond, so what can be
# imported later is.

_done = bool(globals().get("_done"))  # reloaded, the module keeps its names

#: The name of the device's backend for ``init_process_group``.
PROCESS_GROUP = "webgpu_gloo"


def register_or_warn() -> None:
    """Registers once. A failure becomes a warning: an exception here would break `import torch`."""
    global _done
    if _done:
        return
    _done = True
    try:
        _torch_versions.check_built_for()
        _check_device_slot()
        _register()
    except Exception as error:
        warnings.warn(f"device 'webgpu' is not available: {error}", RuntimeWarning, stacklevel=2)


def _check_device_slot() -> None:
    # PyTorch has one slot for devices from outside. The extension claims it while it is loaded,
    # where a refusal could only end the process.
    holder = torch._C._get_privateuse1_backend_name()
    if holder not in ("privateuseone", "webgpu"):
        raise RuntimeError(
            f"PyTorch takes one out-of-tree device, and {holder!r} is registered already. "
            f"TORCH_DEVICE_BACKEND_AUTOLOAD=0 and an explicit import choose between them."
        )


def _register() -> None:
    try:
        extension = importlib.import_module("torch_webgpu._C")
    except ImportError as error:
        raise RuntimeError(
            f"the extension module of torch_webgpu could not be loaded with torch "
            f"{torch.__version__} (built for torch "
            f"{_torch_versions.built_for() or 'an unknown version'}): {error}"
        ) from error

    backend_registration.rename_privateuse1_backend("webgpu")
    from torch_webgpu import webgpu

    vars(torch).pop("webgpu", None)  # the placeholder of torch_webgpu_autoload
    torch._register_device_module("webgpu", webgpu)
    for name, real in webgpu.MODULES_IMPORTED_LATER.items():
        _import_hook.alias(f"torch.webgpu.{name}", real)
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)

    from torch_webgpu import _dlpack, _printing, _sharing, _shutdown
    from torch_webgpu.integrations import _imports

    _let_autocast_pass_higher_order_operators()
    _register_kernels_before_those_of_programs(extension)
    _dlpack.install()
    _printing.install()
    _sharing.install()
    _shutdown.install()
    _imports.install_chosen()
    if extension.has_distributed:
        _import_hook.when_imported("torch.distributed.distributed_c10d", _register_process_group)
    _import_hook.when_imported("torch.utils.collect_env", _extend_collect_env)
    for module, (own, function) in _WHEN_IMPORTED.items():
        _import_hook.when_imported(module, _import_hook.later(own, function))


# Which function of ours gets a module of PyTorch when it is imported; ours is imported then.
_WHEN_IMPORTED = {
    "torch._dynamo.device_interface": ("torch_webgpu.inductor.registration", "register_interface"),
    "torch._dynamo.trace_rules": ("torch_webgpu.inductor.registration", "keep_out_of_traces"),
    "torch._dynamo.variables.optimizer": (
        "torch_webgpu.inductor.registration",
        "prepare_optimizers",
    ),
    "torch._inductor.codegen.common": (
        "torch_webgpu.inductor.registration",
        "register_code_generator",
    ),
    "torch._inductor.compile_fx": ("torch_webgpu.inductor.registration", "prepare_inductor"),
    "torch.nn.attention.flex_attention": (
        "torch_webgpu.inductor.registration",
        "extend_flex_attention",
    ),
    "torch.nn.attention.varlen": ("torch_webgpu._ragged_attention", "adapt_varlen"),
    "torch.nested._internal.sdpa": ("torch_webgpu._ragged_attention", "adapt_sdpa"),
}


def _register_kernels_before_those_of_programs(extension: Any) -> None:
    """Has a program's kernels for the device replace those of this package until they are taken
    back, as what is registered later does. Ours are registered when the device is first used."""
    library: Any = torch.library.Library

    def after_ours(name: str) -> None:
        register = getattr(library, name)

        @functools.wraps(register)
        def register_after_ours(self: Any, *arguments: Any, **options: Any) -> Any:
            named = (self.dispatch_key, *arguments, *options.values())
            if any(isinstance(key, str) and key.endswith("PrivateUse1") for key in named):
                extension.register_operators()
            return register(self, *arguments, **options)

        setattr(library, name, register_after_ours)

    after_ours("impl")
    after_ours("fallback")


def _let_autocast_pass_higher_order_operators() -> None:
    """PyTorch lists the keys of autocast that operators such as ``torch.cond`` take no notice of,
    and devices from outside are not on the list."""
    ops: Any = torch._ops
    key = torch._C._dispatch_key_parse("AutocastPrivateUse1")
    keys = ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS
    if key not in keys:
        keys.append(key)
        for operator in ops._higher_order_ops.values():
            operator.fallthrough(key)


def _register_process_group(c10d: Any) -> None:
    """Makes the backend known to torch.distributed, which `import torch` imports.

    What it needs is imported when a group is made.
    """

    def create(*arguments: Any) -> object:
        from torch_webgpu import distributed

        return distributed._create(c10d, *arguments)

    c10d.Backend.register_backend(
        PROCESS_GROUP, create, extended_api=True, devices=["cpu", "webgpu"]
    )
    initialize = c10d.BackendConfig.__init__

    @functools.wraps(initialize)
    def initialize_config(self: Any, backend: str) -> None:
        initialize(self, backend)
        from torch_webgpu import distributed

        distributed._add_to_gloo(c10d, self, backend)

    c10d.BackendConfig.__init__ = initialize_config
    _let_barriers_be_of_the_cpu(c10d)
    _prepare_splits(c10d)


def _let_barriers_be_of_the_cpu(c10d: Any) -> None:
    """`barrier(device_ids=[rank])`, which libraries call on the CPU too.

    PyTorch takes the number for an index of its accelerator. A program that computes on the CPU
    would start webgpu for it, or be told that there is no such device.
    """
    barrier = c10d.barrier
    signature = inspect.signature(barrier)

    @functools.wraps(barrier)
    def barrier_of_the_cpu(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options).arguments
        if isinstance(given.get("device_ids"), list) and _has_gloo_beside_webgpu(
            given.get("group")
        ):
            given["device_ids"] = None
        return barrier(**given)

    def _has_gloo_beside_webgpu(group: Any) -> bool:
        if torch._C._get_accelerator().type != "webgpu" or not c10d.is_initialized():
            return False
        return c10d._get_object_coll_device(group) == "cpu"

    # A Gloo that serves the CPU has all processes of the group wait, whatever they compute on.
    _replace_in_distributed(c10d, "barrier", barrier_of_the_cpu)


def _prepare_splits(c10d: Any) -> None:
    """Has our module look at a group before `split_group` does."""
    split = c10d.split_group
    signature = inspect.signature(split)

    @functools.wraps(split)
    def prepared_split(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options).arguments
        parent = given.get("parent_pg") or c10d.group.WORLD
        known = parent in c10d._world.pg_group_ranks
        if known and PROCESS_GROUP in c10d.get_backend_config(parent):
            from torch_webgpu import distributed

            distributed._prepare_split(c10d, parent)
        return split(*arguments, **options)

    _replace_in_distributed(c10d, "split_group", prepared_split)


def _replace_in_distributed(c10d: Any, name: str, replacement: Any) -> None:
    """Replaces a function, also in modules that have imported it by its name."""
    original = getattr(c10d, name)
    setattr(c10d, name, replacement)
    for user in ("torch.distributed", "torch.distributed.device_mesh"):
        module = sys.modules.get(user)
        if getattr(module, name, None) is original:
            setattr(module, name, replacement)


def _extend_collect_env(module: types.ModuleType) -> None:
    """The report of torch.utils.collect_env ends with the adapters. Asks for them only then."""

    def summary() -> str:
        from torch_webgpu import _environment

        return _environment.summary()

    pretty = module.get_pretty_env_info
    module.get_pretty_env_info = lambda: f"{pretty()}\n\n{summary()}"  # type: ignore[attr-defined]
    # `python -m torch.utils.collect_env` runs functions of its own.
    _import_hook.when_run(module.__name__, lambda: _print_at_exit(summary))


def _print_at_exit(text: Callable[[], str]) -> None:
    atexit.register(lambda: print(f"\n{text()}"))
