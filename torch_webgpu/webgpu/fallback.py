"""Which ops ran on the CPU for want of a WebGPU kernel."""

from torch_webgpu import _C


def fallbacks() -> dict[str, int]:
    """How often each op ran on the CPU since the start or the last `reset_fallbacks`."""
    return dict(_C.fallback_counts())


def reset_fallbacks() -> None:
    """Sets the counts of `fallbacks` to zero. Warnings already given are not repeated."""
    _C.reset_fallback_counts()


def get_fallback_mode() -> str:
    """``"warn"``, ``"error"`` or ``"silent"``; see `set_fallback_mode`."""
    return _C.fallback_mode()


def set_fallback_mode(mode: str) -> None:
    """What happens when an op has no kernel.

    ``"warn"``: it runs on the CPU, with one warning per op. ``"silent"``: without the warning.
    ``"error"``: NotImplementedError. It starts as TORCH_WEBGPU_FALLBACK says, by default as
    ``"warn"``. Raises ValueError for another mode.
    """
    _C.set_fallback_mode(mode)
