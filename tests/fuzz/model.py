"""The state of a program on the CPU, from which the next step is made."""

import random

import torch

from .program import Step, namespace

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
COMPUTED = (*FLOATS, *INTEGERS, torch.bool, torch.complex64)
# Stored and moved on the device; what computes in them runs on the CPU, counted.
STORED = (torch.float64, torch.complex128)
LARGEST = 400  # elements of a tensor
MOST = 12  # tensors alive
LAST = 4  # of the tensors that fit, which a program that prefers recent ones takes
TINY = 1e-4  # below: where halves lose digits, and where a GPU may flush to zero


class Model:
    def __init__(self, seed, recent=0.0):
        self.random = random.Random(seed)
        self.recent = recent
        self.names = namespace("cpu")
        self.alive = []
        self.hosts = set()  # those that stay on the CPU in the device's run
        self.made = 0

    # Numbers

    def chance(self, probability):
        return self.random.random() < probability

    def choice(self, options):
        return options[int(self.random.random() * len(options))]

    def integer(self, low, high):
        """Both ends are possible."""
        return low + int(self.random.random() * (high - low + 1))

    def sample(self, options, count):
        return self.random.sample(list(options), count)

    # Variables

    def fresh(self):
        self.made += 1
        return f"v{self.made - 1}"

    def tensor(self, name):
        return self.names[name]

    def pick(self, test=None, host=False):
        """The name of a tensor of the device (or of the host); None if there is none."""
        found = [
            name
            for name in self.alive
            if (name in self.hosts) == host and (test is None or test(self.names[name]))
        ]
        if self.recent and self.chance(self.recent):
            found = found[-LAST:]
        return self.choice(found) if found else None

    def pick_any(self, test=None):
        return self.pick(test, host=bool(self.hosts) and self.chance(0.12))

    def keep(self, step):
        """After the step ran on the CPU: what it bound is alive."""
        for name in step.made:
            value = self.names.get(name)
            if isinstance(value, torch.Tensor) and value.numel() <= LARGEST and value.dim() <= 6:
                self.alive.append(name)

    def forget(self):
        """A step that drops some tensors, once there are too many."""
        if len(self.alive) <= MOST:
            return None
        names = self.sample(self.alive, MOST // 3)
        self.alive = [name for name in self.alive if name not in names]
        return Step("del", "del " + ", ".join(names))

    def drop(self, names):
        """A step that drops these, and all that share memory with them."""
        storages = {self.names[name].untyped_storage()._cdata for name in names}
        shared = [n for n in self.alive if self.tensor(n).untyped_storage()._cdata in storages]
        self.alive = [name for name in self.alive if name not in shared]
        return Step("del", "del " + ", ".join(shared))

    def is_plain_memory(self, name):
        """No two elements share memory."""
        return torch._debug_has_internal_overlap(self.names[name]) == 0

    # What a tensor holds

    def is_tame(self, name, bound=64.0):
        """Finite, neither large nor tiny: any function of it can be compared."""
        x = numbers(self.names[name])
        if x is None or not x.numel():
            return True
        return bool(x.max() <= bound) and not bool(((x > 0) & (x < TINY)).any())

    def is_plain(self, name):
        """Not tiny; NaN and infinities are possible. For what only compares and selects."""
        x = numbers(self.names[name])
        return x is None or not bool(((x > 0) & (x < TINY)).any())

    def largest(self, *names):
        """The largest magnitude among tensors."""
        result = 1.0
        for name in names:
            x = numbers(self.names[name])
            if x is not None and x.numel():
                result = max(result, x.max().item())
        return result

    # Memory

    def may_write(self, name, refused=True):
        """Whether writing into it is defined: no two elements share memory. With `refused`, also
        where PyTorch refuses it."""
        x = self.names[name]
        overlap = torch._debug_has_internal_overlap(x)
        if overlap == 2:
            return len(set(elements(x))) == x.numel()
        return overlap == 0 or refused

    def may_read_while(self, target, *sources):
        """Whether sources (texts) may be read while the target is written: apart, or the same
        elements in the same order, or dense both, where PyTorch refuses it if they overlap."""
        to = self.names[target]
        for source in sources:
            x = eval(source, self.names)
            if not isinstance(x, torch.Tensor):
                continue
            if same_storage(x, to) and not same_view(x, to) and to.numel() and x.numel():
                if dense(x) and dense(to) and x.dtype == to.dtype:
                    continue
                if not bytes_of(x).isdisjoint(bytes_of(to)):
                    return False
        return True


def is_leaf(x):
    try:
        return x.is_leaf
    except RuntimeError:  # a view of several that autograd has given up
        return False


def numbers(x):
    """Magnitudes in float64; None for integers."""
    if not (x.is_floating_point() or x.is_complex()):
        return None
    x = x.detach()
    if x.is_complex():
        x = torch.view_as_real(x.resolve_conj())
    return x.double().abs()


def same_storage(x, y):
    return x.untyped_storage()._cdata == y.untyped_storage()._cdata


def same_view(x, y):
    return (
        x.dtype == y.dtype
        and x.storage_offset() == y.storage_offset()
        and x.shape == y.shape
        and x.stride() == y.stride()
    )


def dense(x):
    return torch._debug_has_internal_overlap(x) == 0


def elements(x):
    """The positions of its elements in its storage."""
    length = x.untyped_storage().nbytes() // x.itemsize
    places = torch.arange(length).as_strided(x.shape, x.stride(), x.storage_offset())
    return places.flatten().tolist()


def bytes_of(x):
    size = x.itemsize
    return {at * size + k for at in elements(x) for k in range(size)}
