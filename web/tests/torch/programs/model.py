"""A program, and its values in PyTorch on the CPU.

A step calls an operator by its name in web/torch, with arguments in the order that TypeScript takes
them; `PYTHON` has the operators that PyTorch names or calls otherwise. Each step runs twice, in
float32 and with float64 in its place. The float32 result is what TypeScript must give; how far
float64 is from it says how much an order of additions may matter.
"""

import base64
import random
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F

DTYPES = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.bool: "bool",
}
MOST_ELEMENTS = 400
MOST_DIMS = 5
# Larger floats are left out: products of them overflow, and casts to integers are undefined.
LARGEST = {torch.float32: 3e4, torch.float16: 2e3}


class Rejected(Exception):
    """The step is no test: PyTorch is not defined or not stable there."""


@dataclass(frozen=True)
class Ref:
    """An earlier value."""

    index: int


@dataclass(frozen=True)
class Literal:
    """A tensor of its own, such as an index."""

    tensor: torch.Tensor


@dataclass(frozen=True)
class Shaken:
    """A value in float64 with other last bits; see Step.cancels."""

    tensor: torch.Tensor


@dataclass(frozen=True)
class Slice:
    start: int | None
    end: int | None
    step: int


@dataclass
class Step:
    """One call. One that does not round must give equal values."""

    op: str
    args: list
    options: dict = field(default_factory=dict)
    rounds: bool = False
    # Outputs that PyTorch does not define, such as the places of equal elements.
    loose: tuple[int, ...] = ()
    in_place: bool = False
    # It subtracts an average, so that the last bits of its inputs may become large.
    cancels: bool = False


def at_index(x, *indices):
    """x[indices]"""
    made = [slice(i.start, i.end, i.step) if isinstance(i, Slice) else i for i in indices]
    return x[tuple(... if i == "..." and isinstance(i, str) else i for i in made)]


def index_put(x, indices, values, accumulate=False):
    return torch.index_put(x, _places(indices), values, accumulate)


def index_put_(x, indices, values, accumulate=False):
    return x.index_put_(_places(indices), values, accumulate)


def _places(indices):
    return tuple(slice(None) if i is None else i for i in indices)


def scatter_reduce(x, dim, index, src, reduce):
    return torch.scatter_reduce(x, dim, index, src, reduce=reduce)


def batch_norm(x, mean, var, weight, bias, training):
    return F.batch_norm(x, mean, var, weight, bias, training)


PYTHON = {
    "at": at_index,
    "index_get": lambda x, indices: x[_places(indices)],
    "index_put": index_put,
    "index_put_": index_put_,
    "scatter_reduce": scatter_reduce,
    "constant_pad": lambda x, pad, value=0: F.pad(x, pad, value=value),
    "view": lambda x, shape: x.view(shape),
    "expand": lambda x, sizes: x.expand(sizes),
    "repeat": lambda x, sizes: x.repeat(sizes),
    "tile": lambda x, sizes: x.tile(sizes),
    "permute": lambda x, dims: x.permute(dims),
    "flip": lambda x, dims: x.flip(dims),
    "to": lambda x, dtype: x.to(dtype),
    "unfold": lambda x, dimension, size, step: x.unfold(dimension, size, step),
    "unfold_image": F.unfold,
    "fold": F.fold,
    "slice": lambda x, dim, a, b, step: x.movedim(dim, 0)[a:b:step].movedim(0, dim),
    "var": lambda x, dim, **options: torch.var(x, dim, **options),
    "std": lambda x, dim, **options: torch.std(x, dim, **options),
    "norm": lambda x, p, dim, keepdim: torch.linalg.vector_norm(x, p, dim, keepdim),
    "sort": lambda x, dim, descending: torch.sort(x, dim=dim, descending=descending, stable=True),
    "argsort": lambda x, dim, descending: torch.argsort(
        x, dim=dim, descending=descending, stable=True
    ),
    "linear": F.linear,
    "softmin": F.softmin,
    "batch_norm": batch_norm,
    "rms_norm": F.rms_norm,
    "layer_norm": F.layer_norm,
    "group_norm": F.group_norm,
    "silu_": lambda x: F.silu(x, inplace=True),
}


def function(name):
    """PyTorch's function for an operator of web/torch."""
    if name in PYTHON:
        return PYTHON[name]
    if name.startswith("special_"):
        return getattr(torch.special, name.removeprefix("special_"))
    if name.endswith("_"):
        return lambda x, *args, **options: getattr(x, name)(*args, **options)
    for home in (torch, F):
        if hasattr(home, name) and callable(getattr(home, name)):
            return getattr(home, name)
    return lambda x, *args, **options: getattr(x, name)(*args, **options)


def wide(value):
    """float64 in place of float32."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.dtype == torch.float32 else value
    return torch.float64 if value is torch.float32 else value


def flat(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [t for one in result for t in flat(one)]


def memory(tensor):
    return tensor.untyped_storage().data_ptr()


class Program:
    """Values so far: `values` in float32 and `doubles` with float64 in its place."""

    def __init__(self, rng: random.Random, gradients: bool, special: bool):
        self.rng = rng
        self.gradients = gradients
        self.special = special
        self.values: list[torch.Tensor] = []
        self.doubles: list[torch.Tensor] = []
        # The first value with the same memory: it is contiguous and has all of it.
        self.roots: list[int] = []
        self.record: list[dict] = []
        self.generator = torch.Generator().manual_seed(rng.getrandbits(40))

    # ---- Values ----

    def add(self, value: torch.Tensor, double: torch.Tensor) -> int:
        known = {memory(v): r for v, r in zip(self.values, self.roots, strict=True) if v.numel()}
        index = len(self.values)
        self.values.append(value)
        self.doubles.append(double)
        self.roots.append(known.get(memory(value), index) if value.numel() else index)
        return index

    def input(self, value: torch.Tensor, requires_grad: bool) -> None:
        entry = {"input": encoded(value), "requires_grad": requires_grad}
        double = wide(value).clone().requires_grad_(requires_grad)
        self.add(value.clone().requires_grad_(requires_grad), double)
        self.record.append(entry)

    def pick(self, allowed=lambda value: True) -> Ref | None:
        """A value that is allowed; late ones are likelier."""
        found = [k for k, value in enumerate(self.values) if allowed(value)]
        if not found:
            return None
        late = found[-6:]
        return Ref(self.rng.choice(late if self.rng.random() < 0.6 else found))

    def __getitem__(self, ref: Ref) -> torch.Tensor:
        return self.values[ref.index]

    def random(self, shape, dtype=torch.float32) -> torch.Tensor:
        """Values that float32 and float16 hold exactly, none of them at a kink."""
        if dtype == torch.bool:
            return torch.rand(shape, generator=self.generator) < 0.5
        if dtype in (torch.int32, torch.int64):
            most = self.rng.choice([3, 9, 9, 100])
            return torch.randint(-most, most + 1, shape, generator=self.generator, dtype=dtype)
        return ((torch.randn(shape, generator=self.generator) * 32).round() / 16 + 1 / 64).to(dtype)

    # ---- Steps ----

    def _world(self, value, double: bool):
        if isinstance(value, Ref):
            return (self.doubles if double else self.values)[value.index]
        if isinstance(value, Shaken):
            return value.tensor
        if isinstance(value, Literal):
            return wide(value.tensor) if double else value.tensor
        if isinstance(value, list):
            return [self._world(one, double) for one in value]
        if isinstance(value, dict):
            return {name: self._world(one, double) for name, one in value.items()}
        return wide(value) if double and isinstance(value, torch.dtype) else value

    def _call(self, step: Step, double: bool):
        args, options = self._world(step.args, double), self._world(step.options, double)
        with torch.set_grad_enabled(self.gradients):
            return flat(function(step.op)(*args, **options))

    def run(self, step: Step) -> None:
        """Runs a step and keeps it, or raises Rejected with everything as it was."""
        if step.in_place:
            return self._run_in_place(step)
        try:
            outs, doubles = self._call(step, False), self._call(step, True)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
            raise Rejected(step.op, str(error)) from error
        self._check(outs)
        own = {memory(v) for v in self.values if v.numel()}
        views = [out.numel() > 0 and memory(out) in own for out in outs]
        entries = []
        for k, (out, double, view) in enumerate(zip(outs, doubles, views, strict=True)):
            if out.shape != double.shape or (
                out.dtype != double.dtype and wide(out).dtype != double.dtype
            ):
                raise Rejected(step.op, "float64 has another type")
            if not view:
                # Results are contiguous in web/torch, and share memory with no other.
                out, double = out.contiguous(), double.contiguous()
                if memory(out) in [memory(o) for o in outs[:k]]:
                    out, double = out.clone(), double.clone()
                outs[k], doubles[k] = out, double
            entries.append(self._expected(step, k, out, double, view))
        for out, double in zip(outs, doubles, strict=True):
            self.add(out, double)
        for entry, root in zip(entries, self.roots[-len(outs) :], strict=True):
            if root < len(self.values) - len(outs):
                entry["view_of"] = root
        self.record.append({**self._source(step), "outputs": entries})

    def _run_in_place(self, step: Step) -> None:
        target = step.args[0].index
        root = self.roots[target]
        before, before_double = self.values[root].clone(), self.doubles[root].clone()
        try:
            self._call(step, False)
            self._call(step, True)
            self._check([self.values[root]])
        except (RuntimeError, IndexError, TypeError, ValueError, Rejected) as error:
            self.values[root].copy_(before)
            self.doubles[root].copy_(before_double)
            raise Rejected(step.op, str(error)) from error
        value, double = self.values[root], self.doubles[root]
        entry = self._expected(step, 0, value, double, False)
        self.record.append({**self._source(step), "target": target, "root": root, "whole": entry})

    def raises(self, step: Step) -> None:
        """Keeps a step for which PyTorch raises."""
        with torch.set_grad_enabled(self.gradients):
            try:
                function(step.op)(
                    *self._world(step.args, False), **self._world(step.options, False)
                )
            except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
                message = str(error).split("\n")[0]
            else:
                raise Rejected(step.op, "PyTorch does not raise")
        self.record.append({**self._source(step), "raises": message})

    def _check(self, outs) -> None:
        for out in outs:
            if out.dtype not in DTYPES:
                raise Rejected(f"{out.dtype} does not exist in web/torch")
            if out.numel() > MOST_ELEMENTS or out.dim() > MOST_DIMS:
                raise Rejected("too large")
            if out.dtype in LARGEST:
                known = out.detach()[torch.isfinite(out.detach())] if self.special else out.detach()
                if not torch.isfinite(known).all() or (known.abs() > LARGEST[out.dtype]).any():
                    raise Rejected("too large or not finite")
                # Where results may be smaller than normal numbers, drivers make them zero.
                if ((known != 0) & (known.abs() < 6.2e-5)).any() and out.dtype == torch.float16:
                    raise Rejected("a subnormal half")
                if ((known != 0) & (known.abs() < 1e-30)).any():
                    raise Rejected("subnormal")

    def _expected(self, step: Step, k: int, out, double, view: bool) -> dict:
        entry = encoded(out)
        entry["strides"] = list(out.stride())
        entry["offset"] = out.storage_offset() if view else 0
        if k in step.loose:
            entry["loose"] = True
        if view:
            return entry
        if not out.dtype.is_floating_point:
            if not torch.equal(out, double):
                raise Rejected(step.op, "the result depends on a rounding")
            return entry
        if step.rounds or out.dtype == torch.float16:
            shaken = self._shaken(step)[k] if step.cancels else None
            entry["tolerance"] = self._tolerance(out.detach(), double.detach(), shaken)
        # What follows starts from the same values in both.
        double.data.copy_(out.detach())
        return entry

    def _shaken(self, step: Step) -> list[torch.Tensor]:
        """The results in float64 of operands whose last bits in float32 are others."""

        def shake(value):
            if not isinstance(value, Ref) or not self[value].dtype.is_floating_point:
                return value
            double = self.doubles[value.index].detach()
            signs = torch.rand(double.shape, generator=self.generator) < 0.5
            return Shaken(double * (1 + 6e-8 * torch.where(signs, 1.0, -1.0).double()))

        shaken = replace(step, args=[shake(value) for value in step.args])
        return [out.detach() for out in self._call(shaken, True)]

    def _tolerance(self, out, double, shaken=None) -> list[float]:
        known = torch.isfinite(out)
        if not torch.equal(known, torch.isfinite(double)):
            raise Rejected("float64 is finite elsewhere")
        if out.numel() == 0 or not known.any():
            return [0.0, 0.0]
        off = (out.double() - double.double())[known].abs().max().item()
        if shaken is not None:
            off = max(off, (shaken.double() - double.double())[known].abs().max().item())
        largest = out[known].abs().max().item()
        if out.dtype == torch.float16:
            return [8 * off + 2e-3 + 2e-3 * largest * (off > 0), 4e-3]
        if off > 1e-3 * max(largest, 1e-3):
            raise Rejected("float32 is not accurate here")
        return [8 * off + 1e-6 * largest + 1e-6, 2e-5]

    def _source(self, step: Step) -> dict:
        return {"op": step.op, "args": plain(step.args), "options": plain(step.options)}

    # ---- Gradients ----

    def differentiate(self) -> dict | None:
        """The gradients of all inputs that need one, from up to three last values."""
        inputs = [k for k, entry in enumerate(self.record) if "input" in entry]
        leaves = [k for k in inputs if self.values[k].requires_grad]
        ends = [
            k
            for k, value in enumerate(self.values)
            if value.requires_grad and not value.is_leaf and value.numel() > 0
        ]
        if not ends:
            return None
        ends = sorted(self.rng.sample(ends[-6:], min(3, len(ends[-6:]))))
        weights = [self.random(self.values[k].shape).to(self.values[k].dtype) for k in ends]
        results = []
        for world in (self.values, self.doubles):
            given = [w.to(world[k].dtype) for w, k in zip(weights, ends, strict=True)]
            results.append(
                torch.autograd.grad(
                    [world[k] for k in ends], [world[k] for k in leaves], given, allow_unused=True
                )
            )
        known = [one.abs().max().item() for one in results[0] if one is not None and one.numel()]
        # What adds up to a small gradient may be as large as the others.
        largest = max([1.0, *known])
        halves = any(v.dtype == torch.float16 for v in self.values)
        room = 4e-3 if halves else 1e-5
        gradients = []
        for one, double in zip(*results, strict=True):
            if one is None:
                gradients.append(None)
                continue
            if not torch.isfinite(one).all() or largest > 1e4:
                raise Rejected("a gradient that is too large")
            off = (one.double() - double).abs().max().item() if one.numel() else 0.0
            if off > (2e-2 if halves else 1e-4) * largest:
                raise Rejected("a gradient that is not accurate")
            entry = encoded(one.contiguous())
            entry["tolerance"] = [8 * off + room * largest, 10 * room]
            gradients.append(entry)
        return {
            "leaves": leaves,
            "ends": ends,
            "weights": [encoded(w) for w in weights],
            "gradients": gradients,
        }


def encoded(tensor: torch.Tensor) -> dict:
    """The elements in order, in base64."""
    data = tensor.detach().contiguous().numpy().tobytes()
    return {
        "dtype": DTYPES[tensor.dtype],
        "shape": list(tensor.shape),
        "data": base64.b64encode(data).decode(),
    }


def plain(value):
    """An argument for JSON."""
    if isinstance(value, Ref):
        return {"v": value.index}
    if isinstance(value, Literal):
        return {"literal": encoded(value.tensor)}
    if isinstance(value, Slice):
        return {"slice": [value.start, value.end, value.step]}
    if isinstance(value, torch.dtype):
        return {"dtype": DTYPES[value]}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, float) and abs(value) == float("inf"):
        return {"float": "Infinity" if value > 0 else "-Infinity"}
    return value
