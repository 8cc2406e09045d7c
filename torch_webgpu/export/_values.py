"""What a call computes, as numbers: equal computations of equal operands have equal numbers."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from torch_webgpu.export._lines import Line

# Operators whose result is what an argument holds, if it has the same dtype and shape.
_COPIES = {"copy", "clone", "_to_copy", "lift_fresh_copy"}
_SOURCES = ("src", "self")  # the argument that is copied: the first of these that there is
_ZEROS = {"zero", "zeros", "zeros_like", "new_zeros"}
_FULL = {"fill": "value", "full": "fill_value", "full_like": "fill_value", "new_full": "fill_value"}
# Of these each element of a list depends on the elements at its place in other lists alone.
_FOREACH = "_foreach_"
_BY_ELEMENT = (_FOREACH, "_fused_")
# Names that differ from those of the operator on one tensor.
_SINGLE_NAMES = {"norm": "linalg_vector_norm"}
_SINGLE_ARGUMENTS = {"scalar": "other", "scalars": "other", "tensor": "other"}


class Layout(NamedTuple):
    """Where elements lie in memory. Sizes of dynamic dimensions are texts."""

    dtype: torch.dtype
    offset: Hashable
    shape: tuple[Hashable, ...]
    strides: tuple[Hashable, ...]
    bits: tuple[bool, bool] = (False, False)  # conjugate, negative

    @property
    def is_contiguous(self) -> bool:
        """Whether elements are known to lie in order without gaps."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if not isinstance(size, int) or (size != 1 and stride != expected):
                return False
            expected *= size
        return isinstance(self.offset, int) and self.bits == (False, False)

    def _range(self) -> tuple[int, int] | None:
        """The bytes from the first to the last element, if these are known."""
        last: int = 0
        for size, stride in zip(self.shape, self.strides, strict=True):
            if not isinstance(size, int) or not isinstance(stride, int):
                return None
            last += (size - 1) * stride
        if not isinstance(self.offset, int):
            return None
        bytes_each = self.dtype.itemsize
        return self.offset * bytes_each, (self.offset + last + 1) * bytes_each

    def is_apart(self, other: "Layout") -> bool:
        """Whether the two are known to have no bytes in common."""
        one, two = self._range(), other._range()
        return one is not None and two is not None and (one[1] <= two[0] or two[1] <= one[0])


class View(NamedTuple):
    """A tensor in memory."""

    place: Hashable
    layout: Layout
    whole: bool  # whether it has all elements of the memory


class Operation(NamedTuple):
    name: str  # the same in place, with out= and without. Of one on lists: with its prefix
    arguments: tuple[tuple[str, Any], ...]  # trees of views and of what else is hashable
    results: tuple[Any, ...]  # views, or lists of views
    draws: tuple[Hashable, ...] = ()  # places in a sequence of random numbers


class Values:
    """Numbers of values. One is a label, which says how it is computed, with its operands."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Hashable, tuple[int, ...]], int] = {}
        self.nodes: list[tuple[Hashable, tuple[int, ...]]] = []
        # What memory holds before a call, by place, where that is known.
        self.known: dict[Hashable, Held] = {}

    def number(self, label: Hashable, operands: Iterable[int] = ()) -> int:
        key = (label, tuple(operands))
        if key not in self._numbers:
            self._numbers[key] = len(self.nodes)
            self.nodes.append(key)
        return self._numbers[key]

    def before(self, place: Hashable) -> int:
        """What memory holds before the call."""
        return self.number(("before", place))

    def draw(self, place: Hashable) -> int:
        """The random numbers at a place in a generator's sequence."""
        return self.number(("draw", place))

    def places_in(self, roots: Iterable[int]) -> set[Hashable]:
        """The places whose contents before the call the values are computed from."""
        return {place for kind, place in self._sources(roots) if kind == "before"}

    def draws_in(self, roots: Iterable[int]) -> bool:
        """Whether the values are computed from random numbers."""
        return any(kind == "draw" for kind, _ in self._sources(roots))

    def _sources(self, roots: Iterable[int]) -> set[tuple[str, Hashable]]:
        seen, left, found = set(), list(roots), set()
        while left:
            number = left.pop()
            if number in seen:
                continue
            seen.add(number)
            label, operands = self.nodes[number]
            if isinstance(label, tuple) and label[0] in ("before", "draw"):
                found.add(label)
            left += operands
        return found

    def path(self, one: int, other: int) -> Iterator[tuple[int, int]]:
        """From two different values down to where they begin to differ."""
        while True:
            yield one, other
            (label, operands), (other_label, other_operands) = self.nodes[one], self.nodes[other]
            if label != other_label or len(operands) != len(other_operands):
                return
            pairs = zip(operands, other_operands, strict=True)
            one, other = next(pair for pair in pairs if pair[0] != pair[1])


# What memory holds: a value, and how its elements lie there if that is known.
Held = tuple[int, Layout | None]


class Memory:
    """What memory holds, step by step. Of each place: a value, and how its elements lie there if
    that is known."""

    def __init__(self, values: Values, made: Iterable[Hashable]) -> None:
        self.values = values
        self._made = frozenset(made)  # during the call
        self._held: dict[Hashable, Held] = {}
        self.lines: dict[int, Line | None] = {}  # by value: where it was computed first

    def written(self) -> set[Hashable]:
        return set(self._held)

    def at(self, place: Hashable) -> Held:
        if place in self._held:
            return self._held[place]
        values = self.values
        if place in values.known:
            return values.known[place]
        return (values.number("unwritten") if place in self._made else values.before(place)), None

    def all_of(self, place: Hashable) -> int:
        value, layout = self.at(place)
        if layout is None:
            return value
        found = self.values.number(("as", layout), [value])
        self.lines.setdefault(found, self.lines.get(value))
        return found

    def content(self, view: View) -> int:
        value, layout = self.at(view.place)
        # Writes to parts: of this one, and of others, which do not matter.
        while layout is None and isinstance(label := self.values.nodes[value][0], tuple):
            operands = self.values.nodes[value][1]
            if label[0] == "as":
                value, layout = operands[0], label[1]
            elif label[0] == "into" and label[1] == view.layout:
                return operands[0]
            elif label[0] == "into" and label[1].is_apart(view.layout):
                value = operands[1]
            else:
                break
        if layout == view.layout:
            return value
        label, operands = self.values.nodes[value]
        if (
            isinstance(label, tuple)
            and label[0] == "view"
            and layout is not None
            and layout.offset == 0
            and layout.dtype == view.layout.dtype
            and layout.is_contiguous
            and label[2].is_contiguous
            and isinstance(view.layout.offset, int)
        ):  # a copy of elements without gaps: its views are views of these
            moved = view.layout._replace(offset=label[2].offset + view.layout.offset)
            return self.values.number(("view", label[1], moved), operands)
        return self.values.number(("view", layout, view.layout), [value])

    def write(self, view: View, value: int) -> None:
        if view.whole:
            self._held[view.place] = value, view.layout
        else:
            before = self.all_of(view.place)
            self._held[view.place] = (
                self.values.number(("into", view.layout), [value, before]),
                None,
            )

    def write_all(self, place: Hashable, value: int, line: Line | None) -> None:
        self._held[place] = value, None
        self.lines.setdefault(value, line)

    def operate(self, operation: Operation, line: Line | None) -> None:
        found = [(view, value) for part in _parts(operation) for view, value in self._results(part)]
        for view, value in found:
            self.write(view, value)
            self.lines.setdefault(value, line)
            self.lines.setdefault(self.at(view.place)[0], line)

    def _results(self, operation: Operation) -> list[tuple[View, int]]:
        results = [
            x for x in pytree.tree_leaves(operation.results, is_leaf=is_view) if isinstance(x, View)
        ]
        if not results:
            return []
        if len(results) == 1:
            known = self._known(operation, results[0].layout)
            if known is not None:
                return [(results[0], known)]
        leaves, tree = pytree.tree_flatten(
            tuple(value for _, value in operation.arguments), is_leaf=is_view
        )
        label = (
            operation.name,
            tuple(name for name, _ in operation.arguments),
            str(tree),
            tuple(None if isinstance(x, View) else x for x in leaves),
        )
        operands = [self.content(x) for x in leaves if isinstance(x, View)]
        computed = self.values.number(label, [*operands, *map(self.values.draw, operation.draws)])
        return [
            (view, self.values.number((k, view.layout.dtype, view.layout.shape), [computed]))
            for k, view in enumerate(results)
        ]

    def _known(self, operation: Operation, layout: Layout) -> int | None:
        """The value of a result that has one from before: zeros, a copy, and a sum with zeros."""
        arguments = dict(operation.arguments)
        zeros = self.values.number(("zeros", layout.dtype, layout.shape))

        def same(operand: Any) -> bool:
            """Whether its elements are those of the result, one by one."""
            if not isinstance(operand, View):
                return False
            return (operand.layout.dtype, operand.layout.shape) == (layout.dtype, layout.shape)

        if operation.name in _ZEROS:
            return zeros
        if operation.name in _FULL:
            is_zero = arguments.get(_FULL[operation.name]) in (("int", "0"), ("float", "0.0"))
            return zeros if is_zero else None
        if operation.name in _COPIES:
            source = next((arguments[x] for x in _SOURCES if x in arguments), None)
            return self.content(source) if source is not None and same(source) else None
        if operation.name == "add" and arguments.keys() == {"self", "other"}:
            terms = arguments["self"], arguments["other"]
            if all(map(same, terms)):
                first, second = map(self.content, terms)
                if zeros in (first, second):
                    return second if first == zeros else first
        return None


def _parts(operation: Operation) -> Iterator[Operation]:
    """The operations that one on lists consists of."""
    lists = [x for x in (*operation.results, *(x for _, x in operation.arguments)) if _is_list(x)]
    lengths = {len(x) for x in lists if x}
    if not operation.name.startswith(_BY_ELEMENT) or len(lengths) != 1:
        yield operation
        return

    def of(value: Any, k: int) -> Any:
        return value[k] if _is_list(value) and value else value

    name, rename = operation.name, {}
    if name.startswith(_FOREACH):
        name, rename = name.removeprefix(_FOREACH), _SINGLE_ARGUMENTS
        name = _SINGLE_NAMES.get(name, name)
    for k in range(lengths.pop()):
        yield operation._replace(
            name=name,
            arguments=tuple((rename.get(x, x), of(value, k)) for x, value in operation.arguments),
            results=tuple(of(value, k) for value in operation.results),
        )


def is_view(value: Any) -> bool:
    return isinstance(value, View)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def base_name(schema: Any) -> str:
    """The name of an operator, whether it computes in place or not."""
    name: str = schema.name.partition("::")[2]
    is_in_place = name.endswith("_") and not name.endswith("__")
    return name[:-1] if is_in_place else name


def named_arguments(schema: Any, args: Sequence[Any], kwargs: Any) -> Iterator[tuple[Any, Any]]:
    """The arguments of a call that are not left out, with what the schema says of them."""
    for k, argument in enumerate(schema.arguments):
        if k < len(args):
            yield argument, args[k]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]


def constant(value: Any) -> Hashable:
    """A number, a text and the like as a label."""
    return type(value).__name__, repr(value)
