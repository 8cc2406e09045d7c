"""Makes a program step by step, running it on the CPU. The device has no say in it, so that a seed
gives the same program wherever it runs."""

import re

import torch

from . import known, ops
from .model import Model

# The CPU has no kernel for it: there is nothing to compare with.
NO_REFERENCE = re.compile(
    r"not implemented for|not supported|NYI|unsupported|Unsupported|only support|only works|"
    r"expected .* to be|must be float|does not have a derivative|not yet implemented|"
    r"does not support|is not implemented"
)


class Generator:
    """Yields (step, the error that the CPU raises or None)."""

    def __init__(self, seed):
        self.model = Model(seed)
        self.makers, self.weights = ops.load()

    def next(self):
        model = self.model
        forgotten = model.forget()
        if forgotten:
            error = run_step(forgotten, model.names)
            return forgotten, error
        while True:
            make = model.random.choices(self.makers, cum_weights=self.weights)[0]
            before = model.made, set(model.hosts)
            step = make(model)
            if step is None or known.left_out(step):
                model.made, model.hosts = before
                continue
            error = run_step(step, model.names)
            if error is not None:
                model.hosts = before[1]
                if has_no_reference(error):
                    model.made = before[0]
                    continue
            else:
                model.keep(step)
            return step, error


def run_step(step, names):
    """The exception that it raises; what it bound is undone then."""
    try:
        exec(step.code, names)
    except Exception as error:
        for name in step.made:
            names.pop(name, None)
        error.__traceback__ = None  # holds the tensors of every frame
        return error
    return None


def has_no_reference(error):
    if isinstance(error, NotImplementedError):
        return True
    return isinstance(error, (RuntimeError, TypeError)) and bool(NO_REFERENCE.search(str(error)))


def program(seed, length):
    """The whole of it, without a device."""
    torch.manual_seed(0)
    generator = Generator(seed)
    return [generator.next()[0] for _ in range(length)]
