"""Expressions of several operators, which a compiler makes one kernel of: parts of concatenations,
masks and pads are branches in it. Only for compiled programs."""

from ..model import FLOATS
from . import maker, new

UNARY = ("-{}", "{}.abs()", "{}.relu()", "{}.floor()", "{}.sign()", "{}.square()", "{}.flip(-1)")
BINARY = (
    *("({} + {})", "({} - {})", "({} * {})", "({} + {})", "({} * {})", "torch.minimum({}, {})"),
    *("torch.maximum({}, {})", "torch.where({} > 0, {}, 0.0)", "torch.where({} < 1, {}, 1.0)"),
)
WITH_NUMBER = ("({} + {})", "({} - {})", "({} * {})", "({} / {})")
NUMBERS = ("0.0", "-0.0", "0", "1.0", "-1", "0.5", "2", "0.25", "-3.0")
CLAMPS = ("{}.clamp(-0.5, 0.5)", "{}.clamp_min(0.0)", "{}.clamp(max=0.25)", "{}.clamp(0.0, 6.0)")
SUMS = ("{}.sum({}, keepdim=True)", "{}.amax({}, keepdim=True)", "{}.mean({}, keepdim=True)")


def expression(m, names, depth):
    """Of tensors of one shape, and of that shape."""
    if depth == 0 or m.chance(0.15):
        return m.choice(names)

    def part():
        return expression(m, names, depth - 1)

    chance = m.random.random()
    if chance < 0.45:
        return m.choice(BINARY).format(part(), part())
    if chance < 0.6:
        return f"({m.choice(UNARY).format(part())})"
    if chance < 0.8:
        number = m.choice(NUMBERS)
        form = m.choice(WITH_NUMBER[:3] if float(number) == 0 else WITH_NUMBER)
        return form.format(part(), number)
    if chance < 0.9:
        return m.choice(CLAMPS).format(part())
    summed = m.choice(SUMS).format(part(), -1)
    return f"({part()} - {summed})"


def alike(m):
    """The names of tensors of a float type and of one shape."""
    name = m.pick(lambda x: x.dtype in FLOATS and x.dim() and 0 < x.numel() <= 100)
    if not name:
        return []
    x = m.tensor(name)
    return [
        n
        for n in m.alive
        if n not in m.hosts and m.tensor(n).dtype == x.dtype and m.tensor(n).shape == x.shape
    ]


def whole(m, depth):
    names = alike(m)
    if not names or not all(m.is_tame(n, 16.0) for n in names):
        return None
    chance, dim = m.random.random(), m.integer(0, m.tensor(names[0]).dim() - 1)

    def part():
        return expression(m, names, depth)

    if chance < 0.4:
        parts = ", ".join(part() for _ in range(m.integer(2, 3)))
        return f"torch.cat([{parts}], {dim})"
    if chance < 0.55:
        pads = (m.integer(0, 2), m.integer(0, 2))
        return f"F.pad({part()}, {pads}, value={m.choice(NUMBERS)}) * F.pad({part()}, {pads})"
    if chance < 0.7:
        return f"torch.stack([{part()}, {part()}], {dim}).sum({dim})"
    return part()


@maker(60)
def fused(m):
    text = whole(m, 3)
    return text and new(m, "fused", text, rule="close", scale=256.0)


@maker(12)
def reduced(m):
    text = whole(m, 2)
    if not text:
        return None
    end = m.choice(("sum(-1)", "amax(-1)", "sum()", "mean(0)", "cumsum(-1)", "argmax(-1)"))
    return new(m, "fused reduction", f"({text}).{end}", rule="sums", scale=256.0)
