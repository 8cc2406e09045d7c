"""Lightning, both Trainer and Fabric: `accelerator="webgpu"`, with every precision that it has.

The accelerator ``webgpu`` and the strategy ``single_webgpu`` are registered as Lightning provides
for. Its connectors know by name which accelerators are none of the CPU's, so they are told too.
"""

import importlib
import types
from typing import Any

import torch

from torch_webgpu import webgpu
from torch_webgpu.integrations import _choice, _patching


class _Accelerator:
    """What Lightning asks of an accelerator.

    Mixed with the class `Accelerator` of the Trainer or of Fabric.
    """

    def setup_device(self, device: torch.device) -> None:
        if device.type != "webgpu":
            raise ValueError(f"Device should be webgpu, got {device} instead.")
        webgpu.set_device(device)

    def teardown(self) -> None:
        webgpu.empty_cache()

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        """Bytes and counts of the memory pool, see ``torch.webgpu.memory_stats``."""
        return dict(webgpu.memory_stats(device))

    @staticmethod
    def parse_devices(devices: Any) -> list[int]:
        """Indices, of a number of devices, a list, or text such as ``"0"``; -1 is all."""
        count = webgpu.device_count()
        if isinstance(devices, str):
            devices = int(devices) if devices == "-1" else [int(i) for i in devices.split(",") if i]
        if isinstance(devices, int):
            devices = list(range(count if devices == -1 else devices))
        wrong = [index for index in devices if not 0 <= index < count]
        if wrong:
            raise ValueError(f"there is no device webgpu:{wrong[0]}; there are {count}")
        return list(devices)

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        return [torch.device("webgpu", index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        return min(webgpu.device_count(), 1)  # a process uses one; several are to be asked for

    @staticmethod
    def is_available() -> bool:
        return webgpu.is_available()

    @staticmethod
    def name() -> str:
        return "webgpu"


def _register(package: str) -> tuple[type, type]:
    """Registers accelerator and strategy with a package of Lightning; returns both."""
    accelerators: Any = importlib.import_module(f"{package}.accelerators")
    strategies: Any = importlib.import_module(f"{package}.strategies")
    if hasattr(accelerators, "AcceleratorRegistry"):
        registry, known_strategies = accelerators.AcceleratorRegistry, strategies.StrategyRegistry
    else:  # Fabric
        registry, known_strategies = accelerators.ACCELERATOR_REGISTRY, strategies.STRATEGY_REGISTRY
    accelerator = type("WebGPUAccelerator", (_Accelerator, accelerators.Accelerator), {})

    class SingleWebGPUStrategy(strategies.SingleDeviceStrategy):  # type: ignore[misc]
        """One process on one device."""

        strategy_name = "single_webgpu"

        def __init__(self, device: Any = "webgpu:0", accelerator: Any = None, **kwargs: Any):
            super().__init__(device=device, accelerator=accelerator, **kwargs)

    registry.register("webgpu", accelerator, description="WebGPU", override=True)
    known_strategies.register(
        "single_webgpu", SingleWebGPUStrategy, description="WebGPU, one process", override=True
    )
    return accelerator, SingleWebGPUStrategy


def _adapt_connector(connector: Any, package: str) -> None:
    accelerator, strategy = _register(package)

    def is_ours(self: Any) -> bool:
        flag = self._accelerator_flag
        return flag == "webgpu" or isinstance(flag, accelerator)

    def make_strategy(choose_strategy: Any) -> Any:
        def choose(self: Any) -> Any:
            devices = self._parallel_devices
            if not is_ours(self) or self._num_nodes_flag != 1 or len(devices) > 1:
                return choose_strategy(self)
            if devices and devices[0].index:
                return strategy(device=devices[0])
            return "single_webgpu"

        return choose

    def make_check(check_strategy: Any) -> Any:
        def check(self: Any) -> None:
            chosen = self._strategy_flag
            # The names of FSDP, and of its variants, begin so.
            if is_ours(self) and (
                "FSDP" in type(chosen).__name__ or str(chosen).startswith("fsdp")
            ):
                raise ValueError(
                    "The strategy `fsdp` is made for CUDA and is not supported with "
                    "`accelerator='webgpu'`. `strategy='ddp'` keeps the whole model in each "
                    "process, and `ModelParallelStrategy` shards one with PyTorch's `fully_shard`."
                )
            check_strategy(self)

        return check

    def make_precision(check_and_init_precision: Any) -> Any:
        def check(self: Any) -> Any:
            # The list of devices with mixed precision holds names; the flag may be an object.
            given = self._accelerator_flag
            if is_ours(self):
                self._accelerator_flag = "webgpu"
            try:
                return check_and_init_precision(self)
            finally:
                self._accelerator_flag = given

        return check

    def make_auto(choose_auto: Any) -> Any:
        def choose() -> str:
            name = str(choose_auto())
            if name == "cpu" and _choice.chosen_or_told("lightning", package):
                return "webgpu"
            return name

        return choose

    def make_gpu(choose_gpu: Any) -> Any:
        def choose() -> str:
            try:
                return str(choose_gpu())
            except Exception:
                if _choice.chosen("lightning"):  # the program asks for a GPU, and this is one
                    return "webgpu"
                raise

        return choose

    _patching.extend_constant(connector._check_and_init_precision, {"cpu", "mps"}, "webgpu")
    _patching.replace_method(connector, "_check_strategy_and_fallback", make_check)
    _patching.replace_method(connector, "_check_and_init_precision", make_precision)
    _patching.replace_method(connector, "_choose_strategy", make_strategy)
    _patching.replace_method(connector, "_choose_auto_accelerator", make_auto)
    _patching.replace_method(connector, "_choose_gpu_accelerator_backend", make_gpu)


def adapt_trainer_connector(module: types.ModuleType) -> None:
    """What `Trainer(accelerator=, devices=, strategy=, precision=)` mean."""
    _adapt_connector(module._AcceleratorConnector, module.__name__.split(".trainer.")[0])


def adapt_fabric_connector(module: types.ModuleType) -> None:
    """What the same arguments of `Fabric` mean."""
    _adapt_connector(module._Connector, module.__name__.rpartition(".")[0])


def adapt_trainer_ddp(ddp: types.ModuleType) -> None:
    """`Trainer(devices=2)`, and `strategy="ddp"` with its variants."""
    _adapt_ddp(ddp, "_setup_model")

    def make_hooks(register_ddp_hooks: Any) -> Any:
        def register(self: Any) -> None:
            if self.root_device.type != "webgpu":
                register_ddp_hooks(self)
                return
            ddp._register_ddp_comm_hook(
                model=self.model,
                ddp_comm_state=self._ddp_comm_state,
                ddp_comm_hook=self._ddp_comm_hook,
                ddp_comm_wrapper=self._ddp_comm_wrapper,
            )

        return register

    _patching.replace_method(ddp.DDPStrategy, "_register_ddp_hooks", make_hooks)


def adapt_fabric_ddp(ddp: types.ModuleType) -> None:
    """The same arguments of `Fabric`."""
    _adapt_ddp(ddp, "setup_module")


def _adapt_ddp(ddp: Any, name: str) -> None:
    """The method that wraps a model does so in a stream of CUDA, whatever the device is."""

    def make(wrap: Any) -> Any:
        def wrap_own(self: Any, module: Any) -> Any:
            device = self.root_device
            if device.type != "webgpu":
                return wrap(self, module)
            return ddp.DistributedDataParallel(
                module=module, device_ids=[device.index], **self._ddp_kwargs
            )

        return wrap_own

    _patching.replace_method(ddp.DDPStrategy, name, make)


def adapt_distributed(distributed: types.ModuleType) -> None:
    """`ModelParallelStrategy`, whose groups are parts of the group of all processes.

    That a group belongs to a device tells PyTorch that it can be split, as those of NCCL can.
    """

    def make(init_dist_connection: Any) -> Any:
        def initialize(*args: Any, **kwargs: Any) -> None:
            device = kwargs.get("device_id")
            if device is not None and device.type == "webgpu":
                del kwargs["device_id"]
            init_dist_connection(*args, **kwargs)

        return initialize

    _patching.replace(distributed, "_init_dist_connection", make)


def adapt_trainer_setup(setup: types.ModuleType) -> None:
    """The Trainer's lines about the GPU, which say that none is there."""

    def make(log_device_info: Any) -> Any:
        def log(trainer: Any) -> None:
            if isinstance(trainer.accelerator, _Accelerator):
                name = webgpu.get_device_name()
                setup.rank_zero_info(f"GPU available: True (webgpu: {name}), used: True")
            else:
                log_device_info(trainer)

        return log

    _patching.replace(setup, "_log_device_info", make)
