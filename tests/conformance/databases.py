"""PyTorch's test databases, and by which module an entry of each is run.

Such a module offers SIDES, which groups its variants for the page; LEFT_OUT, the entries that are
skipped, and why; variants_of(entry, dtype), the
variants that the CPU has in that dtype; and checks(entry, dtype, variant, limit), which yields what
is run, in words, and a function that runs it on a device and raises where the CPU differs.
"""

import functools
import importlib

from . import compiled, modules, operators, optimizers

INVOCATIONS = "torch.testing._internal.common_methods_invocations:"
# Of each section: who runs it, and the lists it is made of.
SECTIONS = {
    "operators": (operators, [INVOCATIONS + "op_db"]),
    "foreach": (
        operators,
        [
            f"{INVOCATIONS}foreach_{kind}_op_db"
            for kind in ("unary", "binary", "pointwise", "reduce", "other")
        ],
    ),
    "modules": (modules, ["torch.testing._internal.common_modules:module_db"]),
    "optimizers": (optimizers, ["torch.testing._internal.common_optimizers:optim_db"]),
    "compiled": (compiled, [INVOCATIONS + "op_db"]),
}
# What takes an hour: a run takes some of the entries.
SAMPLED = ("compiled",)


def runner_of(database):
    return section(database)[0]


def section(database):
    """A section by its name; any other list of OpInfos goes by MODULE:LIST."""
    return SECTIONS.get(database) or (operators, [database])


@functools.cache
def entries(database):
    """The entries of a database by their names."""
    runner, lists = section(database)
    found = {}
    for name in lists:
        module, attribute = name.split(":")
        for entry in getattr(importlib.import_module(module), attribute):
            found[runner.name_of(entry)] = entry
    return found
