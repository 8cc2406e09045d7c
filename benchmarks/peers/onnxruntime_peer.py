"""ONNX Runtime's WebGPU execution provider, with inputs and outputs bound on the device."""

import importlib.util
import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..registry import Skip, WrongResult
from .base import Peer, Unavailable
from .torch_peer import TorchOps

PROVIDER = "WebGpuExecutionProvider"
DEVICE = "webgpu"
OPSET = 17


class GraphOps(TorchOps):
    """PyTorch's operators while their graph is exported."""

    def add_(self, *_):
        raise Skip("an ONNX graph has no in-place operators")

    def copy(self, *_):
        raise Skip("the runtime removes Identity")


class _Function(torch.nn.Module):
    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(GraphOps(), *inputs)


@dataclass(frozen=True)
class Handle:
    """An input, known by its value on the host, or the bound output of a session."""

    host: np.ndarray | None = None
    output: Any = None


class OnnxRuntimePeer(Peer):
    no_transfers = "its Python API has no device tensors of their own"

    def __init__(self) -> None:
        missing = [m for m in ("onnxruntime", "onnx") if importlib.util.find_spec(m) is None]
        if missing:
            raise Unavailable(f"no module {' and no module '.join(missing)}")
        import onnxruntime

        self.runtime = onnxruntime
        if PROVIDER not in onnxruntime.get_available_providers():
            raise Unavailable(f"onnxruntime {onnxruntime.__version__} has no {PROVIDER}")
        # Work of all sessions goes to one queue in order, so a readback behind it waits for all.
        self._fence = self.compile(
            lambda ops, x: x + x, [Handle(np.zeros(1, np.float32))], stepwise=False
        )

    def describe(self) -> str:
        return f"onnxruntime {self.runtime.__version__}, {PROVIDER}"

    def _session(self, function: Callable, inputs: Sequence[np.ndarray]):
        names = [f"input{i}" for i in range(len(inputs))]
        model = io.BytesIO()
        with warnings.catch_warnings():
            # The exporter that needs no further packages announces its successor at every call.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                _Function(function),
                tuple(torch.from_numpy(x) for x in inputs),
                model,
                dynamo=False,
                opset_version=OPSET,
                input_names=names,
                output_names=["output"],
            )
        options = self.runtime.SessionOptions()
        options.log_severity_level = 3
        # Fail rather than let the CPU provider take an operator.
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        return self.runtime.InferenceSession(model.getvalue(), options, providers=[PROVIDER]), names

    def array(self, value: np.ndarray, dtype: str = "") -> Handle:
        return Handle(self.in_dtype(value, dtype))

    def to_numpy(self, handle: Handle) -> np.ndarray:
        return handle.output.copy_outputs_to_cpu()[0]

    def compile(
        self, function: Callable, handles: Sequence[Handle], *, stepwise: bool
    ) -> Callable[[], Handle]:
        inputs = [handle.host for handle in handles]
        session, names = self._session(function, inputs)
        binding = session.io_binding()
        for name, value in zip(names, inputs, strict=True):
            # Copies to the device now, not at each run.
            binding.bind_cpu_input(name, value)
        binding.bind_output("output", DEVICE)

        def run() -> Handle:
            session.run_with_iobinding(binding)
            return Handle(output=binding)

        return run

    def synchronize(self) -> None:
        # The binding's own synchronize_outputs() returns before the device has finished.
        self.to_numpy(self._fence())

    def require_on_device(self, handle: Handle) -> None:
        # WebGPU buffers call themselves by the kind of their device, "cuda" or "gpu".
        if handle.output.get_outputs()[0].device_name() == "cpu":
            raise WrongResult("the output is in host memory")
