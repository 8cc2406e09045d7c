"""What differs between versions of PyTorch stands in one header and in one module."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE = "torch_webgpu/_torch_versions.py"
HEADER = "csrc/backend/torch_versions.h"
# Adapters of other libraries, and files that a build copies.
APART = ("integrations", "include", "lib", "share")
OF_A_VERSION = re.compile(r"(?i)\b(?:py)?torch 2\.\d|\b(?:newer|older|oldest|newest) (?:py)?torch")


def python_files():
    for package in ("torch_webgpu", "torch_webgpu_autoload"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.relative_to(ROOT).parts[1] not in APART:
                yield path


def own_nodes(scope):
    """Of a module or a function, without those of the functions in it."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef):
            waiting += ast.iter_child_nodes(node)


class Probes(ast.NodeVisitor):
    """Lines that ask what PyTorch has.

    A name is PyTorch's if it is imported from there, if a function takes it as a module, or if it
    is assigned from such a name in the same function.
    """

    def __init__(self, source):
        self.lines = []
        self.names = set()
        self.visit(ast.parse(source))

    def visit_Module(self, node):
        outer = set(self.names)
        inner = list(own_nodes(node))
        known = -1
        while known != len(self.names):
            known = len(self.names)
            for each in inner:
                self.learn(each)
        self.generic_visit(node)
        self.names = outer

    visit_FunctionDef = visit_Module

    def learn(self, node):
        if isinstance(node, ast.Import):
            names = [a for a in node.names if self.is_torch(a.name)]
            self.names |= {a.asname or "torch" for a in names}
        elif isinstance(node, ast.ImportFrom) and self.is_torch(node.module or ""):
            self.names |= {a.asname or a.name for a in node.names}
        elif isinstance(node, ast.arg) and node.annotation is not None:
            if ast.unparse(node.annotation).endswith("ModuleType"):
                self.names.add(node.arg)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and self.is_of_torch(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            self.names |= {target.id for target in targets if isinstance(target, ast.Name)}

    @staticmethod
    def is_torch(module):
        return module.partition(".")[0] == "torch"

    def is_of_torch(self, node):
        while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
            if isinstance(node, ast.Call) and node.args:
                function, first = ast.unparse(node.func), node.args[0]
                if function.endswith(("import_module", "modules.get", "find_spec")):
                    return ast.unparse(first).lstrip("f'\"").startswith("torch.")
            node = node.func if isinstance(node, ast.Call) else node.value
        return isinstance(node, ast.Name) and node.id in self.names

    def visit_Call(self, node):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        # With a name that is a variable, getattr() looks something up.
        asks = name == "hasattr" or (
            name == "getattr" and len(node.args) == 3 and isinstance(node.args[1], ast.Constant)
        )
        attribute = str(getattr(node.args[1], "value", "")) if asks else ""
        is_ours = attribute == "webgpu" or attribute.startswith("__")
        if asks and not is_ours and self.is_of_torch(node.args[0]):
            self.lines.append(node.lineno)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "overloads":
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_Compare(self, node):
        sides = [node.left, *node.comparators]
        texts = [ast.unparse(side) for side in sides]
        if any("torch.__version__" in text or "torch.version" in text for text in texts):
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_Try(self, node):
        kinds = {
            ast.unparse(kind)
            for handler in node.handlers
            if handler.type is not None
            for kind in getattr(handler.type, "elts", [handler.type])
        }
        imports = [n for part in node.body for n in ast.walk(part)]
        has_torch = any(
            (isinstance(n, ast.ImportFrom) and self.is_torch(n.module or ""))
            or (isinstance(n, ast.Import) and any(self.is_torch(a.name) for a in n.names))
            for n in imports
        )
        reads_torch = any(isinstance(n, ast.Attribute) and self.is_of_torch(n) for n in imports)
        fails = kinds & {"ImportError", "ModuleNotFoundError"} and has_torch
        if fails or ("AttributeError" in kinds and (has_torch or reads_torch)):
            self.lines.append(node.lineno)
        self.generic_visit(node)


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nif torch.__version__ >= '2.14': pass",
        "import torch\nhas = hasattr(torch.accelerator, 'Graph')",
        "from torch._inductor import config\nnames = [n for n in 'ab' if hasattr(config, n)]",
        "from torch._inductor.virtualized import V\nsizes = V.graph.sizes\nhasattr(sizes, 'hint')",
        "def adapt(varlen: types.ModuleType):\n  return hasattr(varlen, 'varlen_attn_out')",
        "import torch\nask = getattr(torch.ops, 'new', None) or torch.ops.old",
        "import torch\ntakes = 'lr' in torch.ops.aten._fused_adagrad_.overloads()",
        "m = importlib.import_module(f'torch._inductor.{n}')\nhasattr(m, 'is_gpu')",
        "try:\n  from torch._inductor import new\nexcept ImportError:\n  new = None",
        "import torch\ntry:\n  torch.new()\nexcept AttributeError:\n  pass",
    ],
)
def test_a_probe_is_seen(source):
    assert len(Probes(source).lines) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nprint(torch.__version__, hasattr(torch, 'webgpu'))",
        "import torch\nfunction = getattr(torch.optim, name)",
        "try:\n  import msgspec\nexcept ImportError:\n  pass",
        "def f(value):\n  return hasattr(value, '__len__')",
    ],
)
def test_other_questions_are_not_probes(source):
    assert Probes(source).lines == []


def test_one_module_asks_what_pytorch_has():
    files = {str(p.relative_to(ROOT)): p.read_text(encoding="utf-8") for p in python_files()}
    assert Probes(files.pop(MODULE)).lines
    probes = [f"{name}:{line}" for name, text in files.items() for line in Probes(text).lines]
    assert not probes, f"what a version of PyTorch has is asked in {MODULE}"


def test_one_module_tells_what_a_version_has():
    """Python: a comment about a version belongs to what asks for it."""
    lines = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in python_files()
        if str(path.relative_to(ROOT)) != MODULE
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if OF_A_VERSION.search(line)
    ]
    assert not lines


def test_one_header_asks_for_the_version():
    asks = re.compile(r"\bTORCH_VERSION_(?:MAJOR|MINOR|PATCH)|__has_include\(<(?:ATen|c10|torch)/")
    files = [p for p in (ROOT / "csrc").rglob("*.*") if p.suffix in (".cpp", ".h")]
    asking = {str(p.relative_to(ROOT)) for p in files if asks.search(p.read_text(encoding="utf-8"))}
    assert asking == {HEADER}
