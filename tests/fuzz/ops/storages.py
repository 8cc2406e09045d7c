"""resize_, set_, and tensors that share storage without being views."""

from . import change, maker, new


def room_of(x):
    """How many elements its storage holds from its offset on."""
    return x.untyped_storage().nbytes() // x.itemsize - x.storage_offset()


@maker(2)
def resized(m):
    """New elements are not initialized, so they are written."""
    name = m.pick_any(lambda x: not x.requires_grad and not x.is_conj() and not x.is_neg())
    if not name:
        return None
    x = m.tensor(name)
    shape = [m.integer(0, 5) for _ in range(m.integer(0, 3))]
    total = 1
    for size in shape:
        total *= size
    if total > 200:
        return None
    room = room_of(x)
    if room < 0:
        return None  # what lies before it would not be initialized
    fill = f"; {name}.fill_(1)" if total > room else ""
    return change("resize_", f"{name}.resize_({shape}){fill}", name)


@maker(2)
def shared(m):
    name = m.pick_any(lambda x: x.untyped_storage().nbytes() >= x.itemsize)
    if not name:
        return None
    x = m.tensor(name)
    room = x.untyped_storage().nbytes() // x.itemsize
    offset = m.integer(0, min(room - 1, 6))
    count = m.integer(1, room - offset)
    place = '"cpu"' if name in m.hosts else "device"
    text = f"torch.empty(0, dtype={x.dtype}, device={place}).set_({name}.untyped_storage(), {offset}, [{count}], [1])"
    step = new(m, "set_", text)
    if name in m.hosts:
        m.hosts.update(step.made)
    return step


@maker(1)
def replaced(m):
    """A tensor takes another's storage, or its data."""
    name = m.pick(lambda x: not x.requires_grad and not x.is_conj() and not x.is_neg())
    if not name:
        return None
    x = m.tensor(name)
    other = m.pick(
        lambda y: y.dtype == x.dtype and not y.requires_grad and not y.is_conj() and not y.is_neg()
    )
    if not other or other == name:
        return None
    text = m.choice(
        (f"{name}.set_({other})", f"{name}.data = {other}", f"{name}.resize_as_({other})")
    )
    if "resize" in text:
        if room_of(x) < 0:
            return None
        text += f"; {name}.fill_(1)"
    return change(text.split("(")[0].split(".")[1].split(" ")[0], text, name)
