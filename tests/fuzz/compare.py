"""Runs a program on the device beside the CPU and compares the two.

After a step that rounds, the device's memory takes the CPU's bits: a difference is always the
difference of one step, and does not grow."""

import torch

from .generate import run_step
from .model import is_leaf
from .program import Step

EVERY = 12  # steps, after which all tensors are compared, not only those that a step wrote
# (rtol, atol relative to the scale of the numbers)
TOLERANCE = {
    "close": {
        torch.float32: (2e-5, 2e-6),
        torch.complex64: (2e-5, 4e-6),
        torch.float16: (4e-3, 1e-3),
        torch.bfloat16: (2e-2, 8e-3),
    },
    "sums": {
        torch.float32: (5e-5, 1e-5),
        torch.complex64: (5e-5, 1e-5),
        torch.float16: (1e-2, 4e-3),
        torch.bfloat16: (4e-2, 3e-2),
    },
}

SYNCHRONIZE = Step("synchronize", "synchronize(device)")


class Difference(Exception):
    """The device is not as the CPU is."""


class Twin:
    """The tensors of a program on the device, held equal to those of the CPU."""

    def __init__(self, names, expected, thorough=False):
        self.actual, self.expected = names, expected
        self.thorough = thorough
        self.steps = 0
        self.bytes_before = {}  # the step: of the storages of the tensors that it changes

    def run(self, step, error):
        """The step already ran on the CPU, with that error or none."""
        self.bytes_before = {
            name: memory(tensor).numel()
            for name in step.changed
            if isinstance(tensor := self.actual.get(name), torch.Tensor)
        }
        raised = run_step(step, self.actual)
        if raised is None and error is not None:
            # Kernels report an index out of range at the next synchronization.
            raised = run_step(SYNCHRONIZE, self.actual)
        self.steps += 1
        if type(raised) is not type(error):
            raise Difference(f"raises: {describe(raised)}; on the CPU: {describe(error)}")
        targets = step.targets if error is None else step.changed
        live = [n for n in targets if isinstance(self.expected.get(n), torch.Tensor)]
        for name in targets:
            if (self.actual.get(name) is None) != (self.expected.get(name) is None):
                raise Difference(f"{name} is {self.actual.get(name)}, {self.expected.get(name)}")
        self.compare_forms(live)
        self.compare_values(live, step)
        if step.gradients:
            self.compare_gradients(step)
        if self.thorough or self.steps % EVERY == 0:
            self.compare_everything()

    def tensors(self):
        for name, tensor in self.expected.items():
            if name[0] == "v" and isinstance(tensor, torch.Tensor):
                yield name, tensor

    def compare_forms(self, names):
        """dtype, shape, strides; and which tensors share a storage."""
        for name in names:
            wanted, got = form(self.expected[name]), form(self.actual[name])
            if wanted != got:
                raise Difference(f"{name} is {got}, on the CPU {wanted}")
        to_actual, to_expected = {}, {}
        for name, tensor in self.tensors():
            a = self.actual[name].untyped_storage()._cdata
            e = tensor.untyped_storage()._cdata
            if to_actual.setdefault(e, a) != a or to_expected.setdefault(a, e) != e:
                raise Difference(f"{name} shares its storage with other tensors than on the CPU")

    def compare_values(self, names, step):
        done = set()
        for name in names:
            expected = self.expected[name]
            key = expected.untyped_storage()._cdata
            if key not in done:
                done.add(key)
                same = [n for n in names if self.expected[n].untyped_storage()._cdata == key]
                self.compare_storage(same, step)

    def compare_storage(self, names, step):
        expected, actual = self.expected[names[0]], self.actual[names[0]]
        wanted, got = memory(expected), memory(actual).cpu()
        if wanted.shape != got.shape:
            raise Difference(f"the storage of {names[0]} has {got.numel()} bytes, {wanted.numel()}")
        if torch.equal(wanted, got):
            return
        for name in names:
            of_got, of_wanted = over(got, self.expected[name]), over(wanted, self.expected[name])
            compare(name, of_got, of_wanted, step.rule, step.scale)
            raw(of_got).copy_(raw(of_wanted))
        new = set(names) <= set(step.made) and not any(
            n not in names and t.untyped_storage()._cdata == expected.untyped_storage()._cdata
            for n, t in self.tensors()
        )
        # What surrounds a new result was never written, nor was what out= added to a storage.
        old = min((self.bytes_before.get(name, wanted.numel()) for name in names), default=0)
        if not new and not torch.equal(wanted[:old], got[:old]):
            at = (wanted[:old] != got[:old]).nonzero().flatten().tolist()[:8]
            raise Difference(f"memory beside {', '.join(names)} has changed, bytes {at}")
        memory(actual).copy_(wanted)

    def compare_everything(self):
        done = set()
        for name, tensor in self.tensors():
            key = tensor.untyped_storage()._cdata
            if key not in done:
                done.add(key)
                wanted, got = memory(tensor), memory(self.actual[name]).cpu()
                if not torch.equal(wanted, got):
                    raise Difference(f"{name} was changed by a step that does not write into it")
        self.compare_forms([name for name, _ in self.tensors()])

    def compare_gradients(self, step):
        for name, tensor in self.tensors():
            if not (is_leaf(tensor) or tensor.retains_grad):
                continue
            wanted, got = tensor.grad, self.actual[name].grad
            if (wanted is None) != (got is None):
                raise Difference(f"{name}.grad is {got}, on the CPU {wanted}")
            if wanted is None:
                continue
            if (wanted.shape, wanted.dtype) != (got.shape, got.dtype):
                raise Difference(f"{name}.grad is {form(got)}, on the CPU {form(wanted)}")
            wanted, got = wanted.detach(), got.detach()
            host = got.cpu()
            if not torch.equal(wanted, host):
                scale = max(step.scale, largest(wanted))
                compare(f"{name}.grad", host, wanted, step.rule, scale)
                got.copy_(wanted)


def layout(x):
    strides = [k if s > 1 and x.numel() else 0 for s, k in zip(x.shape, x.stride(), strict=True)]
    return f"{x.dtype} {list(x.shape)} strides {strides}"


def form(x):
    found = layout(x)
    if x.numel():
        found += f" offset {x.storage_offset()}"
    for flag in ("is_conj", "is_neg"):
        if getattr(x, flag)():
            found += " " + flag
    try:
        return found + " requires_grad" * x.requires_grad + " is_leaf" * x.is_leaf
    except RuntimeError:  # a view of several that autograd has given up
        return found + " has no graph"


def memory(x):
    """The bytes of its storage, as a tensor that autograd does not watch."""
    storage = x.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def over(bytes_, like):
    """The view of other bytes that `like` is of its own."""
    whole = torch.empty(0, dtype=like.dtype).set_(bytes_.untyped_storage())
    view = whole.as_strided(like.shape, like.stride(), like.storage_offset())
    view = view.conj() if like.is_conj() else view
    return view._neg_view() if like.is_neg() else view


def raw(x):
    """Without the bits of conj and neg: what lies in memory."""
    x = x.conj() if x.is_conj() else x
    return x._neg_view() if x.is_neg() else x


def largest(x):
    x = x.double().abs()
    x = x[x.isfinite()]
    return max(1.0, x.max().item()) if x.numel() else 1.0


def compare(name, got, wanted, rule, scale, digits=None):
    """`digits`: the half type that float32 numbers may have been computed from, or None."""
    got, wanted = got.resolve_conj().resolve_neg(), wanted.resolve_conj().resolve_neg()
    if wanted.is_complex():
        dtype, got, wanted = wanted.dtype, torch.view_as_real(got), torch.view_as_real(wanted)
    else:
        dtype = wanted.dtype
    like = digits if digits and dtype in (torch.float32, torch.complex64) else dtype
    rtol, atol = TOLERANCE.get(rule, {}).get(like, (0.0, 0.0))
    if rule in TOLERANCE and dtype in (torch.float64, torch.complex128):
        rtol, atol = 1e-12, 1e-12
    if rtol:
        right = torch.isclose(got, wanted, rtol, atol * max(scale, largest(wanted)), equal_nan=True)
    else:
        right = (got == wanted) | ((got != got) & (wanted != wanted))
    if not bool(right.all()):
        where = [int(k) for k in (~right).nonzero()[0]]
        at = tuple(where)
        raise Difference(
            f"{name} differs in {int((~right).sum())} of {right.numel()} elements; at {where}: "
            f"{got[at].item()}, on the CPU {wanted[at].item()}"
        )


def describe(error):
    if error is None:
        return "nothing"
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200] if text else ''}"
