"""The Python module that launches a graph's kernels."""

from typing import Any

import torch
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen

from torch_webgpu import _C


class _CallsKernels(PythonWrapperCodegen):
    """A kernel is a callable: kernel(tensors..., integers..., workgroups)."""

    def _generate_kernel_call_helper(
        self,
        kernel_name: str,
        call_args: Any,
        *,
        device: Any = None,
        triton: bool = True,
        **kwargs: Any,
    ) -> None:
        if device is not None and device.type == "webgpu" and not triton:
            self.writeline(self.wrap_kernel_call(kernel_name, call_args))
            return
        super()._generate_kernel_call_helper(
            kernel_name, call_args, device=device, triton=triton, **kwargs
        )

    def make_allocation(self, name: str, device: torch.device, *args: Any, **kwargs: Any) -> str:
        """Where there are several devices, the buffer's is named: no guard makes it current."""
        line: str = super().make_allocation(name, device, *args, **kwargs)
        if device.type != "webgpu" or _C.device_count() == 1:
            return line
        index = device.index or 0
        # Code is made for the limits and the features of webgpu:0.
        if index and _C.adapter(index) != _C.adapter(0):
            raise NotImplementedError(
                f"torch.compile makes kernels for webgpu:0, {_C.adapter(0)['name']}; "
                f"webgpu:{index} is another adapter, {_C.adapter(index)['name']}. "
                "TORCH_WEBGPU_ADAPTER chooses which is the first."
            )
        return line.replace("device='webgpu'", f"device='webgpu:{index}'")


class WgslWrapper(_CallsKernels):
    """Inductor's wrapper with an import."""

    @staticmethod
    def create(
        is_subgraph: bool,
        subgraph_name: str | None,
        parent_wrapper: Any,
        partition_signatures: Any = None,
    ) -> PythonWrapperCodegen:
        if is_subgraph:
            return WgslSubgraphWrapper(subgraph_name, parent_wrapper, partition_signatures)
        return WgslWrapper()

    def write_header(self) -> None:
        super().write_header()
        self.imports.writeline(
            "from torch_webgpu.inductor.runtime import float_bits, fused_convolution, "
            "fused_product, high_word, low_word, wgsl_kernel"
        )


class WgslSubgraphWrapper(_CallsKernels, SubgraphPythonWrapperCodegen):
    """The wrapper of a graph within a graph, such as the body of a loop."""
