"""The systems that are compared. Each is made in a process of its own, by name."""

from collections.abc import Callable

from .base import Peer


def _torch(device: str) -> Callable[[], Peer]:
    def make() -> Peer:
        from .torch_peer import TorchPeer

        return TorchPeer(device)

    return make


def _onnxruntime() -> Peer:
    from .onnxruntime_peer import OnnxRuntimePeer

    return OnnxRuntimePeer()


def _tinygrad() -> Peer:
    from .tinygrad_peer import TinygradPeer

    return TinygradPeer()


# In the order of the columns.
PEERS: dict[str, Callable[[], Peer]] = {
    "webgpu": _torch("webgpu"),
    "cuda": _torch("cuda"),
    "cpu": _torch("cpu"),
    "onnxruntime": _onnxruntime,
    "tinygrad": _tinygrad,
}
