import types


class NotRegisteredError(RuntimeError, AttributeError):
    """Raised by what is used of ``torch.webgpu`` before the device is registered.

    Also an AttributeError, so that `hasattr(torch.webgpu, name)` is False.
    """


class Placeholder(types.ModuleType):
    """``torch.webgpu`` while the device is not registered: each attribute raises and says why."""

    def __init__(self, reason: str) -> None:
        super().__init__("torch.webgpu", self.__doc__)
        self.__dict__["_reason"] = reason

    def __getattr__(self, name: str) -> object:
        raise NotRegisteredError(
            f"torch.webgpu.{name}: device 'webgpu' is not registered with PyTorch, because "
            f"{self._reason}. `import torch_webgpu` registers it in this process, "
            f"TORCH_WEBGPU_AUTOLOAD=1 in every process."
        )
