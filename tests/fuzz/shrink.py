"""Makes a failing program short: delta debugging over its steps, then simpler data."""

import re
from dataclasses import replace

from .program import variables_of


def shrink(steps, fails):
    """The fewest steps, of those given, for which fails(steps) is true."""
    steps = minimize(steps, fails)
    for k in range(len(steps)):
        for simpler in simpler_texts(steps[k].text):
            candidate = [*steps[:k], changed(steps[k], simpler), *steps[k + 1 :]]
            if fails(candidate):
                steps = candidate
                break
    return renamed(minimize(steps, fails))


def minimize(steps, fails):
    """ddmin: leaves out ever smaller parts, as long as it still fails."""
    parts = 2
    while len(steps) > 1:
        size = -(-len(steps) // parts)
        for start in range(0, len(steps), size):
            candidate = runnable(steps[:start] + steps[start + size :])
            if candidate and len(candidate) < len(steps) and fails(candidate):
                steps, parts = candidate, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(steps))
    return steps


def runnable(steps):
    """Without those that use a variable that no step before makes."""
    made, kept = set(), []
    for step in steps:
        if step.names - set(step.made) <= made:
            made |= set(step.made)
            kept.append(step)
    return kept


def simpler_texts(text):
    """Other texts to try, the simplest first."""
    data = re.search(r'data\(\d+, (\([^)]*\)), (torch\.\w+)(?:, "\w+")?\)', text)
    if data:
        shape, dtype = data.groups()
        count = f"torch.arange(1, torch.Size({shape}).numel() + 1, dtype={dtype})"
        for simple in (f"torch.ones({shape}, dtype={dtype})", f"{count}.view({shape})"):
            yield text[: data.start()] + simple + text[data.end() :]
    if text.startswith("with torch.no_grad(): "):
        yield text.removeprefix("with torch.no_grad(): ")
    if ".requires_grad_()" in text:
        yield text.replace(".requires_grad_()", "")


def changed(step, text):
    return replace(step, text=text)


def renamed(steps):
    """v0, v1, ... in the order in which they are made."""
    names = {}
    for step in steps:
        for name in step.made:
            names.setdefault(name, f"v{len(names)}")

    def rename(step):
        text = re.sub(r"\bv\d+\b", lambda match: names.get(match[0], match[0]), step.text)
        made, changed_ = (
            tuple(names.get(n, n) for n in found) for found in (step.made, step.changed)
        )
        return replace(step, text=text, made=made, changed=changed_)

    assert all(variables_of(step.text) <= set(names) for step in steps)
    return [rename(step) for step in steps]
