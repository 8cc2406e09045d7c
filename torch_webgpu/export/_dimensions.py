"""What `dynamic_shapes` says of a function's inputs: torch.export's words, as names with ranges."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

Shapes = Mapping[str, Mapping[int, "Dimension"]]  # by input, then by number of the dimension

_NAME = re.compile(r"[^\W\d]\w*")


class Dimension(NamedTuple):
    """A size that a call decides. Equal ones are one size."""

    name: str
    min: int
    max: int
    # Whether it may turn out to be a fixed size, or the same as another one.
    is_inferred: bool = False


def all_dimensions(
    samples: Mapping[str, Mapping[str, torch.Tensor]], stated: Mapping[str, Any]
) -> dict[str, Shapes]:
    """The dimensions of functions that are not fixed, by function: what `stated` says of their
    inputs `samples`.

    Raises TypeError or ValueError for what is stated wrongly.
    """
    known: dict[str, Dimension] = {}
    found = {
        name: _dimensions(name, inputs, stated.get(name), known) for name, inputs in samples.items()
    }
    # As all functions have left them.
    return {
        name: {
            label: {d: known[dimension] for d, dimension in shape.items()}
            for label, shape in shapes.items()
        }
        for name, shapes in found.items()
    }


def _dimensions(
    function: str, inputs: Mapping[str, torch.Tensor], stated: Any, known: dict[str, Dimension]
) -> dict[str, dict[int, str]]:
    """The names of the dimensions of a function. Adds them to `known`."""
    if stated is None:
        return {}
    if not isinstance(stated, Mapping):
        if not isinstance(stated, Sequence) or len(stated) != len(inputs):
            raise TypeError(
                f"dynamic_shapes of {function} must be a dict by input, or a sequence with an "
                "entry for each input"
            )
        stated = dict(zip(inputs, stated, strict=True))
    if unknown := stated.keys() - inputs.keys():
        raise ValueError(f"dynamic_shapes: {function} has no input {min(map(str, unknown))!r}")
    found: dict[str, dict[int, str]] = {}
    sizes: dict[str, int] = {}  # of the examples
    for label, shape in stated.items():
        for d, what in _entries(label, inputs[label], shape):
            where = f"dynamic_shapes: dimension {d} of {label!r}"
            size = inputs[label].shape[d]
            dimension = _dimension(where, f"{label}_{d}", what, size)
            if dimension is None:
                continue
            if not isinstance(what, (str, torch.export.Dim)):  # which give it a name
                while dimension.name in known or dimension.name in inputs:
                    dimension = dimension._replace(name=f"{dimension.name}_")
            name = dimension.name
            if not _NAME.fullmatch(name):
                raise ValueError(f"{where}: {name!r} is no identifier")
            if name in inputs:
                raise ValueError(f"{where}: {name!r} is the name of an input as well")
            if sizes.setdefault(name, size) != size:
                raise ValueError(
                    f"{where}: the examples have {sizes[name]} and {size} for {name!r}"
                )
            before = known.get(name, dimension)
            if not isinstance(getattr(what, "max", None), int):
                largest = max(before.max, dimension.max)
                before, dimension = (x._replace(max=largest) for x in (before, dimension))
            if before != dimension:
                raise ValueError(
                    f"{where}: {name!r} is from {dimension.min} to {dimension.max} here "
                    f"and from {before.min} to {before.max} elsewhere"
                )
            known[name] = dimension
            found.setdefault(label, {})[d] = name
    return found


def _entries(label: str, tensor: torch.Tensor, shape: Any) -> list[tuple[int, Any]]:
    if shape is None:
        return []
    if isinstance(shape, Mapping):
        entries = list(shape.items())
    elif isinstance(shape, Sequence) and not isinstance(shape, str):
        if len(shape) != tensor.dim():
            raise ValueError(
                f"dynamic_shapes: {label!r} has {tensor.dim()} dimensions, not {len(shape)}"
            )
        entries = list(enumerate(shape))
    else:
        raise TypeError(
            f"dynamic_shapes: {label!r} needs a dict by dimension or a sequence, not a "
            f"{type(shape).__name__}"
        )
    found = []
    for d, what in entries:
        if not isinstance(d, int) or not -tensor.dim() <= d < tensor.dim():
            raise ValueError(f"dynamic_shapes: {label!r} has no dimension {d!r}")
        found.append((d % tensor.dim(), what))
    return found


def _dimension(where: str, own_name: str, what: Any, size: int) -> Dimension | None:
    """None: the size is fixed. Without a largest size, that of the example is the largest."""
    from torch.export.dynamic_shapes import _DerivedDim, _DimHint, _DimHintType

    if what is None:
        return None
    if isinstance(what, int):
        if what != size:
            raise ValueError(f"{where} is stated as {what}, and the example has {size}")
        return None
    if isinstance(what, str):
        return Dimension(what, 1, size)
    if isinstance(what, _DerivedDim):
        raise ValueError(f"{where}: a size that is computed from another one is not supported")
    if isinstance(what, _DimHint):
        if what.type == _DimHintType.STATIC:
            return None
        name, inferred = own_name, what.type == _DimHintType.AUTO
    elif isinstance(what, torch.export.Dim):
        name, inferred = what.__name__, False
    else:
        raise TypeError(f"{where} needs a torch.export.Dim or a name, not {what!r}")
    # torch.export's ranges start at 0, which no size of a graph file is.
    least = max(what.min, 1) if isinstance(what.min, int) else 1
    most = what.max if isinstance(what.max, int) else size
    if not least <= size <= most:
        raise ValueError(f"{where}: the example has {size}, and the range is {least} to {most}")
    return Dimension(name, least, most, inferred)
