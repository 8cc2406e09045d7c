"""Writes random programs of operators and what PyTorch computes, as programs.json in
web/tests/files/torch.

A program is a list of steps [name, operands, options]; operands are numbers of earlier values. Its
value is the sum over its last values, whose gradients it also asks for.
"""

import json
import pathlib
import random

import torch

OUT = pathlib.Path(__file__).parents[1] / "files" / "torch"
PROGRAMS = 200
STEPS = 8
UNARY = ["sin", "cos", "tanh", "sigmoid", "abs", "neg", "exp", "relu", "square", "atan", "erf"]
BINARY = ["add", "sub", "mul", "maximum", "minimum", "atan2", "hypot"]
REDUCTIONS = ["sum", "mean", "amax", "logsumexp", "std"]


def fits(a, b):
    try:
        torch.broadcast_shapes(a.shape, b.shape)
    except RuntimeError:
        return False
    return True


def step(rng, values):
    """A step whose operands exist, and its result."""
    a = rng.randrange(len(values))
    x = values[a]
    kind = rng.choice(
        ["unary", "unary", "binary", "binary", "reduce", "move", "matmul", "index", "norm"]
    )
    if kind == "binary":
        others = [k for k, y in enumerate(values) if fits(x, y)]
        b = rng.choice(others)
        name = rng.choice(BINARY)
        return [name, [a, b], []], getattr(torch, name)(x, values[b])
    if kind == "reduce" and x.dim() > 0:
        name = rng.choice(REDUCTIONS)
        dim = rng.randrange(x.dim())
        if name == "std" and x.shape[dim] < 2:
            return None
        if name == "std":
            return [name, [a], [dim]], x.std(dim)
        return [name, [a], [dim, True]], getattr(torch, name)(x, dim, True)
    if kind == "move" and x.dim() > 1:
        name = rng.choice(
            ["transpose", "flip", "roll", "narrow", "unsqueeze", "cumsum", "tril", "repeat"]
        )
        d = rng.randrange(x.dim())
        arguments = {
            "transpose": [d, rng.randrange(x.dim())],
            "flip": [[d]],
            "roll": [rng.randrange(-3, 4), d],
            "narrow": [d, rng.randrange(x.shape[d]), 1],
            "unsqueeze": [rng.randrange(x.dim() + 1)],
            "cumsum": [d],
            "tril": [rng.randrange(-1, 2)],
            "repeat": [[1] * (x.dim() - 1) + [2]],
        }[name]
        if x.dim() > 3 or x.numel() > 200:
            return None
        spread = [*arguments[0]] if name in ("flip", "repeat") else arguments
        return [name, [a], arguments], getattr(x, name)(*spread)
    if kind == "matmul":
        others = [
            k
            for k, y in enumerate(values)
            if x.dim() == 2 and y.dim() == 2 and x.shape[1] == y.shape[0]
        ]
        if others:
            b = rng.choice(others)
            return ["matmul", [a, b], []], x @ values[b]
    if kind == "index" and x.dim() > 0:
        d = rng.randrange(x.dim())
        places = [rng.randrange(x.shape[d]) for _ in range(3)]
        return ["index_select", [a], [d, {"long": places}]], x.index_select(d, torch.tensor(places))
    if kind == "norm" and x.dim() > 0:
        name = rng.choice(["softmax", "log_softmax"])
        d = rng.randrange(x.dim())
        return [name, [a], [d]], getattr(torch, name)(x, d)
    name = rng.choice(UNARY)
    return [name, [a], []], getattr(torch, name)(x)


def main():
    rng = random.Random(0)
    torch.manual_seed(0)
    programs = []
    while len(programs) < PROGRAMS:
        shapes = [[3, 4], [4, 3], [3, 1], [4], [2, 3, 4]]
        # Multiples of 1/8: exact in both places.
        inputs = [
            (torch.randn(shape) * 8).round().div(8).double().requires_grad_() for shape in shapes
        ]
        values, steps = list(inputs), []
        while len(steps) < STEPS:
            made = step(rng, values)
            if made is not None:
                steps.append(made[0])
                values.append(made[1])
        last = values[-3:]
        total = sum(value.tanh().sum() for value in last)
        gradients = torch.autograd.grad(total, inputs, allow_unused=True)
        results = [total, *last, *[g for g in gradients if g is not None]]
        # Values that float32 cannot carry through the program are no test of it.
        if not all(torch.isfinite(r).all() and r.abs().max() < 1e4 for r in results):
            continue
        programs.append(
            {
                "inputs": [t.tolist() for t in inputs],
                "steps": steps,
                "last": [t.tolist() for t in last],
                "total": total.item(),
                "gradients": [None if g is None else g.tolist() for g in gradients],
            }
        )
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "programs.json").write_text(json.dumps(programs))


if __name__ == "__main__":
    main()
