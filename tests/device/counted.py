"""What a block of code costs in commands and allocations."""

import torch


class Counted:
    """Differences of torch.webgpu.stats() and of the allocation count over a block."""

    def __enter__(self):
        self._before = self._read()
        return self

    def __exit__(self, *exception):
        after = self._read()
        for name, value in after.items():
            setattr(self, name, value - self._before[name])

    @staticmethod
    def _read() -> dict[str, int]:
        allocations = torch.webgpu.memory_stats()["allocation.all.allocated"]
        return {**torch.webgpu.stats(), "allocations": allocations}
