"""Records what PyTorch makes of unusual arguments: web/tests/files/torch/edges-SEED-COUNT.json.

Each operator of record.py is called with samples of op_db of which one argument is another one:
dimensions beyond the tensor, sizes that are negative or no whole numbers, NaN, words that mean
nothing, tensors of other dtypes, shapes and values, arguments that are missing. The record has the
results, with gradients, or that PyTorch refuses the call. TORCH_EDGES is how many calls of an
operator are kept, TORCH_EDGES_SEED chooses others.
"""

import json
import multiprocessing
import os
import random
import sys
import warnings

import torch
from record import OPS, OUT, Left, arguments, encoded, name_of, record, swapped
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import SampleInput

# How many calls of an operator are kept.
MOST = int(os.environ.get("TORCH_EDGES", "40"))
SEED = int(os.environ.get("TORCH_EDGES_SEED", "0"))
INF = float("inf")
SAMPLES = {torch.float32: 6, torch.int64: 3, torch.bool: 1}
MISSING = object()


def tensors_like(t):
    """The tensor with other dtypes, shapes and values."""
    for dtype in (torch.float32, torch.float16, torch.int32, torch.int64, torch.bool):
        if dtype != t.dtype:
            yield t.detach().to(dtype)
    plain = t.detach()
    yield plain.unsqueeze(0)
    yield torch.cat([plain, plain]) if t.dim() > 0 else plain.reshape(1).expand(2)
    if t.dim() > 0:
        yield plain.narrow(0, 0, 0)
        yield plain.narrow(-1, 0, t.shape[-1] // 2)
        yield plain.reshape(-1)
        yield plain.transpose(0, -1)
        yield plain.new_zeros(()) if t.numel() == 0 else plain.reshape(-1)[0]
        yield plain.narrow(0, 0, min(t.shape[0], 1))
    values = []
    if t.is_floating_point():
        values = [float("nan"), INF, -INF, 0.0, -0.0, -1.5, 1e30, 1e-40]
    elif t.dtype != torch.bool:
        values = [0, -1, 7, 2**31 - 1, -(2**31)]
    for value in values:
        if t.numel() > 0:
            other = plain.clone(memory_format=torch.contiguous_format)
            other.view(-1)[0] = value
            yield other


def others(value):
    """What may stand in the place of a value."""
    if isinstance(value, torch.Tensor):
        for other in tensors_like(value):
            yield other.requires_grad_(value.requires_grad and other.is_floating_point())
        yield 2
        yield MISSING
    elif isinstance(value, bool):
        yield MISSING
    elif isinstance(value, int):
        yield from (0, 1, -1, 2, 3, -2, 7, -7, 1.5, -0.5, 2**40, INF, float("nan"), [], [1, 1])
        yield MISSING
    elif isinstance(value, float):
        yield from (0, 1, -1, 0.25, -2.5, 2**40, 1e39, -1e39, INF, -INF, float("nan"), MISSING)
    elif isinstance(value, str):
        yield from ("", "bogus", 1, MISSING)
    elif isinstance(value, list | tuple):
        items = list(value)
        yield []
        yield MISSING
        if items:
            yield items[:-1]
            yield [*items, items[-1]]
            for k in sorted({0, len(items) - 1}):
                for other in others(items[k]):
                    if other is not MISSING:
                        yield [*items[:k], other, *items[k + 1 :]]
    elif isinstance(value, torch.dtype):
        yield from (torch.float16, torch.int64, torch.bool)


def mutants(sample):
    """The sample with another value in one place."""
    for other in others(sample.input):
        if other is not MISSING:
            yield changed(sample, input=other)
    for k, value in enumerate(sample.args):
        for other in others(value):
            if other is not MISSING:
                args = (*sample.args[:k], other, *sample.args[k + 1 :])
                yield changed(sample, args=args)
            elif k == len(sample.args) - 1 and not sample.kwargs:
                yield changed(sample, args=sample.args[:k])
    for name, value in sample.kwargs.items():
        for other in others(value):
            rest = {key: one for key, one in sample.kwargs.items() if key != name}
            if other is not MISSING:
                rest[name] = other
            yield changed(sample, kwargs=rest)


def changed(sample, **other):
    parts = {"input": sample.input, "args": sample.args, "kwargs": sample.kwargs, **other}
    return SampleInput(parts["input"], args=tuple(parts["args"]), kwargs=dict(parts["kwargs"]))


# What the CPU lacks says nothing about the call.
ABSENT = ("not implemented for", "not supported for", "expected scalar type", "Boolean alpha only")


def outcome(op, sample, gradient, generator):
    """The entry of a call, or None for one that says nothing."""
    try:
        op(sample.input, *sample.args, **sample.kwargs)
    except NotImplementedError:
        return None
    except Exception as error:
        if any(text in str(error) for text in ABSENT):
            return None
        positional, options = arguments(op, sample)
        first, rest = swapped(op, sample.input, positional)
        return {
            "input": encoded(first),
            "args": encoded(rest),
            "options": {k: encoded(v) for k, v in options.items() if v is not None},
            "outputs": [],
            "raises": f"{type(error).__name__}: {str(error).splitlines()[0]}"[:300],
        }
    try:
        return record(op, sample, gradient, generator)
    except RuntimeError:
        return record(op, sample, False, generator)


def elements(sample):
    tensors = [sample.input, *sample.args, *sample.kwargs.values()]
    return sum(t.numel() for t in tensors if isinstance(t, torch.Tensor))


def calls(op, pipe, first):
    """Sends the calls of an operator, without the first ones."""
    rng = random.Random(f"{SEED} {name_of(op)}")
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    made = 0
    for dtype, most in SAMPLES.items():
        if not op.supports_dtype(dtype, "cpu"):
            continue
        gradient = dtype == torch.float32 and op.supports_autograd
        given = [
            sample
            for sample in op.sample_inputs("cpu", dtype, requires_grad=gradient)
            if sample.kwargs.get("return_indices") is not True and elements(sample) < 300
        ]
        for sample in rng.sample(given, min(most, len(given))):
            for mutant in mutants(sample):
                made += 1
                if made <= first:
                    continue
                try:
                    entry = outcome(op, mutant, gradient, generator)
                except (Left, RuntimeError, TypeError, ValueError, AttributeError, IndexError):
                    entry = None
                pipe.send(entry)


def apart(op):
    """The calls of an operator, in a process of its own: PyTorch may crash; the next goes on."""
    entries, made = {}, 0
    while True:
        here, there = multiprocessing.Pipe(False)
        process = multiprocessing.Process(target=calls, args=(op, there, made))
        process.start()
        there.close()
        try:
            while True:
                entry = here.recv()
                made += 1
                if entry is not None:
                    key = json.dumps([entry[k] for k in ("input", "args", "options")])
                    entries.setdefault(key, entry)
        except EOFError:
            process.join()
        if process.exitcode == 0:
            kept = list(entries.values())
            return random.Random(name_of(op)).sample(kept, min(MOST, len(kept)))
        if process.exitcode > 0:
            raise RuntimeError(name_of(op))
        print(f"{name_of(op)}: call {made} crashes", file=sys.stderr)
        made += 1


def main():
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    result, found = [], set()
    with open(OUT / "ops.json") as file:
        names = {one["op"]: one["name"] for one in json.load(file)}
    for op in op_db:
        line = name_of(op)
        if line in OPS and line not in found:
            found.add(line)
            result.append({"op": line, "name": names[line], "samples": apart(op)})
    result.sort(key=lambda one: one["op"])
    (OUT / f"edges-{SEED}-{MOST}.json").write_text(json.dumps(result, separators=(",", ":")))
    print(sum(len(one["samples"]) for one in result), "calls", file=sys.stderr)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    main()
