"""Neighbouring elements that one invocation handles together, so that it moves them as vectors."""

import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import sympy
from torch._inductor.virtualized import V
from torch.utils._sympy.symbol import symbol_is_type

from torch_webgpu import _torch_versions
from torch_webgpu.inductor.printer import HOST_INTEGERS

if TYPE_CHECKING:
    from torch_webgpu.inductor.kernel import WgslKernel

# Below so many results a pointwise kernel has too few invocations to give each several elements.
MIN_RESULTS = 1024
# Below so many results a tile's workgroups are too few.
MIN_TILED = 1 << 14
# Bytes of the widest access.
_VECTOR_BYTES = 16


class Run(enum.Enum):
    """How the elements of neighbouring lanes lie."""

    VECTOR = "side by side, from a multiple of their number"
    SAME = "all one"
    APART = "anywhere"


def size_hint(size: sympy.Expr) -> int:
    """A size as Inductor knows or guesses it."""
    ask = _torch_versions.optimization_hint(V.graph.sizevars)
    return int(ask(size, fallback=4096))


def run_of(kernel: "WgslKernel", index: sympy.Expr, tree: Any, lanes: int) -> Run:
    """How `index` moves over `lanes` neighbours of a range, the first a multiple of `lanes`."""
    known = V.graph.sizevars
    stepping = None
    for symbol in index.free_symbols:
        entry = kernel.range_tree_nodes.get(symbol)
        if entry is None:
            if not symbol_is_type(symbol, HOST_INTEGERS):
                return Run.APART  # an index that was itself loaded
            continue
        if entry.root is not tree:
            continue
        if entry.divisor == 1:
            wraps = not known.statically_known_equals(entry.length, tree.numel)
            if wraps and not known.statically_known_multiple_of(entry.length, lanes):
                return Run.APART
            if stepping is not None:
                return Run.APART
            stepping = symbol
        elif not known.statically_known_multiple_of(entry.divisor, lanes):
            return Run.APART
    if stepping is None:
        return Run.SAME
    rest = index - stepping
    if stepping in rest.free_symbols or not known.statically_known_multiple_of(rest, lanes):
        return Run.APART
    return Run.VECTOR


def depends_on(kernel: "WgslKernel", index: sympy.Expr, tree: Any) -> bool:
    """Whether `index` moves along a range."""
    entries = (kernel.range_tree_nodes.get(symbol) for symbol in index.free_symbols)
    return any(entry is not None and entry.root is tree for entry in entries)


def has_unit_stride(kernel: "WgslKernel", index: sympy.Expr, tree: Any) -> bool:
    """Whether neighbours of a range are neighbours in memory, aligned or not."""
    for symbol in index.free_symbols:
        entry = kernel.range_tree_nodes.get(symbol)
        steps = entry is not None and entry.root is tree and entry.divisor == 1
        if steps and index.coeff(symbol) == 1:
            return True
    return False


def choose(
    kernel: "WgslKernel", indices: Iterable[sympy.Expr], tree: Any, itemsize: int, numel: Any = 0
) -> int:
    """How many lanes an invocation takes: 1 unless some operand then moves as a vector. `itemsize`
    is that of the widest operand; `numel`, if given, must be a multiple of the lanes."""
    for lanes in (8, 4) if itemsize * 8 <= _VECTOR_BYTES else (4,):
        if not V.graph.sizevars.statically_known_multiple_of(numel, lanes):
            continue
        if any(run_of(kernel, index, tree, lanes) is Run.VECTOR for index in indices):
            return lanes
    return 1


def choose_tile(
    kernel: "WgslKernel", indices: Iterable[sympy.Expr], tree: Any
) -> tuple[int, int] | None:
    """The numbers of columns and rows, if the elements of some operand lie side by side along the
    columns. A workgroup then takes a square tile, so that all operands move whole lines of memory.
    """
    for index in indices:
        for symbol in index.free_symbols:
            entry = kernel.range_tree_nodes.get(symbol)
            if entry is None or entry.root is not tree or index.coeff(symbol) != 1:
                continue
            tile = (entry.divisor, entry.length)
            is_static = all(isinstance(n, (int, sympy.Integer)) and n % 4 == 0 for n in tile)
            if not is_static or run_of(kernel, index, tree, 4) is not Run.APART:
                continue
            columns, rows = int(entry.divisor), int(entry.length)
            if runs_down(kernel, index, tree, (columns, rows)):
                return columns, rows
    return None


def runs_down(kernel: "WgslKernel", index: sympy.Expr, tree: Any, tile: tuple[int, int]) -> bool:
    """Whether the elements of four neighbouring rows of a column lie side by side, the first at a
    multiple of four."""
    columns, rows = tile
    stepping = None
    for symbol in index.free_symbols:
        entry = kernel.range_tree_nodes.get(symbol)
        if entry is None:
            return False
        if entry.divisor == columns and entry.length == rows:
            stepping = symbol
        elif entry.divisor == 1 and entry.length == columns:
            continue
        elif not isinstance(entry.divisor, sympy.Integer) or entry.divisor % (columns * rows):
            return False
    if stepping is None:
        return False
    rest = index - stepping
    return stepping not in rest.free_symbols and bool(
        V.graph.sizevars.statically_known_multiple_of(rest, 4)
    )
