"""Graphs: leaves, hooks, backward, gradients of gradients."""

from ..model import FLOATS, is_leaf
from ..program import Step
from . import maker, new


def differentiated(m):
    return [n for n in m.alive if m.tensor(n).requires_grad]


@maker(4)
def leaf(m):
    name = m.pick(lambda x: x.dtype in FLOATS and not x.requires_grad and x.numel() <= 100)
    if not name:
        return None
    if m.chance(0.5):
        return new(m, "requires_grad_", f"{name}.detach().clone().requires_grad_()")
    return Step("requires_grad_", f"{name}.requires_grad_()", changed=(name,))


@maker(5)
def backward(m):
    names = [n for n in differentiated(m) if n not in m.hosts and not is_leaf(m.tensor(n))]
    if not names:
        return None
    name = m.choice(names)
    options = m.choice(("", ", retain_graph=True", ", retain_graph=True", ", create_graph=True"))
    if "create" in options:  # only as far as .grad does not keep the graph of itself alive
        options = ", retain_graph=True"
    return Step(
        "backward",
        f"{name}.backward(ramp({name}){options})",
        rule="sums",
        scale=64.0,
        gradients=True,
    )


@maker(4)
def gradient(m):
    names = [n for n in differentiated(m) if n not in m.hosts and not is_leaf(m.tensor(n))]
    if not names:
        return None
    name = m.choice(names)
    inputs = m.choice(differentiated(m))
    options = m.choice(("retain_graph=True", "retain_graph=True, create_graph=True"))
    text = f"torch.autograd.grad({name}, [{inputs}], ramp({name}), {options}, allow_unused=True)[0]"
    made = m.fresh()
    keep = f"{made} = {made} if {made} is None else {made}.clone(memory_format=torch.contiguous_format)"
    return Step("grad", f"{made} = {text}; {keep}", made=(made,), rule="sums", scale=64.0)


@maker(1)
def hook(m):
    names = differentiated(m)
    if not names:
        return None
    name = m.choice(names)
    kind, call = m.choice(
        (
            ("register_hook", "register_hook(lambda g: g * 2)"),
            ("register_hook", "register_hook(lambda g: g.clone())"),
            ("retain_grad", "retain_grad()"),
        )
    )
    # PyTorch's register_hook crashes on a view whose grad_fn is out of date; to read it renews it.
    return Step(kind, f"{name}.grad_fn; {name}.{call}")


@maker(1)
def taken_gradient(m):
    names = [n for n in differentiated(m) if is_leaf(m.tensor(n)) and m.tensor(n).grad is not None]
    if not names:
        return None
    name = m.choice(names)
    if m.chance(0.4):
        return Step("grad = None", f"{name}.grad = None")
    return new(m, "grad clone", f"{name}.grad.clone(memory_format=torch.contiguous_format)")
