"""Products and convolutions whose sizes are parameters of one generated kernel.

The hand-written kernels of products are chosen by the sizes of a call, so what was recorded at one
size is not what another size needs. In a block of `sized_products` the compiler writes the kernel
itself: one tiled product with any strides, whose sizes the launch passes as integers. Inputs of
convolutions are read as the columns of a matrix that lies nowhere. Products without dynamic sizes
stay those of eager mode.
"""

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import PythonPrinter
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from torch_webgpu import _torch_versions
from torch_webgpu.inductor import registers
from torch_webgpu.inductor.choices import geometry_of, product_of
from torch_webgpu.inductor.epilogues import Epilogue, Place
from torch_webgpu.inductor.lanes import size_hint
from torch_webgpu.inductor.module import Access, Module, Operand
from torch_webgpu.inductor.text import indented

# A workgroup computes a tile of _TILE x _TILE elements, _STEP steps of the inner dimension at a
# time; an invocation computes 4 x 4 of them, _LANES apart.
_TILE = 64
_STEP = 16
_LANES = 16
_PITCH = _TILE + 1  # of a step in workgroup memory, so that invocations use different banks

_active: ContextVar[bool] = ContextVar("sized_products", default=False)

_python = PythonPrinter().doprint


@contextlib.contextmanager
def sized_products() -> Iterator[None]:
    """What is compiled in the block has generated kernels for products with dynamic sizes."""
    token = _active.set(True)
    try:
        yield
    finally:
        _active.reset(token)


def is_active() -> bool:
    """Whether a `sized_products` block is open."""
    return _active.get()


@contextlib.contextmanager
def lowered_convolution() -> Iterator[None]:
    """In the block, where Inductor lowers a convolution, no size becomes a fixed number. It asks
    for those of the weight, which is an image in the convolution of a gradient. The order of the
    operands' strides follows from usual sizes: it decides how they are laid out, which the kernel
    takes as it comes."""

    def hints(values: Any, **_: Any) -> list[int]:
        return [size_hint(n) for n in values]

    with _answered(
        guard_int_seq=lambda values: [int(n) if sympy.sympify(n).is_Integer else n for n in values],
        guarding_hints_or_throw=hints,
        size_hints=hints,
    ):
        yield


@contextlib.contextmanager
def lowered_windows() -> Iterator[None]:
    """In the block, where Inductor lowers views of windows, a usual size answers how often elements
    are read. That decides whether they are computed again for each."""
    with _answered(guarding_hint_or_throw=lambda value, **_: size_hint(value)):
        yield


@contextlib.contextmanager
def _answered(**functions: Callable[..., Any]) -> Iterator[None]:
    """In the block these stand for methods of the graph's sizes, those that there are."""
    sizes = V.graph.sizevars
    replaced = _torch_versions.known_methods(sizes, functions)
    vars(sizes).update(replaced)
    try:
        yield
    finally:
        for name in replaced:
            delattr(sizes, name)  # the class has its own


def is_product(node: Any) -> bool:
    """Whether a node of Inductor's IR, or what a box or a view is of, is a product."""
    while hasattr(node, "data"):
        node = node.data
    return product_of(getattr(node, "python_kernel_name", None)) is not None


def is_sized(product: Any) -> bool:
    """Whether a product, a node of Inductor's IR, is to have a generated kernel."""
    if not is_active():
        return False
    nodes = (product, *product.inputs)
    lengths = [n for node in nodes for n in (*node.get_size(), *node.get_stride())]
    return any(sympy.sympify(n).free_symbols for n in lengths)


def is_fit(product: Any) -> bool:
    """Whether the generated kernel can compute it. Not of views in another dtype."""
    return all(V.graph.get_dtype(x.get_name()) == x.get_dtype() for x in product.inputs)


class SizedProduct:
    """The kernel of one product or convolution, with the statements of its epilogue.

    A product is a matrix for each batch. A convolution is one for each group: its rows are the
    group's channels, its columns the positions of all images, and the inner dimension runs over
    channels of the input and the taps of the weight.
    """

    def __init__(self, product: Any, epilogue: Epilogue, statements: str) -> None:
        self.epilogue = epilogue
        self.statements = statements
        self.parameters: dict[str, str] = {}  # by text of the wrapper: the name of the integer
        self.operands: list[Operand] = []
        self.tensors: list[str] = []
        kind = epilogue.kind
        out, *second = epilogue.results
        self._operand("out", out.name, is_stored=True)
        if second:
            self._operand("second", second[0].name, is_stored=True)
        if kind.is_convolution:
            x, weight, *_ = product.inputs
            text = self._convolution(product, weight, x)
        else:
            text = self._product(*product.inputs[-2:])
        self.text = indented(text)

    def launch(self, name: str) -> str:
        """The call of the kernel, as the wrapper's text."""
        batches, m, n = self.size
        tiles = [FloorDiv(length + _TILE - 1, _TILE) for length in (m, n)]
        groups = _python(V.graph.sizevars.simplify(math.prod([batches, *tiles])))
        return f"{name}({', '.join([*self.tensors, *self.parameters, groups])})"

    def definition(self, name: str) -> str:
        """The expression that makes the kernel, as the wrapper's text."""
        module = Module()
        module.operands = self.operands
        module.integers = list(self.parameters.values())
        return module.definition(name, self.text)

    # ---- Operands and parameters

    def _operand(self, operand: str, name: str, *, is_stored: bool = False) -> None:
        dtype = V.graph.get_dtype(name)
        access = f"{Access.STORES} {Access.ELEMENTS}" if is_stored else ""
        self.operands.append(Operand(operand, registers.OPERAND_TYPES[dtype], access))
        self.tensors.append(name)

    def _factor(self, operand: str, node: Any, places: Sequence[str]) -> str:
        """Loads an element of a factor."""
        name, layout = node.get_name(), node.get_layout()
        self._operand(operand, name)
        index = self._index(Place(name, layout.offset, tuple(layout.stride)), places)
        return registers.from_operand(f"get_{operand}({index})", node.get_dtype())

    def _number(self, value: Any) -> str:
        """A size or stride in the kernel: a constant, or an integer of the launch."""
        value = sympy.sympify(value)
        if value.is_Integer:
            return str(int(value))
        for symbol in value.free_symbols:
            V.graph.wrapper_code.ensure_size_computed(symbol)
        name = self.parameters.setdefault(_python(value), f"n{len(self.parameters)}")
        return f"params.{name}"

    def _index(self, place: Place, places: Sequence[str]) -> str:
        """The index of an element at these places of the dimensions."""
        terms = [self._number(place.offset)] if place.offset != 0 else []
        for stride, at in zip(place.strides, places, strict=True):
            if stride == 1:
                terms.append(at)
            elif stride != 0:
                terms.append(f"{at} * {self._number(stride)}")
        return " + ".join(terms) or "0"

    # ---- The kernel

    def _product(self, a: Any, b: Any) -> str:
        *batches, m, n = self.epilogue.sizes
        batch = ["batch"] if batches else []
        self.size = (math.prod(batches), m, n)
        along_k, along_columns = (node.get_stride()[-1] == 1 for node in (a, b))
        factors = [
            "fn factor_a(batch: i32, row: i32, k: i32) -> f32 {",
            f"return {self._factor('a', a, [*batch, 'row', 'k'])};",
            "}",
            "fn factor_b(batch: i32, k: i32, column: i32) -> f32 {",
            f"return {self._factor('b', b, [*batch, 'k', 'column'])};",
            "}",
        ]
        store = self._store([*batch, "row", "column"])
        return "\n".join([*factors, *store, *self._main(a.get_size()[-1], along_k, along_columns)])

    def _convolution(self, product: Any, weight: Any, x: Any) -> str:
        geometry = geometry_of(product.kwargs)
        assert geometry is not None
        groups, is_transposed = geometry["groups"], geometry["transposed"]
        images, channels, *positions = self.epilogue.sizes
        taps = weight.get_size()[2:]
        given = x.get_size()[1] // groups
        made = channels // groups
        dims = range(len(positions))
        self.size = (sympy.sympify(groups), made, images * math.prod(positions))
        tap = [
            f"let given = k / {self._number(math.prod(taps))};",
            *self._counted("tap", f"k % {self._number(math.prod(taps))}", taps),
        ]
        where = [
            f"let image = column / {self._number(math.prod(positions))};",
            *self._counted("p", f"column % {self._number(math.prod(positions))}", positions),
        ]
        lines, inside = [], []
        for d in dims:
            stride, padding, dilation = (
                geometry[name][d] for name in ("stride", "padding", "dilation")
            )
            if is_transposed:
                lines.append(f"let far{d} = p{d} + {padding} - tap{d} * {dilation};")
                lines.append(f"let i{d} = far{d} / {stride};")
                inside.append(f"far{d} >= 0 && far{d} % {stride} == 0")
            else:
                lines.append(f"let i{d} = p{d} * {stride} - {padding} + tap{d} * {dilation};")
                inside.append(f"i{d} >= 0")
            inside.append(f"i{d} < {self._number(x.get_size()[2 + d])}")
        whole_given = f"(batch * {self._number(given)} + given)"
        whole_made = f"(batch * {self._number(made)} + row)"
        rows = [whole_given, "row"] if is_transposed else [whole_made, "given"]
        factors = [
            "fn factor_a(batch: i32, row: i32, k: i32) -> f32 {",
            *tap,
            f"return {self._factor('a', weight, [*rows, *(f'tap{d}' for d in dims)])};",
            "}",
            "fn factor_b(batch: i32, k: i32, column: i32) -> f32 {",
            *where,
            *tap,
            *lines,
            f"if (!({' && '.join(inside)})) {{ return 0.0; }}",
            f"return {self._factor('b', x, ['image', whole_given, *(f'i{d}' for d in dims)])};",
            "}",
        ]
        where.append(f"let channel = {whole_made};")
        store = self._store(["image", "channel", *(f"p{d}" for d in dims)], where)
        return "\n".join([*factors, *store, *self._main(given * math.prod(taps), True, True)])

    def _counted(self, name: str, number: str, sizes: Sequence[Any]) -> list[str]:
        """The places along dimensions of what has a number in row-major order."""
        lines = [f"var rest_{name} = {number};"]
        for d in reversed(range(1, len(sizes))):
            size = self._number(sizes[d])
            lines += [f"let {name}{d} = rest_{name} % {size};", f"rest_{name} /= {size};"]
        return [*lines, f"let {name}0 = rest_{name};"]

    def _store(self, places: Sequence[str], lines: Sequence[str] = ()) -> list[str]:
        """The function that computes an element from its sum, and stores it."""
        epilogue = self.epilogue
        code = ["struct Result {", "value: f32,", "second: f32,", "}"]
        code += ["fn store_result(batch: i32, row: i32, column: i32, sum: f32) {", *lines]
        operands = {letter: place for place, letter in epilogue.operands.items()}
        value = "sum"
        if added := self._added(len(places)):
            operands = {"e" if epilogue.kind.adds else "added": added, **operands}
            value = "sum" if epilogue.kind.adds else "sum + added"
        for letter, place in operands.items():
            self._operand(letter, place.name)
            code.append(f"let {letter} = get_{letter}({self._index(place, places)});")
        if epilogue.seed:
            self._operand("seed", epilogue.seed.name)
            code.append(f"let seed = get_seed({self._number(epilogue.seed.offset)});")
        code += [f"let value = {value};", "var result = Result(value, 0.0);", self.statements]
        for place, operand in zip(epilogue.results, ("out", "second"), strict=False):
            member = "result.value" if operand == "out" else "result.second"
            if V.graph.get_dtype(place.name) == torch.bool:
                member = f"select(0, 1, {member} != 0.0)"
            code.append(f"set_{operand}({self._index(place, places)}, {member});")
        return [*code, "}"]

    def _added(self, dims: int) -> Place | None:
        """What is added to the sums, as large as the result: a bias, unless it is computed here."""
        epilogue = self.epilogue
        at = epilogue.kind.index_of_added
        if at is None or at >= len(epilogue.inputs):
            return None
        added = epilogue.inputs[at]
        if added.get_name() in epilogue.sources:
            return None
        layout = added.get_layout()
        if epilogue.kind.is_convolution:  # an element for each channel
            strides = [0, layout.stride[0], *[0] * (dims - 2)]
        else:
            equal = V.graph.sizevars.statically_known_equals
            own = [
                0 if equal(size, 1) else stride
                for size, stride in zip(layout.size, layout.stride, strict=True)
            ]
            strides = [0] * (dims - len(own)) + own
        return Place(added.get_name(), layout.offset, tuple(map(sympy.sympify, strides)))

    def _main(self, k: Any, along_k: bool, along_columns: bool) -> list[str]:
        """The entry point. Neighbouring invocations load what lies side by side in memory, where
        that is known."""
        _, m, n = self.size
        rows, columns, length = map(self._number, (m, n, k))
        batches = self._number(self.size[0])
        lanes, each = _LANES, _TILE // _LANES
        steps = f"{_TILE * _STEP // (lanes * lanes)}"
        a_place = (
            f"let a_k = at % {_STEP}; let a_row = at / {_STEP};"
            if along_k
            else f"let a_k = at / {_TILE}; let a_row = at % {_TILE};"
        )
        b_place = (
            f"let b_k = at / {_TILE}; let b_column = at % {_TILE};"
            if along_columns
            else f"let b_k = at % {_STEP}; let b_column = at / {_STEP};"
        )
        ranges = range(each)
        return [
            f"var<workgroup> tile_a: array<f32, {_STEP * _PITCH}>;",
            f"var<workgroup> tile_b: array<f32, {_STEP * _PITCH}>;",
            f"@compute @workgroup_size({lanes * lanes})",
            "fn main(@builtin(workgroup_id) id: vec3<u32>,",
            "        @builtin(num_workgroups) groups: vec3<u32>,",
            "        @builtin(local_invocation_index) lid: u32) {",
            "let group = bitcast<i32>(id.y * groups.x + id.x);",
            f"let tiles_n = ({columns} + {_TILE - 1}) / {_TILE};",
            f"let tiles_m = ({rows} + {_TILE - 1}) / {_TILE};",
            "let batch = group / (tiles_m * tiles_n);",
            f"if (batch >= {batches}) {{ return; }}",
            f"let first_row = group / tiles_n % tiles_m * {_TILE};",
            f"let first_column = group % tiles_n * {_TILE};",
            f"let lane_row = bitcast<i32>(lid) / {lanes};",
            f"let lane_column = bitcast<i32>(lid) % {lanes};",
            *(f"var sums{r} = vec4<f32>();" for r in ranges),
            f"for (var first = 0; first < {length}; first += {_STEP}) {{",
            f"for (var turn = 0; turn < {steps}; turn++) {{",
            f"let at = turn * {lanes * lanes} + bitcast<i32>(lid);",
            # Rows and columns beyond the edge repeat the last one, and are never stored.
            a_place,
            "var x = 0.0;",
            f"if (first + a_k < {length}) {{",
            f"x = factor_a(batch, min(first_row + a_row, {rows} - 1), first + a_k);",
            "}",
            f"tile_a[a_k * {_PITCH} + a_row] = x;",
            b_place,
            "var y = 0.0;",
            f"if (first + b_k < {length}) {{",
            f"y = factor_b(batch, first + b_k, min(first_column + b_column, {columns} - 1));",
            "}",
            f"tile_b[b_k * {_PITCH} + b_column] = y;",
            "}",
            "workgroupBarrier();",
            f"for (var k = 0; k < {_STEP}; k++) {{",
            f"let at = k * {_PITCH} + lane_column;",
            "let y = vec4<f32>(" + ", ".join(f"tile_b[at + {c * lanes}]" for c in ranges) + ");",
            *(f"sums{r} += tile_a[k * {_PITCH} + lane_row + {r * lanes}] * y;" for r in ranges),
            "}",
            "workgroupBarrier();",
            "}",
            *(
                f"store_row(batch, first_row + lane_row + {r * lanes}, "
                f"first_column + lane_column, sums{r});"
                for r in ranges
            ),
            "}",
            "fn store_row(batch: i32, row: i32, column: i32, sums: vec4<f32>) {",
            f"if (row >= {rows}) {{ return; }}",
            *(
                f"if (column + {c * lanes} < {columns}) "
                f"{{ store_result(batch, row, column + {c * lanes}, sums[{c}]); }}"
                for c in ranges
            ),
            "}",
        ]


def reshape_indexer(
    old: Sequence[sympy.Expr], new: Sequence[sympy.Expr]
) -> Callable[[Sequence[sympy.Expr]], Sequence[sympy.Expr]]:
    """The function from an index of a reshaped tensor to one of the tensor. It states nothing of
    sizes: dimensions are counted together until both sides have equally many elements."""
    groups = _reshape_groups(old, new)

    def reindex(index: Sequence[sympy.Expr]) -> list[sympy.Expr]:
        found: list[sympy.Expr] = []
        for olds, news in groups:
            number = sympy.S.Zero
            for d in news:
                number = number * new[d] + index[d]
            divisor = sympy.S.One
            places: list[sympy.Expr] = []
            for d in reversed(olds):
                if d == olds[0]:
                    places.append(FloorDiv(number, divisor))
                else:
                    places.append(ModularIndexing(number, divisor, old[d]))
                divisor = divisor * old[d]
            found += reversed(places)
        return found

    return reindex


def _reshape_groups(
    old: Sequence[sympy.Expr], new: Sequence[sympy.Expr]
) -> list[tuple[range, range]]:
    """Dimensions of both sides, from the first on, that have equally many elements."""
    known = V.graph.sizevars
    groups: list[tuple[range, range]] = []
    a, b = len(old), len(new)
    while a or b:
        i, j = max(a - 1, 0), max(b - 1, 0)
        while not known.statically_known_equals(
            x := sympy_product(old[i:a]), y := sympy_product(new[j:b])
        ):
            if i and known.statically_known_multiple_of(y, x):
                i -= 1
            elif j and known.statically_known_multiple_of(x, y):
                j -= 1
            else:
                i = j = 0
                break
        groups.insert(0, (range(i, a), range(j, b)))
        a, b = i, j
    return groups


def split_ranges(groups: Sequence[sympy.Expr], lengths: Sequence[Sequence[sympy.Expr]]) -> Any:
    """The ranges of a kernel's groups that a node with other lengths needs, and for each length the
    function from an index of all ranges to the node's. Whatever the sizes are: only what is divided
    without a rest is split.

    Raises CantSplit if there are none.
    """
    from torch._inductor.codegen.simd import CantSplit

    if not any(len(each) for each in lengths):
        return [[] for _ in groups], []
    is_one = functools.partial(V.graph.sizevars.statically_known_equals, right=1)
    left = [V.graph.sizevars.simplify(group) for group in groups]
    ranges: list[list[sympy.Expr]] = [[] for _ in left]
    numbers = itertools.count()
    current = 0

    def parts_of(size: sympy.Expr) -> list[tuple[sympy.Expr, int]]:
        """The ranges that a length is made of, the outermost first, with their numbers."""
        nonlocal current
        parts: list[tuple[sympy.Expr, int]] = []
        while not is_one(size):
            while current < len(left) and is_one(left[current]):
                current += 1
            if current == len(left):
                raise CantSplit(size, 0)
            part, rest, size = size, _quotient(left[current], size), sympy.S.One
            if rest is None:  # the group is a part of the length
                part, rest, size = left[current], sympy.S.One, _quotient(part, left[current])
                if size is None:
                    raise CantSplit(part, left[current])
            left[current] = rest
            ranges[current].append(part)
            parts.append((part, next(numbers)))
        return parts

    getters = [
        [functools.partial(_combined, parts_of(V.graph.sizevars.simplify(n))) for n in each]
        for each in lengths
    ]
    if not all(map(is_one, left)):
        raise CantSplit(left, lengths)
    return ranges, getters


def _combined(parts: Sequence[tuple[sympy.Expr, int]], index: Sequence[sympy.Expr]) -> sympy.Expr:
    """The number that the parts of an index make."""
    number = sympy.S.Zero
    for size, k in parts:
        number = number * size + index[k]
    return number


def _quotient(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    """a / b, if that is an integer for all sizes."""
    quotient = sympy.cancel(a / b)
    numerator, denominator = sympy.fraction(quotient)
    if denominator == 1 and all(n.is_Integer for n in numerator.atoms(sympy.Number)):
        return quotient
    return FloorDiv(a, b) if V.graph.sizevars.statically_known_multiple_of(a, b) else None
