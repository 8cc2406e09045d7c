"""A program is a list of steps; a step is a line of Python."""

import ast
import inspect
import math
from dataclasses import dataclass
from functools import cached_property

import torch

from . import prelude

# How far a result may be off, by rule:
# bits: not at all; equal: the same number, NaN for NaN; close: by a rounding or two of each
# element; sums: by roundings of numbers as large as `scale`.
RULES = ("bits", "equal", "close", "sums")

# forward: its results; dynamic: those of symbolic sizes; backward: those and the gradients.
MODES = ("forward", "dynamic", "backward")


@dataclass(frozen=True)
class Step:
    kind: str  # what it is counted as
    text: str
    made: tuple[str, ...] = ()  # variables that it binds
    changed: tuple[str, ...] = ()  # variables that it writes into
    rule: str = "bits"
    scale: float = 1.0
    gradients: bool = False  # it accumulates into .grad
    compiled: str = ""  # one of MODES: a line of the function that is compiled so

    def __getstate__(self):  # code cannot be sent to another process
        return {k: v for k, v in self.__dict__.items() if k not in ("code", "names")}

    @cached_property
    def code(self):
        return compile(self.text, "<step>", "exec")

    @cached_property
    def names(self):
        """The variables that it mentions."""
        return variables_of(self.text)

    @property
    def targets(self):
        return self.made + self.changed


def variables_of(text):
    names = (node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name))
    return frozenset(name for name in names if name[0] == "v" and name[1:].isdigit())


def namespace(device):
    """What a program sees: torch, F, the functions of the prelude, `device`."""
    names = {name: value for name, value in vars(prelude).items() if not name.startswith("__")}
    return names | {"device": torch.device(device), "inf": math.inf, "nan": math.nan}


def script(steps, difference):
    """A program to run by itself."""
    body = "\n".join("    " + step.text for step in steps[:-1])
    last = steps[-1]
    shown = "".join(f"\n        print({name})" for name in last.targets)
    gradients = "".join(
        f"\n        print({name}.grad)" for name in sorted(last.names) if last.gradients
    )
    comment = "\n".join("# " + line for line in difference.splitlines())
    return f"""{comment}
{head()}


for device in ("cpu", "webgpu"):
    print(device)
{body or "    pass"}
    try:
        {last.text}{shown}{gradients}
    except Exception as error:
        print(type(error).__name__, error)
"""


def head():
    """What a printed program begins with."""
    text = inspect.getsource(prelude).split('"""', 2)[2].replace("  # noqa: F401", "").strip()
    return f"from math import inf, nan\n\n{text}"
