"""Makes a program step by step, running it on the CPU. The device has no say in it, so that a seed
gives the same program wherever it runs."""

import re
from dataclasses import replace

import torch

from . import known, ops
from .model import Model, same_storage
from .program import Step

# The CPU has no kernel for it: there is nothing to compare with. (In PyTorch 2.11 a RuntimeError.)
NO_REFERENCE = re.compile(
    r'" not implemented for \'|not yet implemented|input type encountered|on CPU does not support'
)

# A view of several that autograd has given up, or an integer that requires grad.
CANNOT_BE_READ = re.compile(r"returns multiple views|Autograd not support dtype")


class Generator:
    """Yields (step, the error that the CPU raises or None)."""

    def __init__(self, seed, recent=0.0, families=None):
        """`recent`: how often the last tensors are used; `families`: modules of ops/, or all."""
        self.model = Model(seed, recent)
        self.makers, self.weights = ops.load(families)

    def next(self):
        model = self.model
        forgotten = model.forget()
        if forgotten:
            return forgotten, run_step(forgotten, model.names)
        while True:
            make = model.random.choices(self.makers, cum_weights=self.weights)[0]
            before = model.made, set(model.hosts)
            try:
                step = make(model)
            except RuntimeError as error:
                if not CANNOT_BE_READ.search(str(error)):
                    raise
                step = None
            if step is None or known.left_out(step):
                model.made, model.hosts = before
                continue
            error = run_step(step, model.names)
            if error is not None:
                model.hosts = before[1]
                if has_no_reference(step, error):
                    model.made = before[0]
                    if step.changed:  # a kernel may refuse after out= was resized
                        dropped = model.drop(step.changed)
                        return dropped, run_step(dropped, model.names)
                    continue
                return step, error
            step = self.without_gaps(step)
            model.keep(step)
            return step, error

    def without_gaps(self, step):
        """A result whose storage is larger than itself has memory that was never written, which
        views could reach. It becomes a copy."""
        for name in step.made:
            value = self.model.names[name]
            if not isinstance(value, torch.Tensor):
                continue
            shared = any(same_storage(value, self.model.tensor(n)) for n in self.model.alive)
            if not shared and value.untyped_storage().nbytes() > value.numel() * value.itemsize:
                copy = Step("clone", f"{name} = {name}.clone()")
                if run_step(copy, self.model.names) is None:
                    step = replace(step, text=f"{step.text}; {copy.text}")
        return step


def run_step(step, names):
    """The exception that it raises; what it bound is undone then."""
    try:
        for name in step.changed:
            # Autograd makes a view's node anew when it is read, and checks the node as it is.
            # Makers read those of the CPU only. Of some views the node cannot be read.
            getattr(names.get(name), "grad_fn", None)
        exec(step.code, names)
    except Exception as error:
        for name in step.made:
            names.pop(name, None)
        error.__traceback__ = None  # holds the tensors of every frame
        return error
    return None


def has_no_reference(step, error):
    if ";" in step.text and step.changed:
        return False  # the first part of it has been done
    if isinstance(error, NotImplementedError):
        return True
    return isinstance(error, RuntimeError) and bool(NO_REFERENCE.search(str(error)))


def program(seed, length):
    """The whole of it, without a device."""
    torch.manual_seed(0)
    generator = Generator(seed)
    return [generator.next()[0] for _ in range(length)]
