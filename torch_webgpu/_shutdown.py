"""Brings autograd's device threads to rest before Python finalizes.

Such a thread takes the GIL when it starts, which happens at the first backward() on any device, and
when it drops Python objects after a backward(). A thread that asks for the GIL of a finalizing
interpreter is ended in the middle of a C++ frame, and that aborts the process.
"""

import atexit
import contextlib

from torch_webgpu import _C


def install() -> None:
    atexit.register(_shut_down)


def _shut_down() -> None:
    # Nobody is left to handle an error. A forked child gets one, since it has neither the threads
    # nor the device of its parent.
    with contextlib.suppress(RuntimeError):
        _C.drain_autograd()
        _C.synchronize_all()
