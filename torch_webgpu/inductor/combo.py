"""Several independent kernels in one dispatch, such as the parameter updates of an optimizer.

They share their arguments; each gets some of the workgroups.
"""

from torch._inductor.codegen.common import KernelArgs
from torch._inductor.virtualized import V

from torch_webgpu.inductor.kernel import WgslKernel, launch
from torch_webgpu.inductor.module import Module


class ComboKernel:
    """What scheduling asks of a kernel, for several."""

    prefix = "combo"

    def __init__(self) -> None:
        self.args = KernelArgs()
        self.module = Module()
        self.parts: list[WgslKernel] = []

    def add(self, kernel: WgslKernel) -> WgslKernel:
        """Makes the kernel a part, before its code is generated."""
        kernel.args = self.args
        kernel.module = self.module
        kernel.part = len(self.parts)
        kernel.is_part_of_combo = True
        self.parts.append(kernel)
        return kernel

    def codegen_kernel(self) -> str:
        functions = []
        main = ["var rest = group;"]
        integers = []
        for part in self.parts:
            with V.set_kernel_handler(part):
                functions.append(part.function())
            groups = f"groups_{part.part}"
            integers += [part.numel_name, groups]
            main.append(f"if (rest < params.{groups}) {{ part_{part.part}(rest, lid); return; }}")
            main.append(f"rest -= params.{groups};")
        first = self.parts[0]
        self.module.integers = integers + first.size_names()
        self.module.operands = first.operands()
        self.module.lanes = max(part.lanes for part in self.parts)
        return self.module.text(functions, main[:-1])

    def call_kernel(self, name: str) -> None:
        first = self.parts[0]
        tensors, sizes = first.call_arguments()
        integers = []
        for part in self.parts:
            integers += [first.pexpr(part.x_numel()), first.pexpr(part.groups())]
        total = sum(part.groups() for part in self.parts)
        launch(name, tensors, [*integers, *sizes, first.pexpr(total)])
