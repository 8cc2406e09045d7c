"""A small operator database for test_conformance.py: entries that misbehave, and true ones."""

import os
import signal
import time

import torch
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.opinfo.core import OpInfo, SampleInput


def on_device_only(misbehave):
    def op(x):
        return misbehave(x) if x.device.type == "webgpu" else x.clone()

    return op


def hang(x):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as a hang in a driver would
    time.sleep(3600)


def lose_device(x):
    from tests.conformance import cells

    cells.device_works = lambda: False
    raise RuntimeError("device lost")


def refuse(x):
    raise ValueError("not on the CPU")


def samples(info, device, dtype, requires_grad, **kwargs):
    yield SampleInput(torch.full((3,), 2**40).to(device=device, dtype=dtype))


def fake(name, op, dtypes):
    return OpInfo(
        name,
        op=op,
        dtypes=dtypes,
        sample_inputs_func=samples,
        supports_autograd=False,
        supports_out=False,
    )


op_db = [
    fake("fake.dies", on_device_only(lambda x: os.abort()), {torch.float32}),
    fake("fake.hangs", on_device_only(hang), {torch.float32}),
    fake("fake.loses_device", on_device_only(lose_device), {torch.float32}),
    fake("fake.inexact", on_device_only(lambda x: x + 1), {torch.int64}),
    fake("fake.<no reference>", refuse, {torch.float32}),
    *(
        op
        for op in common_methods_invocations.op_db
        if op.formatted_name in ("hypot", "bitwise_not", "linalg_eigvals")
    ),
]
