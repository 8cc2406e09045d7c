"""torch.linalg of small matrices, distances, and products by other names."""

import torch

from ..model import COMPUTED, FLOATS
from . import maker, new
from .networks import CONTIGUOUS


def well_conditioned(m):
    """A square matrix (or several) whose diagonal dominates, as text; its size and dtype."""
    name = m.pick(
        lambda x: (
            x.dtype in (torch.float32, torch.complex64)
            and x.dim() in (2, 3)
            and x.size(-1) == x.size(-2)
            and 0 < x.size(-1) <= 8
        )
    )
    if name and m.is_tame(name, 16.0) and m.chance(0.7):
        x = m.tensor(name)
        n = x.size(-1)
        divisor = 2 * n * int(m.largest(name) + 1)
        return f"({name}.detach() / {divisor} + 2 * torch.eye({n}, device=device))", n, x.dtype
    n = m.integer(1, 6)
    lead = m.choice(((), (), (2,), (0,), (2, 1)))
    dtype = m.choice((torch.float32, torch.float32, torch.complex64))
    numbers = f"data({m.integer(0, 99)}, {(*lead, n, n)}, {dtype}).to(device)"
    return (
        f"({numbers}{m.choice(('', '.mT'))} / {10 * n} + 2 * torch.eye({n}, device=device))",
        n,
        dtype,
    )


@maker(4)
def solved(m):
    a, n, dtype = well_conditioned(m)
    right = f"data({m.integer(0, 99)}, ({n}, {m.integer(1, 3)}), {dtype}).to(device)"
    symmetric = f"({a} + {a}.mH)"
    positive = f"({a} @ {a}.mH)"
    upper = m.choice(("True", "False"))
    triangle = f"torch.{'triu' if upper == 'True' else 'tril'}({a})"
    options = [
        ("det", f"torch.linalg.det({a})"),
        ("slogdet", f"torch.linalg.slogdet({a})[{m.integer(0, 1)}]"),
        ("inv", f"torch.linalg.inv({a})"),
        ("inv_ex", f"torch.linalg.inv_ex({a})[{m.integer(0, 1)}]"),
        ("solve", f"torch.linalg.solve({a}, {right})"),
        ("solve_triangular", f"torch.linalg.solve_triangular({triangle}, {right}, upper={upper})"),
        ("cholesky", f"torch.linalg.cholesky({positive}, upper={upper})"),
        ("cholesky_inverse", f"torch.cholesky_inverse(torch.linalg.cholesky({positive}))"),
        ("cholesky_solve", f"torch.cholesky_solve({right}, torch.linalg.cholesky({positive}))"),
        ("lu_factor", f"torch.linalg.lu_factor({a})[{m.integer(0, 1)}]"),
        ("lu", f"torch.linalg.lu({a})[{m.integer(0, 2)}]"),
        ("qr", f"torch.linalg.qr({a}).R.abs()"),
        ("svdvals", f"torch.linalg.svdvals({a})"),
        ("eigvalsh", f"torch.linalg.eigvalsh({symmetric})"),
        ("pinv", f"torch.linalg.pinv({a})"),
        ("matrix_power", f"torch.linalg.matrix_power({a}, {m.integer(-1, 4)})"),
        ("matrix_exp", f"torch.linalg.matrix_exp({a})"),
        ("matrix_rank", f"torch.linalg.matrix_rank({a})"),
        (
            "matrix_norm",
            f"torch.linalg.matrix_norm({a}, {m.choice(('1', '-1', '2', 'inf', repr('fro'), repr('nuc')))})",
        ),
        (
            "multi_dot",
            f"torch.linalg.multi_dot([{a}, {a}.mT, {right}])" if a.count(",") < 9 else "",
        ),
    ]
    kind, text = m.choice([o for o in options if o[1]])
    return new(m, kind, text + CONTIGUOUS, "sums", 64.0)


@maker(3)
def distances(m):
    name = m.pick(lambda x: x.dtype == torch.float32 and x.dim() >= 1)
    if not name or not m.is_tame(name, 16.0):
        return None
    x = m.tensor(name)
    p = m.choice(("2.0", "1.0", "0.0", "inf", "1.5", "3.0"))
    # The other way takes the root of a sum that cancels.
    way = 'compute_mode="donot_use_mm_for_euclid_dist"'
    kind, text = m.choice(
        (
            ("cdist", f"torch.cdist({name}, {name}.flip(-1), {p}, {way})"),
            (
                "cdist",
                f"torch.cdist({name}, {name}[..., :2, :], {p}, {way})" if x.dim() > 1 else "",
            ),
            ("pdist", f"F.pdist({name}, {p})"),
            ("pairwise_distance", f"F.pairwise_distance({name}, {name}.flip(0), {p}).detach()"),
            ("dist", f"torch.dist({name}, {name}.flip(0), {p})"),
            ("renorm", f"torch.renorm({name}, 1, {m.integer(0, max(x.dim() - 1, 0))}, 2)"),
            ("cov", f"torch.cov({name}, correction={m.integer(0, 1)})"),
        )
    )
    if kind in ("renorm", "cov") and x.numel() < 2:
        return None
    scale = m.largest(name) ** 2 * 8 if kind == "cov" else m.largest(name) * 8
    return new(m, kind, text, "sums", scale) if text else None


EQUATIONS = {
    1: ("i->", "i,i->", "i,j->ij", "i,i->i"),
    2: ("ij->ji", "ij->j", "ij,ij->i", "ij,kj->ik", "ij,ij->ji", "ij,kl->il", "...j->...", "ij->"),
    3: ("bij->ib", "bij,bkj->bik", "bij,bij->b", "...ij->...ji", "bij,cij->bc", "bij,bij->ij"),
    4: ("abij->abji", "abij,abkj->abik", "abcd,abcd->ad"),
}


@maker(4)
def contracted(m):
    name = m.pick(lambda x: x.dtype in (*FLOATS, torch.complex64, torch.int64) and 0 < x.dim() <= 4)
    if not name or not m.is_tame(name, 16.0):
        return None
    x = m.tensor(name)
    scale = m.largest(name) ** 2 * 4 * max(x.numel(), 1) ** 0.5
    equation = m.choice(EQUATIONS[x.dim()])
    operands = ", ".join([name] * (equation.count(",") + 1))
    options = [
        ("einsum", f'torch.einsum("{equation}", {operands})'),
        ("inner", f"torch.inner({name}, {name})"),
    ]
    if x.dim() > 1:
        columns = m.choice((1, 3))
        weight = f"(data({m.integer(0, 99)}, ({columns}, {x.size(-1)}), {x.dtype})).to(device)"
        bias = f"data({m.integer(0, 99)}, ({columns},), {x.dtype}).to(device)"
        options += [
            ("matmul", f"torch.matmul({name}, {name}.mT)"),
            ("matmul", f"torch.matmul({name}.mT, {name})"),
            ("linear", f"F.linear({name}, {weight}, {bias})"),
            ("tensordot", f"torch.tensordot({name}, {name}, ([-1, 0], [-1, 0]))"),
        ]
    if x.dim() == 2:
        left = f"data({m.integer(0, 99)}, ({x.size(0)},), {x.dtype}).to(device)"
        right = f"data({m.integer(0, 99)}, ({x.size(1)},), {x.dtype}).to(device)"
        options += [
            ("addmv", f"torch.addmv({left}, {name}, {right}, beta=2, alpha=0.5)"),
            ("addr", f"torch.addr({name}, {left}, {right}, beta=0.5)"),
            ("chain_matmul", f"torch.linalg.multi_dot([{name}, {name}.mT, {name}])"),
        ]
    if x.dim() == 3:
        start = f"torch.zeros((), dtype={x.dtype}, device=device)"
        options.append(("addbmm", f"torch.addbmm({start}, {name}, {name}.mT)"))
    kind, text = m.choice(options)
    if "0.5" in text and x.dtype == torch.int64:
        return None
    if kind == "chain_matmul":
        scale *= m.largest(name) * 8
        if not m.is_tame(name, 4.0):
            return None
    return new(m, kind, text, "sums", scale)


@maker(1)
def cells(m):
    """One step of a recurrent network."""
    name = m.pick(lambda x: x.dtype == torch.float32 and x.dim() == 2 and x.numel() > 0)
    if not name or not m.is_tame(name, 4.0):
        return None
    rows, columns = m.tensor(name).shape
    hidden, seed = m.integer(1, 4), m.integer(0, 99)
    kind, gates = m.choice((("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)))

    def made(*shape):
        return f"(data({seed}, {shape}, torch.float32) / 8).to(device)"

    state = made(rows, hidden)
    state = f"({state}, {state})" if kind == "lstm" else state
    weights = f"{made(gates * hidden, columns)}, {made(gates * hidden, hidden)}"
    if m.chance(0.7):
        weights += f", {made(gates * hidden)}, {made(gates * hidden)}"
    part = f"[{m.integer(0, 1)}]" if kind == "lstm" else ""
    text = f"torch.{kind}_cell({name}, {state}, {weights}){part}"
    return new(m, f"{kind}_cell", text + CONTIGUOUS, "sums", 4.0)


@maker(1)
def numbers_of(m):
    """Functions of a whole tensor of any dtype that computes."""
    name = m.pick(lambda x: x.dtype in COMPUTED and x.dim() > 0)
    if not name or not m.is_tame(name, 16.0):
        return None
    kind, text = m.choice(
        (
            ("diff", f"torch.diff({name}, n=2)"),
            ("diff", f"torch.diff({name}, prepend={name})"),
            ("cumulative_trapezoid", f"torch.cumulative_trapezoid({name})"),
            ("cartesian_prod", f"torch.cartesian_prod({name}.flatten()[:5], {name}.flatten()[:3])"),
            ("combinations", f"torch.combinations({name}.flatten()[:6], 2)"),
            ("gradient", f"torch.gradient({name}, dim=0)[0]"),
        )
    )
    return new(m, kind, text, "sums", m.largest(name) * 4)
