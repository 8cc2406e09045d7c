"""What steps there are. Each module adds functions of a Model that make a step, or None."""

import itertools

from ..program import Step

MAKERS = {}  # function -> weight


def maker(weight):
    def add(function):
        MAKERS[function] = weight
        return function

    return add


def load(families=None):
    """The makers of some modules, or of all, and their cumulative weights."""
    from . import (  # noqa: F401
        autograd,
        copies,
        factories,
        indexing,
        joining,
        linalg,
        losses,
        matrices,
        networks,
        pointwise,
        reductions,
        searching,
        special,
        storages,
        views,
    )

    if families and "expressions" in families:
        from . import expressions  # noqa: F401
    makers = [m for m in MAKERS if not families or m.__module__.rsplit(".", 1)[1] in families]
    return makers, list(itertools.accumulate(MAKERS[m] for m in makers))


def new(m, kind, expression, rule="bits", scale=1.0):
    """A step that binds the value of an expression to a new variable."""
    name = m.fresh()
    return Step(kind, f"{name} = {expression}", made=(name,), rule=rule, scale=scale)


def change(kind, text, *changed, rule="bits", scale=1.0):
    """A step that writes into variables."""
    return Step(kind, text, changed=changed, rule=rule, scale=scale)


def dim_of(m, x, wrong=0.02):
    """A dimension of a tensor, seldom one that it does not have."""
    rank = max(x.dim(), 1)
    if m.chance(wrong):
        return rank + 1
    return m.integer(-rank, rank - 1)


def size_at(x, dim):
    return x.size(dim) if x.dim() and -x.dim() <= dim < x.dim() else 1
